"""What follows a measurement from step to step: the weight of the KL and of the entropy bonus, the learning rate.

Pure: the next state depends on the last one and on what the step measured, so a resumed run goes on with the same
numbers (law L21). It changes no weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from posttrain.core.protocols import StepControls
from posttrain.run.rl_stage import RlStage

SMALLEST, LARGEST = 1e-3, 1e3
"""Between these the factors stay."""


@dataclass(frozen=True)
class Steering:
    """Factors on what the configuration states."""

    kl: float = 1.0
    entropy: float = 1.0
    learning_rate: float = 1.0

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
        return {f"factor/{name}": value for name, value in dataclasses.asdict(self).items() if value != 1.0}

    @classmethod
    def of(cls, values: Mapping[str, float]) -> Steering:
        """Read back from a step's record."""
        return cls(**{field.name: values.get(f"factor/{field.name}", 1.0) for field in dataclasses.fields(cls)})

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
