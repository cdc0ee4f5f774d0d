"""A stage's losses, added up: named terms side by side, each with the factor that the step gives its loss.

It reduces nothing: the trainer weighs each token, sums, and divides once (law L2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from posttrain.core.errors import ConfigError
from posttrain.core.registry import build, unknown
from posttrain.core.types import Json
from posttrain.losses.base import Loss, LossInputs, Terms


@dataclass(frozen=True)
class Objective:
    losses: Mapping[str, Loss]
    """By name, in the order of the configuration."""

    @classmethod
    def build(cls, specs: Sequence[Mapping[str, Json]]) -> Objective:
        """Raises `ConfigError` for none, or for one named twice, and what `core.registry.build` raises."""
        names = [str(spec.get("name")) for spec in specs]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"a stage needs losses that differ from one another, not {names}")
        return cls({name: build("loss", spec) for name, spec in zip(names, specs, strict=True)})

    @property
    def needs_reference(self) -> bool:
        return any(loss.needs_reference for loss in self.losses.values())

    @property
    def needs_critic(self) -> bool:
        return any(loss.needs_critic for loss in self.losses.values())

    def check_factors(self, factors: Mapping[str, float]) -> None:
        """Raises `ConfigError` for a factor of a loss that the stage does not have."""
        for name in factors:
            if name not in self.losses:
                raise ConfigError(unknown("loss of this stage", name, self.losses))

    def terms(self, inputs: LossInputs, factors: Mapping[str, float]) -> Terms:
        """Raises `ConfigError` where two losses name a term alike."""
        terms: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        maxima: dict[str, Tensor] = {}
        for name, loss in self.losses.items():
            found = loss(inputs)
            if terms.keys() & found.terms.keys():
                raise ConfigError(f"loss {name} has a term of the same name as another: {sorted(found.terms)}")
            factor = factors.get(name, 1.0)
            terms |= {term: values if factor == 1.0 else factor * values for term, values in found.terms.items()}
            metrics |= found.metrics
            maxima |= found.maxima
        if inputs.entropy is not None:
            metrics["entropy"] = inputs.entropy.detach()
        return Terms(terms, metrics, maxima)
