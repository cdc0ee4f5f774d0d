"""Laws about the fields of a loss's inputs: what it says it needs is what it reads (L3), and no NaN is swallowed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import partial

from posttrain.losses.base import Loss
from posttrain.losses.laws.case import ALWAYS_SHOWN, CRITIC, REFERENCE, Case, Token, cases
from posttrain.losses.laws.measure import BrokenError, compare, measure
from posttrain.losses.laws.samples import POISONS
from posttrain.losses.laws.search import broken_by, over

OPTIONAL = {"needs_reference": REFERENCE, "needs_critic": CRITIC}


def not_needed(loss: Loss) -> list[str]:
    return [name for need, names in OPTIONAL.items() if not getattr(loss, need) for name in names]


def unread(loss: Loss, case: Case) -> None:
    """Whatever stands in a field that is not needed changes nothing."""
    clean = measure(loss, case)
    every = range(len(case.tokens))
    for name in not_needed(loss):
        for poison in POISONS:
            dirty = measure(loss, case.filled([name], poison))
            compare(dirty, clean, every, f"with {poison} in {name}, which it says it does not need,", "without")


def told(loss: Loss, case: Case) -> None:
    """Without a field that is not needed it says the same."""
    full = measure(loss, case)
    for need, names in OPTIONAL.items():
        if getattr(loss, need):
            continue
        without = broken_by(partial(_called, without=names), loss, case)
        if without:
            raise BrokenError(f"{need} is false, and without {' and '.join(names)} {without}")
        left = measure(loss, case, without=names)
        kept = {name: values for name, values in full.items() if name in left}
        compare(left, kept, range(len(case.tokens)), f"without {names[0]}", "with it")


def _called(loss: Loss, case: Case, without: Sequence[str]) -> None:
    measure(loss, case, without=without)


def needs(loss: Loss) -> None:
    """And what is said to be needed is read in some case."""
    over(told)(loss)
    for need, names in OPTIONAL.items():
        if getattr(loss, need) and not reads(loss, names):
            raise BrokenError(f"{need} is true, and nothing changes with {' and '.join(names)}")


def reads(loss: Loss, names: Sequence[str], *, in_terms: bool = False) -> bool:
    """Whether anything that the loss says depends on one of the fields; `in_terms`: a term or a gradient."""

    def moved(_: int, token: Token) -> Token:
        # Each by another amount: a loss of their difference must notice too.
        return dataclasses.replace(token, **{name: getattr(token, name) - 0.5 * n for n, name in enumerate(names, 1)})

    def unmoved(given: Loss, case: Case) -> None:
        now, before = measure(given, case.changed(moved)), measure(given, case)
        kept = [name for name in before if not in_terms or name.startswith(("term ", "gradient "))]
        ours, theirs = ({name: said[name] for name in kept} for said in (now, before))
        compare(ours, theirs, range(len(case.tokens)), "", "")

    return any(broken_by(unmoved, loss, case) for case in cases())


def nan_shows(loss: Loss) -> None:
    """In those of the fields that a term depends on."""
    names = [name for name in ALWAYS_SHOWN if reads(loss, [name], in_terms=True)]
    over(partial(_shows, names=names))(loss)


def _shows(loss: Loss, case: Case, names: Sequence[str]) -> None:
    """Where a field is NaN, so is the token's term: what is hidden trains on with a wrong mean.

    On fresh data, where no bound on the ratio leaves a token out.
    """
    fresh = case.fresh()
    for place in range(len(fresh.tokens)):
        for name in names:
            said = measure(loss, _with_nan(fresh, place, name))
            terms = [values[place] for key, values in said.items() if key.startswith("term ")]
            if all(value.isfinite() for value in terms):
                raise BrokenError(f"with NaN in {name} of token {place} its terms are {[f'{v:.6g}' for v in terms]}")


def _with_nan(case: Case, place: int, name: str) -> Case:
    numbers = iter(range(len(case.tokens)))
    return case.changed(
        lambda _, token: dataclasses.replace(token, **{name: math.nan}) if next(numbers) == place else token
    )
