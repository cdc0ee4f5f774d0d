"""Between a rolled wave and its credit: every detector, the independent verifiers, and who is kept out of the gradient.

What is seen depends on the attempts alone and what is kept out on the rules and the stage's records, so a resumed run
does the same again (law L21). It judges nothing itself and changes no verdict and no reward.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from posttrain.core.types import Group, Trajectory, VerdictStatus
from posttrain.run.held_out import HeldOutVerifiers
from posttrain.verifiers.detect.attempts import detect, with_held_out


@dataclass(frozen=True)
class Inspected:
    groups: list[Group]
    values: dict[str, float]
    """For the step's record, and for the rules before it is learned from."""


async def inspect(groups: Sequence[Group], held_out: HeldOutVerifiers) -> Inspected:
    """Each attempt with what detectors and its domain's independent verifier say of it."""
    seen = detect(groups)
    if any(group.task.domain in held_out for group in seen):
        seen = list(await asyncio.gather(*(_second_look(group, held_out) for group in seen)))
    return Inspected(seen, inspection_values([t for group in seen for t in group.trajectories]))


def quarantined(groups: Sequence[Group], quarantines: Mapping[str, str], paused: Mapping[str, str]) -> list[Group]:
    """The groups with the attempts marked that are not to be learned from: those that a quarantined metric counts, and
    those of domains that were paused while they were under way."""
    return [
        dataclasses.replace(
            group,
            trajectories=tuple(_marked(t, quarantines, paused.get(group.task.domain, "")) for t in group.trajectories),
        )
        for group in groups
    ]


def inspection_values(attempts: Sequence[Trajectory]) -> dict[str, float]:
    """By domain. A detector that fired on none of a domain's attempts is left out; `suspect/DOMAIN`, a share of all
    attempts, never is; `suspect_of_paid/DOMAIN` is of those that earned something."""
    values: dict[str, float] = {}
    for domain, own in sorted(_by_domain(attempts).items()):
        values[f"suspect/{domain}"] = _share(own, lambda t: t.suspect)
        paid = [t for t in own if t.judged and t.verdict is not None and t.verdict.score > 0.0]
        if paid:
            values[f"suspect_of_paid/{domain}"] = _share(paid, lambda t: t.suspect)
        fired = Counter(name for t in own for name in {detection.name for detection in t.detections})
        values |= {f"detector/{name}/{domain}": count / len(own) for name, count in sorted(fired.items())}
        values |= _held_out_values(domain, own)
        values |= _test_values(domain, own)
    return values


def quarantine_values(attempts: Sequence[Trajectory]) -> dict[str, float]:
    """What was kept out, and what has no verdict: counts, by domain."""
    values = {"quarantined": float(sum(bool(t.quarantine) for t in attempts))}
    for domain, own in sorted(_by_domain(attempts).items()):
        if kept_out := sum(bool(t.quarantine) for t in own):
            values[f"quarantined/{domain}"] = float(kept_out)
        lost = sum(not t.judged for t in own)
        values[f"no_verdict_share/{domain}"] = lost / len(own)
        if lost:
            values[f"no_verdict/{domain}"] = float(lost)
    return values


async def _second_look(group: Group, held_out: HeldOutVerifiers) -> Group:
    if group.task.domain not in held_out:
        return group
    trajectories = []
    for trajectory in group.trajectories:
        judged = with_held_out(trajectory, await held_out.judge(trajectory)) if trajectory.judged else trajectory
        trajectories.append(judged)
    return dataclasses.replace(group, trajectories=tuple(trajectories))


def _marked(trajectory: Trajectory, quarantines: Mapping[str, str], paused: str) -> Trajectory:
    domain = trajectory.task.domain
    reason = paused
    if trajectory.suspect:
        reason = reason or quarantines.get(f"suspect/{domain}", "")
    for detection in trajectory.detections:
        reason = reason or quarantines.get(f"detector/{detection.name}/{domain}", "")
    return dataclasses.replace(trajectory, quarantine=reason) if reason and trajectory.judged else trajectory


def _held_out_values(domain: str, attempts: Iterable[Trajectory]) -> dict[str, float]:
    """Over attempts that both verifiers judged."""
    asked = [t for t in attempts if t.held_out is not None]
    both = [(t.verdict, t.held_out) for t in asked if t.held_out and t.held_out.status is not VerdictStatus.NO_VERDICT]
    if not asked:
        return {}
    values = {f"held_out_no_verdict/{domain}": (len(asked) - len(both)) / len(asked)}
    if both:
        agreed = sum(first is not None and first.status is second.status for first, second in both)
        values[f"held_out/{domain}"] = sum(second.score for _, second in both) / len(both)
        values[f"held_out_agreement/{domain}"] = agreed / len(both)
    return values


def _test_values(domain: str, attempts: Iterable[Trajectory]) -> dict[str, float]:
    """Of programs whose verifier says which tests the policy could see."""
    parts = [t.verdict.parts for t in attempts if t.judged and t.verdict is not None]
    rates = [(p["visible_tests"], p["hidden_tests"]) for p in parts if {"visible_tests", "hidden_tests"} <= p.keys()]
    if not rates:
        return {}
    hidden = sum(rate for _, rate in rates) / len(rates)
    visible = sum(rate for rate, _ in rates) / len(rates)
    return {f"hidden_tests/{domain}": hidden, f"visible_hidden_gap/{domain}": visible - hidden}


def _by_domain(attempts: Iterable[Trajectory]) -> dict[str, list[Trajectory]]:
    found: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in attempts:
        found[trajectory.task.domain].append(trajectory)
    return found


def _share(attempts: Sequence[Trajectory], holds: Callable[[Trajectory], bool]) -> float:
    return sum(map(holds, attempts)) / len(attempts)
