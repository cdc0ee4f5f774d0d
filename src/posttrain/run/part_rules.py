"""Rules that lower parts of rewards: which parts a rule's metric names, and which rules cannot be meant.

What a rule does when it fires is `run/health.py`'s affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from posttrain.core.rules import Action, Rule
from posttrain.rewards.spec import RewardSpec

SATURATED = "reward_saturated"
"""`reward_saturated/DOMAIN/PART`: share of a step's groups with nothing left to learn of the part."""

AGREEMENT = "audit/agreement"
"""`audit/agreement/DOMAIN/PART`: agreement of the part with audited truth, in [0, 1], where an audit records it."""


def misdirected(rules: Sequence[Rule], rewards: Mapping[str, RewardSpec]) -> list[str]:
    """One sentence for each rule that lowers a part which is not there, or an outcome, which the others guide to."""
    found = []
    for rule in rules:
        if rule.action is not Action.LOWER_PART:
            continue
        matched = [
            (domain, part) for domain, spec in rewards.items() for part in spec.parts if _names(rule, domain, part)
        ]
        if not matched:
            known = [f"{domain}/{part}" for domain, spec in rewards.items() for part in spec.parts]
            found.append(f"rule {rule.name} lowers no part: {rule.metric} ends with none of {', '.join(known)}")
        found += [
            f"rule {rule.name} would lower {domain}/{part}, the outcome itself: name the parts that it is about, or "
            f'reward.allow = ["lowered_outcome"]'
            for domain, part in matched
            if rewards[domain].parts[part].kind == "outcome" and "lowered_outcome" not in rewards[domain].allow
        ]
    return found


def _names(rule: Rule, domain: str, part: str) -> bool:
    return fnmatchcase(f"{domain}/{part}", "/".join(rule.metric.split("/")[-2:]))
