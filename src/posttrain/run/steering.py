"""What follows a measurement from step to step: weights of KL, entropy bonus and parts of rewards, the learning rate.

Pure: the next state depends on the last one and on what the step measured, so a resumed run goes on with the same
numbers (law L21). It changes no weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from posttrain.core.protocols import StepControls
from posttrain.run.rl_stage import RlStage

SMALLEST, LARGEST = 1e-3, 1e3
"""Between these the factors of KL and entropy stay."""

_PREFIX = "factor/"


@dataclass(frozen=True)
class Steering:
    """Factors on what the configuration states."""

    kl: float = 1.0
    entropy: float = 1.0
    learning_rate: float = 1.0
    parts: Mapping[str, float] = field(default_factory=dict)
    """Of parts of the reward, by DOMAIN/PART: those that a rule has lowered."""

    def after(self, values: Mapping[str, float], stage: RlStage) -> Steering:
        """Towards the targets, given a step's record. Proportional control with a bounded step, as for the KL in
        Ziegler et al., arXiv:1909.08593, section 2.2; for entropy its mirror image: a bonus falls away above its
        target and grows below it (He et al., arXiv:2505.22312, section 4)."""
        kl, entropy = self.kl, self.entropy
        if stage.kl is not None and stage.kl.target and "kl" in values:
            kl = _moved(kl, values["kl"] / stage.kl.target - 1.0, stage.kl.max_change)
        if stage.entropy is not None and stage.entropy.target and "entropy" in values:
            entropy = _moved(entropy, 1.0 - values["entropy"] / stage.entropy.target, stage.entropy.max_change)
        return dataclasses.replace(self, kl=kl, entropy=entropy)

    def values(self) -> dict[str, float]:
        """For the step's record: the factors that this step learned with, where they are not 1."""
        factors = {"kl": self.kl, "entropy": self.entropy, "learning_rate": self.learning_rate, **self.parts}
        return {f"{_PREFIX}{name}": value for name, value in factors.items() if value != 1.0}

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Steering:
        """Read back from a step's record."""
        factors = {name.removeprefix(_PREFIX): value for name, value in values.items() if name.startswith(_PREFIX)}
        parts = {name: value for name, value in factors.items() if "/" in name}
        return cls(parts=parts, **{name: factors.get(name, 1.0) for name in ("kl", "entropy", "learning_rate")})

    def controls(self, stage: RlStage, *, further_update: bool) -> StepControls:
        factors: dict[str, float] = {}
        if stage.kl is not None and stage.kl.place == "loss":
            factors["kl_penalty"] = self.kl
        if stage.entropy is not None:
            factors["entropy_bonus"] = self.entropy
        return StepControls(self.learning_rate, factors, further_update)

    def kl_in_reward(self, stage: RlStage) -> float:
        """The coefficient of the KL in the reward; 0 where it is not there."""
        return stage.kl.coefficient * self.kl if stage.kl is not None and stage.kl.place == "reward" else 0.0


NEUTRAL = Steering()


def _moved(factor: float, error: float, max_change: float) -> float:
    return min(LARGEST, max(SMALLEST, factor * (1.0 + min(max(error, -max_change), max_change))))
