"""One input of a loss as plain numbers: small, printable, and simpler ones beside it.

Most numbers are small integers, so that what breaks a law can be read and typed again. It calls no loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from posttrain.core.seeding import stable_random
from posttrain.losses.base import LossInputs

DIFFERENTIATED = ("trainer_logprobs", "entropy", "values")
REFERENCE = ("reference_logprobs",)
CRITIC = ("values", "old_values", "returns")
ALWAYS_SHOWN = ("trainer_logprobs", "behavior_logprobs", "advantages")


@dataclass(frozen=True)
class Token:
    """One number of each field of `LossInputs`; the defaults are the simplest ones."""

    trainer_logprobs: float = -1.0
    behavior_logprobs: float = -1.0
    advantages: float = 0.0
    reference_logprobs: float = -1.0
    entropy: float = 1.0
    values: float = 0.0
    old_values: float = 0.0
    returns: float = 0.0
    loss_weights: float = 1.0
    """Not the loss's to see: what the trainer weighs its terms with."""


SIMPLEST = Token()
FIELDS = tuple(field.name for field in dataclasses.fields(Token) if field.name != "loss_weights")


@dataclass(frozen=True)
class Case:
    samples: tuple[tuple[Token, ...], ...]

    @property
    def tokens(self) -> list[Token]:
        return [token for sample in self.samples for token in sample]

    def column(self, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
        """`[N]` of a field of `Token`."""
        return torch.tensor([getattr(token, name) for token in self.tokens], dtype=dtype)

    def places(self, segments: Sequence[int]) -> list[int]:
        """Where the tokens of the named samples stand, in the order of the names."""
        ends = [sum(map(len, self.samples[: number + 1])) for number in range(len(self.samples))]
        return [place for s in segments for place in range(ends[s] - len(self.samples[s]), ends[s])]

    def chosen(self, segments: Sequence[int]) -> Case:
        return Case(tuple(self.samples[segment] for segment in segments))

    def changed(self, change: Callable[[int, Token], Token]) -> Case:
        """`change` is given the number of each token's sample, and the token."""
        return Case(tuple(tuple(change(s, token) for token in sample) for s, sample in enumerate(self.samples)))

    def filled(self, names: Sequence[str], value: float) -> Case:
        return self.changed(lambda _, token: dataclasses.replace(token, **dict.fromkeys(names, value)))

    def fresh(self) -> Case:
        """The same, sampled by the current policy."""
        return self.changed(lambda _, token: dataclasses.replace(token, behavior_logprobs=token.trainer_logprobs))

    def inputs(
        self, dtype: torch.dtype = torch.float64, without: Sequence[str] = ()
    ) -> tuple[LossInputs, dict[str, Tensor]]:
        """What the loss is given, and the leaves to differentiate by. Optional fields in `without` are None."""
        columns = {name: self.column(name, dtype) for name in FIELDS if name not in without}
        leaves = {name: columns[name].requires_grad_() for name in DIFFERENTIATED if name in columns}
        # As in training they are results of a computation, not leaves: autograd then permits changing them in place.
        columns |= {name: leaf.clone() for name, leaf in leaves.items()}
        segments = [number for number, sample in enumerate(self.samples) for _ in sample]
        given = LossInputs(
            segments=torch.tensor(segments, dtype=torch.int64),
            num_segments=len(self.samples),
            **columns,
        )
        return given, leaves

    def text(self) -> str:
        """Fields that are all at their simplest are left out, but for the three that every loss is given."""
        segments = [number for number, sample in enumerate(self.samples) for _ in sample]
        parts = [f"segments={segments}", f"num_segments={len(self.samples)}"]
        for name in (*FIELDS, "loss_weights"):
            column = [getattr(token, name) for token in self.tokens]
            if name in ALWAYS_SHOWN or any(value != getattr(SIMPLEST, name) for value in column):
                parts.append(f"{name}=[{', '.join(f'{value:.8g}' for value in column)}]")
        return ", ".join(parts)


SHAPES = ((1,), (1, 1), (2,), (2, 1), (1, 2), (3,), (1, 1, 1), (2, 2), (3, 0, 2))
"""Tokens of each sample, the smallest first."""
UNITS = (1.0, 1.0, 1e-4)
"""Of differences between log-probs, once per case of a shape: the smallest unit stays within every clip."""


def cases() -> Iterator[Case]:
    """From one token upwards, the same ones every time."""
    for shape in SHAPES:
        for draw, unit in enumerate(UNITS):
            yield Case(tuple(tuple(_token(unit, shape, draw, s, t) for t in range(n)) for s, n in enumerate(shape)))


def _token(unit: float, shape: tuple[int, ...], *place: int) -> Token:
    draw = stable_random("loss laws", str(shape), *place)
    logprob = -float(draw.randint(2, 4))
    return Token(
        trainer_logprobs=logprob,
        behavior_logprobs=logprob + unit * draw.randint(-2, 2),
        advantages=float(draw.randint(-2, 2)),
        reference_logprobs=logprob + unit * draw.randint(-2, 2),
        entropy=float(draw.randint(0, 2)),
        values=float(draw.randint(-2, 2)),
        old_values=float(draw.randint(-2, 2)),
        returns=float(draw.randint(-2, 2)),
        loss_weights=float(draw.randint(1, 3)),
    )


def simpler(case: Case) -> Iterator[Case]:
    """Cases with a token, a sample without tokens or a number less: any chain of them ends."""
    for s, sample in enumerate(case.samples):
        rest = case.samples[:s], case.samples[s + 1 :]
        if not sample:
            yield Case(rest[0] + rest[1])
        for t in range(len(sample)):
            shorter = sample[:t] + sample[t + 1 :]
            if len(case.tokens) > 1:
                yield Case((*rest[0], *([shorter] if shorter else []), *rest[1]))
    names = (*FIELDS, "loss_weights")
    for name in names:
        if (whole := case.filled([name], getattr(SIMPLEST, name))) != case:
            yield whole
    for s, sample in enumerate(case.samples):
        for t, token in enumerate(sample):
            for name in names:
                one = dataclasses.replace(token, **{name: getattr(SIMPLEST, name)})
                if one != token:
                    yield Case((*case.samples[:s], (*sample[:t], one, *sample[t + 1 :]), *case.samples[s + 1 :]))
