"""Builders that the tests of losses and the laws about them share: inputs at stated ratios, random inputs, slopes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from posttrain.core import registry
from posttrain.losses.base import Loss, LossInputs, Terms

VOCABULARY = 5
CONSTANTS = ("behavior_logprobs", "advantages", "reference_logprobs", "old_values", "returns")
DIFFERENTIATED = ("trainer_logprobs", "entropy", "values")


def tensor(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def inputs(ratios: Sequence[float], advantages: Sequence[float], **fields: Any) -> LossInputs:
    """Tokens of one sample, each at log-prob −2 of the current policy and at the given ratio to the behaviour."""
    trainer = torch.full((len(ratios),), -2.0, dtype=torch.float64, requires_grad=True)
    default: dict[str, Any] = {"segments": torch.zeros(len(ratios), dtype=torch.int64), "num_segments": 1}
    behavior = trainer.detach() - tensor(ratios).log()
    return LossInputs(trainer, behavior, tensor(advantages), **{**default, **fields})


def random_inputs(lengths: Sequence[int], seed: int = 0, *, spread: float = 0.5) -> LossInputs:
    """Samples of the given lengths with every field; log-ratios are about as large as `spread`."""
    draw = torch.Generator().manual_seed(seed)
    count = sum(lengths)

    def normal() -> Tensor:
        return torch.randn(count, generator=draw, dtype=torch.float64)

    trainer = -normal().exp()
    return LossInputs(
        trainer_logprobs=trainer.clone().requires_grad_(),
        behavior_logprobs=trainer - spread * normal(),
        advantages=normal(),
        segments=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64)),
        num_segments=len(lengths),
        reference_logprobs=trainer - spread * normal(),
        entropy=normal().exp().requires_grad_(),
        values=normal().requires_grad_(),
        old_values=normal(),
        returns=normal(),
    )


def total(terms: Terms, weights: Tensor | float = 1.0) -> Tensor:
    return torch.stack([(term * weights).sum() for term in terms.terms.values()]).sum()


def slopes(loss: Loss, given: LossInputs) -> list[float]:
    """Derivative of the sum of all terms by each token's log-prob of the current policy."""
    (gradient,) = torch.autograd.grad(total(loss(given)), given.trainer_logprobs)
    return [float(value) for value in gradient]


def gradients(loss: Loss, given: LossInputs, weights: Tensor | float = 1.0) -> dict[str, Tensor]:
    """Of the weighted sum of all terms, by each field that carries a gradient; 0 where it does not reach."""
    fields = {name: field for name in DIFFERENTIATED if (field := getattr(given, name)) is not None}
    found = torch.autograd.grad(total(loss(given), weights), list(fields.values()), allow_unused=True)
    zeros = torch.zeros_like(given.advantages)
    return {name: zeros if value is None else value for name, value in zip(fields, found, strict=True)}


def chosen(given: LossInputs, segments: Sequence[int]) -> LossInputs:
    """The named samples alone, in the given order, as inputs of their own."""
    places = torch.cat([torch.empty(0, dtype=torch.int64), *(torch.where(given.segments == s)[0] for s in segments)])
    lengths = torch.tensor([int((given.segments == s).sum()) for s in segments], dtype=torch.int64)
    picked: dict[str, Any] = {}
    for name in CONSTANTS + DIFFERENTIATED:
        if (field := getattr(given, name)) is not None:
            picked[name] = field.detach()[places].requires_grad_(name in DIFFERENTIATED)
    return LossInputs(
        segments=torch.repeat_interleave(torch.arange(len(segments)), lengths), num_segments=len(segments), **picked
    )


def replaced(given: LossInputs, **fields: Any) -> LossInputs:
    return dataclasses.replace(given, **fields)


def registered_losses() -> list[str]:
    return registry.names("loss")


def policy_losses() -> list[str]:
    """Registered losses that push the policy by advantages: those with a term `policy_loss`."""
    return [
        name for name in registered_losses() if "policy_loss" in registry.build("loss", name)(inputs_of_one()).terms
    ]


def inputs_of_one() -> LossInputs:
    return random_inputs([1])


LENGTHS = st.lists(st.integers(0, 4), min_size=1, max_size=5)
"""Of samples; some have no loss token."""
SEEDS = st.integers(0, 2**16)
