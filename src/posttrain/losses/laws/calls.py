"""Laws about one call: its form, its purity, no tokens (L4), and numbers at the edge of what training meets."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from posttrain.losses.base import Loss, LossInputs, Terms
from posttrain.losses.laws.case import REFERENCE, SIMPLEST, Case, Token
from posttrain.losses.laws.measure import BrokenError, all_of, compare, measure

SHAPES_WITHOUT_TOKENS = ((), (0,), (0, 0, 0), (1, 0), (2, 0, 1, 0))

LOGPROBS = (-1.0, 0.0, -1e4)
LOG_RATIOS = (0.0, 20.0, -20.0)
ADVANTAGES = (0.0, -10.0, 10.0)
LENGTHS = (1, 2, 8)
"""A long sample's ratio, as one action, is beyond float32."""


def form(loss: Loss, case: Case) -> None:
    for name in ("needs_reference", "needs_critic"):
        if not isinstance(getattr(loss, name, None), bool):
            raise BrokenError(f"{name} is {getattr(loss, name, 'missing')!r} and not true or false")
    given, _ = case.inputs()
    out: object = loss(given)
    if not isinstance(out, Terms):
        raise BrokenError(f"it returns a {type(out).__name__} and not posttrain.losses.base.Terms")
    if not out.terms:
        raise BrokenError("it returns no term")
    for name, value in all_of(out).items():
        if not isinstance(value, Tensor) or value.shape != given.segments.shape:
            shape = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise BrokenError(f"{name} is {shape} and not [{len(case.tokens)}]: the trainer reduces, a loss does not")
        if name.startswith("term ") and value.dtype != given.advantages.dtype:
            raise BrokenError(f"{name} is of {value.dtype} and the inputs of {given.advantages.dtype}")
        if name.startswith("term ") != value.requires_grad:
            raise BrokenError(f"{name} carries {'a' if value.requires_grad else 'no'} gradient")


def pure(loss: Loss, case: Case) -> None:
    """Called twice with something else between, on inputs that must stay what they were."""
    given, _ = case.inputs()
    before = {name: value.clone() for name, value in _tensors(given)}
    states = _random_states()
    first = {name: value.detach().clone() for name, value in all_of(loss(given)).items()}
    if states != _random_states():
        raise BrokenError("it draws random numbers")
    for name, value in _tensors(given):
        if not torch.equal(value, before[name]):
            raise BrokenError(f"it changes {name} in place, from {before[name].tolist()} to {value.tolist()}")
    loss(Case(((SIMPLEST,),)).inputs()[0])
    again = {name: value.detach() for name, value in all_of(loss(given)).items()}
    compare(again, first, range(len(case.tokens)), "the second time", "the first time")


def _tensors(given: LossInputs) -> Iterator[tuple[str, Tensor]]:
    for field in dataclasses.fields(given):
        value = getattr(given, field.name)
        if isinstance(value, Tensor):
            yield field.name, value.detach()


def _random_states() -> tuple[object, ...]:
    numpys = np.random.get_state(legacy=False)  # the global one, which a loss might draw from
    return torch.get_rng_state().tolist(), random.getstate(), str(numpys)


def empty_cases() -> Iterator[Case]:
    for shape in SHAPES_WITHOUT_TOKENS:
        yield Case(tuple((dataclasses.replace(SIMPLEST, advantages=1.0),) * length for length in shape))


def empty(loss: Loss, case: Case) -> None:
    """Samples without tokens add nothing; no tokens at all give no terms and no gradient."""
    rest = [s for s, sample in enumerate(case.samples) if sample]
    whole = measure(loss, case)
    for name, values in whole.items():
        if not values.isfinite().all():
            raise BrokenError(f"{name} is {values.tolist()}")
    if rest:
        compare(measure(loss, case.chosen(rest)), whole, case.places(rest), "without the empty samples", "with them")


def extreme_cases() -> Iterator[Case]:
    for length, logprob, advantage in itertools.product(LENGTHS, LOGPROBS, ADVANTAGES):
        for log_ratio, log_reference in itertools.product(LOG_RATIOS, LOG_RATIOS):
            token = Token(
                trainer_logprobs=logprob,
                behavior_logprobs=logprob - log_ratio,
                advantages=advantage,
                reference_logprobs=logprob - log_reference,
                values=advantage,
                returns=-advantage,
            )
            yield Case(((token,) * length,))


def finite(loss: Loss, case: Case) -> None:
    """In float32, which most learners compute losses in."""
    apart = [case.column("trainer_logprobs") - case.column(name) for name in ("behavior_logprobs", *REFERENCE)]
    if torch.stack(apart).abs().max() > max(LOG_RATIOS):
        return  # a simpler case, beyond what the law promises
    for name, values in measure(loss, case, dtype=torch.float32).items():
        bad = values[~values.isfinite()]
        if len(bad):
            raise BrokenError(f"{name} is {bad[0]:.6g} in float32")
