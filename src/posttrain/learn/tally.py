"""What one rank saw of a step, in a form that can be added over micro-batches and ranks.

Means are taken once, over the step's loss tokens, after everything is added. Sums are float64 and are added in rank
order. It carries no tensors, so that it can travel between ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from torch import Tensor

from posttrain.core.types import Json
from posttrain.losses.base import Terms


@dataclass
class Tally:
    num_loss_tokens: int = 0
    num_computed_tokens: int = 0
    terms: dict[str, float] = field(default_factory=dict)
    """Name → Σ loss weight · term / the step's global weight: together they are the loss."""
    sums: dict[str, float] = field(default_factory=dict)
    maxima: dict[str, float] = field(default_factory=dict)
    non_finite: list[str] = field(default_factory=list)
    """Ids of samples whose terms were NaN or infinite."""

    def add(self, terms: Terms, shares: Tensor, num_computed_tokens: int) -> None:
        """One micro-batch; `shares` [N] are the tokens' loss weights over the global weight."""
        self.num_loss_tokens += len(shares)
        self.num_computed_tokens += num_computed_tokens
        for name, values in terms.terms.items():
            self.terms[name] = self.terms.get(name, 0.0) + float((values.detach() * shares).double().sum())
        for name, values in terms.metrics.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(values.double().sum())
        for name, values in terms.maxima.items():
            self.maxima[name] = max(self.maxima.get(name, -float("inf")), float(values.max()))

    @property
    def loss(self) -> float:
        return sum(self.terms.values())

    def values(self) -> dict[str, float]:
        means = {name: total / self.num_loss_tokens for name, total in self.sums.items()}
        return {**self.terms, **means, **self.maxima}

    def plain(self) -> Json:
        return asdict(self)

    @classmethod
    def merged(cls, parts: Sequence[Json]) -> Tally:
        """Of all ranks, in rank order, from what `plain` gave."""
        result = cls()
        for part in (cls(**plain) for plain in parts):
            result.num_loss_tokens += part.num_loss_tokens
            result.num_computed_tokens += part.num_computed_tokens
            result.non_finite += part.non_finite
            for mine, theirs in ((result.terms, part.terms), (result.sums, part.sums)):
                for name, value in theirs.items():
                    mine[name] = mine.get(name, 0.0) + value
            for name, value in part.maxima.items():
                result.maxima[name] = max(result.maxima.get(name, -float("inf")), value)
        return result
