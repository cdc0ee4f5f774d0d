"""Laws about samples in one micro-batch: what a loss says of one does not depend on the others (L1, L2, L3)."""

from __future__ import annotations

import dataclasses
import math

from posttrain.losses.base import Loss
from posttrain.losses.laws.case import FIELDS, Case
from posttrain.losses.laws.measure import compare, measure

POISONS = (math.nan, math.inf, -math.inf)


def cutting(loss: Loss, case: Case) -> None:
    """In two micro-batches instead of one, wherever it is cut."""
    number = len(case.samples)
    whole = measure(loss, case)
    for cut in range(1, number):
        for part in (range(cut), range(cut, number)):
            if places := case.places(part):  # what becomes of no tokens is another law's
                alone = measure(loss, case.chosen(part))
                compare(alone, whole, places, f"with the micro-batch cut before sample {cut}", "uncut")


def order(loss: Loss, case: Case) -> None:
    """Backwards, and each sample once in front."""
    number = len(case.samples)
    whole = measure(loss, case)
    rotations = [[(first + s) % number for s in range(number)] for first in range(1, number)]
    for other in [*rotations, list(range(number))[::-1]]:
        compare(
            measure(loss, case.chosen(other)), whole, case.places(other), f"with the samples as {other}", "in order"
        )


def reduction(loss: Loss, case: Case) -> None:
    """A sample's own tokens are the only thing that may be counted, averaged or divided by."""
    whole = measure(loss, case)
    for sample in range(len(case.samples)):
        if places := case.places([sample]):
            alone = measure(loss, case.chosen([sample]))
            compare(alone, whole, places, f"where sample {sample} is alone", "beside the others")


def neighbours(loss: Loss, case: Case) -> None:
    """NaN or infinities in one sample reach no other."""
    for segment, sample in enumerate(case.samples):
        others = case.places([s for s in range(len(case.samples)) if s != segment])
        if not (sample and others):
            continue
        unweighed = _in_sample(case, segment, loss_weights=0.0)
        clean = measure(loss, unweighed)
        for poison in POISONS:
            dirty = measure(loss, _in_sample(unweighed, segment, **dict.fromkeys(FIELDS, poison)))
            at_others = {name: values[others] for name, values in dirty.items()}
            compare(at_others, clean, others, f"with {poison} throughout sample {segment}", "without")


def _in_sample(case: Case, segment: int, **fields: float) -> Case:
    return case.changed(lambda s, token: dataclasses.replace(token, **fields) if s == segment else token)
