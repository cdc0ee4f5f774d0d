"""All that a loss says of a case, under one name each: terms, metrics, maxima, and the gradient of the weighted sum.

What is compared is compared in float64, so that only sums in another order may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from posttrain.losses.base import Loss, Terms
from posttrain.losses.laws.case import Case

RELATIVE, ABSOLUTE = 1e-9, 1e-12

Said = Mapping[str, Tensor]
"""Each `[N]` and detached."""


class BrokenError(Exception):
    """How a law is broken, as a sentence."""

    def __init__(self, sentence: str, smallest_input: str = "") -> None:
        super().__init__(sentence)
        self.smallest_input = smallest_input


def measure(loss: Loss, case: Case, *, dtype: torch.dtype = torch.float64, without: Sequence[str] = ()) -> Said:
    given, leaves = case.inputs(dtype, without)
    out = loss(given)
    said = all_of(out)
    for name, values in said.items():
        if values.shape != (len(case.tokens),):
            raise BrokenError(f"{name} is of shape {list(values.shape)} and not one value for each of the tokens")
    return {**{name: values.detach() for name, values in said.items()}, **_gradients(out, case, leaves)}


def all_of(out: Terms) -> dict[str, Tensor]:
    """Terms, metrics and maxima, each name with its kind before it."""
    kinds = (("term", out.terms), ("metric", out.metrics), ("maximum", out.maxima))
    return {f"{kind} {name}": value for kind, values in kinds for name, value in values.items()}


def gradient_by(field: str) -> str:
    """The name of a gradient in what `measure` returns."""
    return f"gradient by {field}"


def _gradients(out: Terms, case: Case, leaves: Mapping[str, Tensor]) -> dict[str, Tensor]:
    weighted = [term * case.column("loss_weights", term.dtype) for term in out.terms.values() if term.requires_grad]
    zeros = torch.zeros(len(case.tokens), dtype=torch.float64)
    found: Sequence[Tensor | None] = [None] * len(leaves)
    if weighted:
        found = torch.autograd.grad(torch.stack(weighted).sum(), list(leaves.values()), allow_unused=True)
    return {gradient_by(field): zeros if g is None else g for field, g in zip(leaves, found, strict=True)}


def same(ours: Tensor, theirs: Tensor) -> bool:
    return torch.allclose(ours, theirs, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True)


def compare(ours: Said, theirs: Said, places: Sequence[int], when: str, otherwise: str) -> None:
    """`ours` against the `places` of `theirs`; the sentence is "… is 1 `when` and 2 `otherwise`"."""
    if ours.keys() != theirs.keys():
        raise BrokenError(f"there is {', '.join(ours)} {when}, and {', '.join(theirs)} {otherwise}")
    for name, values in ours.items():
        others = theirs[name][list(places)]
        if not same(values, others):
            token = next(t for t in range(len(values)) if not same(values[t], others[t]))
            raise BrokenError(
                f"{name} of token {places[token]} is {values[token]:.6g} {when} and {others[token]:.6g} {otherwise}"
            )
