"""All laws about a loss alone, tried one after the other, each with the smallest input that breaks it.

The laws about how a stage lays out, masks, weighs and divides are the learner's: no loss can break them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from posttrain.core.law_result import LawResult
from posttrain.losses.base import Loss
from posttrain.losses.laws.calls import empty, empty_cases, extreme_cases, finite, form, pure
from posttrain.losses.laws.fields import nan_shows, needs, unread
from posttrain.losses.laws.formulas import is_kl, is_policy_loss, means_kl, on_policy
from posttrain.losses.laws.measure import BrokenError
from posttrain.losses.laws.samples import cutting, neighbours, order, reduction
from posttrain.losses.laws.search import over, raised


@dataclass(frozen=True)
class Law:
    name: str
    what: str
    try_on: Callable[[Loss], None]
    """Raises `BrokenError`."""
    unless: Callable[[Loss], str] = lambda _: ""
    """Why the law says nothing about a loss; empty where it does."""


FORM = Law("form", "one value for each token; terms carry a gradient, metrics do not", over(form))
LAWS = (
    FORM,
    Law("purity", "the same inputs give the same, stay as they were, and nothing is drawn", over(pure)),
    Law("L1 cutting", "micro-batches may be cut anywhere between samples", over(cutting)),
    Law("L1 order", "samples may stand in any order", over(order)),
    Law("L2 reduction", "a sample says the same alone as beside others", over(reduction)),
    Law("L3 neighbours", "NaN or infinities in one sample reach no other", over(neighbours)),
    Law("L3 unread fields", "what stands in a field that is not needed changes nothing", over(unread)),
    Law("L3 needs", "needs_reference and needs_critic tell the truth", needs),
    Law("L4 empty", "no tokens give no terms, no gradient and no NaN", over(empty, empty_cases)),
    Law("L5 KL", "kl_loss has the gradient of KL(policy ‖ reference)", means_kl, is_kl),
    Law("L6 on-policy", "on fresh data the gradient is the plain policy gradient", over(on_policy), is_policy_loss),
    Law("finite", "log-probs of -1e4, ratios of e^±20, advantages of ±10 give numbers", over(finite, extreme_cases)),
    Law("NaN shows", "a NaN among log-probs and advantages reaches its token's term", nan_shows, is_policy_loss),
)


def check(loss: Loss, progress: Callable[[str], None] = lambda sentence: None) -> list[LawResult]:
    """One result for each law; where the form is broken, for the form alone: nothing else can be told. `progress` gets
    a sentence for each law that was tried."""
    results = []
    for number, law in enumerate(LAWS, start=1):
        results.append(_result(law, loss))
        progress(f"{number} of {len(LAWS)}: {law.name} {'holds' if results[-1].holds else 'is broken'}")
        if law is FORM and not results[0].holds:
            break
    return results


def _result(law: Law, loss: Loss) -> LawResult:
    try:
        if why := law.unless(loss):
            return LawResult(law.name, True, f"says nothing here: {why}")
        law.try_on(loss)
    except BrokenError as broken:
        return LawResult(law.name, False, str(broken), broken.smallest_input)
    except Exception as error:  # a loss is a plug-in: whatever it raises is its failure
        return LawResult(law.name, False, raised(error))
    return LawResult(law.name, True, law.what)
