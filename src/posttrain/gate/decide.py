"""Rules → decision: what is to be done with a version, and why. Pure over the history of looks.

`replay` is the whole gate: the loop calls it while a run goes on and `posttrain gate` afterwards, so other rules can be
tried on what was measured. The first look is the reference; a look that is promoted is the next one's reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from posttrain.core.decision import Audit, Decision, DecisionKind, DomainOutcome, Look, Outcome
from posttrain.core.types import EvalReport
from posttrain.gate.judge import judge
from posttrain.gate.spec import GateSpec
from posttrain.gate.statistics import combined


def replay(looks: Sequence[Look], spec: GateSpec) -> list[Decision]:
    """One decision for each look but the first, in order. Raises ValueError where looks measured different tasks."""
    decisions: list[Decision] = []
    reference = looks[0].report
    for number, look in enumerate(looks[1:], 1):
        decisions.append(decide(reference, look, spec, number=number))
        if decisions[-1].kind is DecisionKind.PROMOTE:
            reference = look.report
    return decisions


def decide(reference: EvalReport, look: Look, spec: GateSpec, *, number: int) -> Decision:
    """The decision on one candidate, which is look `number` of its run, counted from 1."""
    domains = judge(reference, look.report, spec, number)
    total = combined([domain.delta for domain in domains.values()], [domain.ci95 for domain in domains.values()])
    regressed = [name for name, domain in domains.items() if domain.outcome is Outcome.REGRESS and spec.guards(name)]
    if regressed:
        regressed.sort(key=lambda name: (domains[name].anytime_p, name))
        kind, because = DecisionKind.ROLLBACK, [_regressed(name, domains[name]) for name in regressed]
    else:
        because = [
            *_against_domains(domains, spec),
            *_against_total(total, spec),
            *_against_audits(domains, look, spec),
        ]
        kind = DecisionKind.HOLD if because else DecisionKind.PROMOTE
    if kind is DecisionKind.PROMOTE:
        because = [f"{len(domains)} domains pass, and the total changed by {_points(*total)}"]
    return Decision(
        kind=kind,
        because=tuple(because),
        warnings=tuple(
            f"{name} may have declined: {_points(domain.delta, domain.ci95)}, p = {domain.decline_p:.2g}"
            for name, domain in domains.items()
            if domain.warned and domain.outcome is not Outcome.REGRESS
        ),
        label=look.report.label,
        reference=reference.label,
        look=number,
        domains=domains,
        total=total,
        culprit=regressed[0] if regressed else None,
    )


def _regressed(name: str, domain: DomainOutcome) -> str:
    return f"{name} regressed: {_points(domain.delta, domain.ci95)} on {domain.n} tasks"


def _against_domains(domains: Mapping[str, DomainOutcome], spec: GateSpec) -> list[str]:
    sentences = []
    for name, domain in domains.items():
        if domain.unmeasured:
            sentences.append(
                f"{name} was not measured: more than {spec.max_no_verdict_share:.1%} of its attempts have no verdict"
            )
        elif domain.outcome is Outcome.REGRESS:
            sentences.append(_regressed(name, domain))
        elif domain.outcome is Outcome.INCONCLUSIVE and spec.guards(name):
            sees = "no loss" if domain.detectable is None else f"losses from {100 * domain.detectable:.1f} points on"
            sentences.append(
                f"{name} is inconclusive: {_points(domain.delta, domain.ci95)} does not exclude a loss of "
                f"{100 * domain.margin:g} points; {domain.n} tasks detect {sees}"
            )
    return sentences


def _against_total(total: tuple[float, tuple[float, float]], spec: GateSpec) -> list[str]:
    if not spec.total_must_improve or total[1][0] > 0.0:
        return []
    return [f"the total has not been shown to improve: {_points(*total)}"]


def _against_audits(domains: Mapping[str, DomainOutcome], look: Look, spec: GateSpec) -> list[str]:
    """What is asked for and not known is missing: no audit is no precision."""
    sentences = []
    for name in domains:
        audit = look.audits.get(name, Audit(precision=0.0, reviewed=0))
        if audit.reviewed < spec.min_reviewed:
            sentences.append(f"{name} has {audit.reviewed} reviewed attempts of the {spec.min_reviewed} asked for")
        if spec.min_precision and not audit.reviewed:
            sentences.append(f"{name} has no audited precision, and {spec.min_precision:.1%} is asked for")
        elif audit.precision < spec.min_precision:
            sentences.append(
                f"the verdicts of {name} were right in {audit.precision:.1%} of {audit.reviewed} reviewed attempts; "
                f"{spec.min_precision:.1%} is asked for"
            )
    return sentences


def _points(delta: float, ci95: tuple[float, float]) -> str:
    return f"{100 * delta:+.1f} points [{100 * ci95[0]:+.1f}, {100 * ci95[1]:+.1f}]"
