"""Two reports → one outcome a domain: PASS, REGRESS or INCONCLUSIVE. Pure: the same reports, the same outcomes.

REGRESS is a decline that the betting test shows (`betting.py`) at this look's share of the error budget, with Holm's
correction over the domains, unless a loss beyond the margin is excluded at the same time. PASS is a lower bound above
minus the margin, from the bootstrap, at `alpha` in each domain divided by the number of draws. That needs no correction
over domains: all of them must pass (Berger 1982, Technometrics 24, intersection-union tests). The bound may be the one
that a domain's family lends it (`shrinkage.py`); what blocks is always the domain's own evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from posttrain.core.decision import DomainOutcome, Outcome
from posttrain.core.seeding import stable_hash
from posttrain.core.types import EvalReport
from posttrain.gate.betting import anytime_p, log_wealth
from posttrain.gate.looks import look_weight
from posttrain.gate.multiple import benjamini_hochberg, holm
from posttrain.gate.paired_tests import decline_p
from posttrain.gate.power import detectable, log_threshold, observed
from posttrain.gate.shrinkage import shrink
from posttrain.gate.spec import GateSpec
from posttrain.gate.statistics import Z95, Floats, item_means, mean_interval


@dataclass(frozen=True)
class Pairs:
    """One domain's tasks, each attempted by both policies."""

    differences: Floats  # [n], candidate minus reference, mean over a task's attempts
    samples: int
    """Attempts a task."""


def paired(reference: EvalReport, candidate: EvalReport) -> dict[str, Pairs]:
    """The candidate's items beside the reference's, which may have more.

    Raises ValueError where the reference lacks a task, or the candidate a domain.
    """
    before, after = item_means(reference), item_means(candidate)
    if unknown := after.keys() - before.keys():
        raise ValueError(
            f"reports {reference.label} and {candidate.label} cannot be compared in pairs: {len(unknown)} tasks of "
            f"{candidate.label} were not measured for {reference.label}"
        )
    if missing := sorted(reference.domains.keys() - candidate.domains.keys()):
        raise ValueError(f"report {candidate.label} lacks domain {', '.join(missing)} of {reference.label}")
    differences: dict[str, list[float]] = {}
    for (domain, task_id), score in after.items():
        differences.setdefault(domain, []).append(score - before[domain, task_id])
    return {name: Pairs(np.asarray(differences[name]), candidate.domains[name].samples) for name in sorted(differences)}


def judge(reference: EvalReport, candidate: EvalReport, spec: GateSpec, look: int) -> dict[str, DomainOutcome]:
    """The outcome of each domain, by name in order. Raises as `paired`."""
    pairs = paired(reference, candidate)
    weight = look_weight(look, spec.looks)
    threshold = log_threshold(spec.alpha, weight=weight, hypotheses=len(pairs))
    measured = {name: _measured(name, of, spec, weight, threshold) for name, of in pairs.items()}
    blocked = holm({name: domain.anytime_p for name, domain in measured.items()}, spec.alpha)
    warned = benjamini_hochberg({name: domain.decline_p for name, domain in measured.items()}, spec.warn_rate)
    own = {name: _lower_bound(name, of, spec) for name, of in pairs.items()}
    lent = _lent_by_families(measured, spec)
    judged = {}
    for name, domain in measured.items():
        shrunk, lent_bound = lent.get(name, (domain.delta, -math.inf))
        unmeasured = any(_no_verdict_share(r, name) > spec.max_no_verdict_share for r in (reference, candidate))
        if unmeasured:
            outcome = Outcome.INCONCLUSIVE
        elif own[name] >= -domain.margin:
            outcome = Outcome.PASS
        elif name in blocked:
            outcome = Outcome.REGRESS
        else:
            outcome = Outcome.PASS if lent_bound >= -domain.margin else Outcome.INCONCLUSIVE
        judged[name] = replace(domain, outcome=outcome, shrunk=shrunk, unmeasured=unmeasured, warned=name in warned)
    return judged


def _measured(name: str, pairs: Pairs, spec: GateSpec, weight: float, threshold: float) -> DomainOutcome:
    d = pairs.differences
    delta = math.fsum(d) / len(d)
    return DomainOutcome(
        outcome=Outcome.INCONCLUSIVE,
        delta=delta,
        ci95=mean_interval(d, lowest=-1.0, highest=1.0, seed=stable_hash("gate", name)),
        n=len(d),
        margin=spec.margin_of(name),
        detectable=detectable(observed(d, pairs.samples), len(d), threshold),
        decline_p=decline_p(d, samples=pairs.samples, seed=stable_hash("decline", name)),
        anytime_p=anytime_p(log_wealth(d), weight),
        shrunk=delta,
    )


def _tail(spec: GateSpec) -> float:
    """Of a lower bound: after each doubling there is one more chance to pass by luck."""
    return spec.alpha / (spec.max_doublings + 1)


def _lower_bound(name: str, pairs: Pairs, spec: GateSpec) -> float:
    seed = stable_hash("gate", name)
    return mean_interval(pairs.differences, lowest=-1.0, highest=1.0, seed=seed, tail=_tail(spec))[0]


def _lent_by_families(measured: Mapping[str, DomainOutcome], spec: GateSpec) -> dict[str, tuple[float, float]]:
    """Shrunken change and its lower bound, of the domains that have a family."""
    z = NormalDist().inv_cdf(1.0 - _tail(spec))
    found: dict[str, tuple[float, float]] = {}
    for names in spec.by_family(measured).values():
        domains = [measured[name] for name in names]
        errors = [(domain.ci95[1] - domain.ci95[0]) / (2.0 * Z95) for domain in domains]
        shrunk = shrink([domain.delta for domain in domains], errors)
        for name, mean, error in zip(names, shrunk.means, shrunk.errors, strict=True):
            found[name] = (mean, mean - z * error)
    return found


def _no_verdict_share(report: EvalReport, domain: str) -> float:
    score = report.domains[domain]
    return score.no_verdict / (score.n * score.samples)
