"""A reinforcement-learning stage as its user states it; `preset = "NAME"` fills what is not stated (`run/presets.py`).

Options that contradict one another are refused when the configuration is read. Nothing is loaded or started here.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict

from posttrain.core.rules import Action, Rule
from posttrain.learn.samples import Reduction, SilentGroups, Truncated
from posttrain.run.collapse import QUARANTINE_METRICS, with_defaults
from posttrain.run.presets import contradictions

STRICT = ConfigDict(extra="forbid")
Component = dict[str, Any]


@dataclass(frozen=True)
class KLConfig:
    """A pull towards the reference: the policy as the stage began, or as it was last refreshed."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    coefficient: float = 0.01
    estimator: Literal["k1", "k2", "k3"] = "k3"
    place: Literal["loss", "reward"] = "loss"
    target: float = 0.0
    """Nats a token that the coefficient is steered to, up or down by at most `max_change` a step; 0: it is fixed."""
    max_change: float = 0.1
    refresh_every_steps: int = 0
    """The reference becomes the present policy; 0: never."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "coefficient", "target", "max_change", "refresh_every_steps")


@dataclass(frozen=True)
class EntropyConfig:
    """A reward for keeping several answers open."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    coefficient: float = 0.001
    target: float = 0.0
    """Nats a token that the bonus is steered to: it grows while the entropy is below; 0: it is fixed."""
    max_change: float = 0.1

    def __post_init__(self) -> None:
        _at_least(self, 0, "coefficient", "target", "max_change")


@dataclass(frozen=True)
class CriticConfig:
    """A learned value function on the policy's own hidden states."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    coefficient: float = 0.5
    clip: float = 0.2
    """How far a value may move from the one before the step's updates and still be pushed; 0: as far as it likes."""

    def __post_init__(self) -> None:
        _at_least(self, 0, "coefficient", "clip")


@dataclass(frozen=True)
class RlStage:
    """Reinforcement learning against the domains' verifiers."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["rl"]
    name: str = "rl"
    preset: str = ""
    """A published recipe whose options stand wherever the stage does not state its own."""
    steps: int = 100
    groups_per_step: int = 16
    group_size: int = 8
    max_staleness: int = 0
    """Steps that the oldest token of a sample may lag behind the trainer; 0 is the synchronous run."""
    temperature: float = 1.0
    refill_rounds: int = 0
    """Dynamic sampling: how often groups without signal are replaced by new ones before a step; 0: they stay."""
    truncated: Truncated = "keep"
    """Attempts that ran into a length limit: learn from them like from any other, leave them out, or lower the
    reward over the last tokens before the limit."""
    overlong_buffer_tokens: int = 0
    """How many, with `truncated = "penalise"`; 0: a fifth of the limit."""
    silent_groups: SilentGroups = "leave_out"
    """Groups in which every advantage is 0: not learned from, or kept in the mean and under KL and entropy."""
    loss: Component = field(default_factory=lambda: {"name": "clipped_policy_gradient"})
    advantage: Component = field(default_factory=lambda: {"name": "group_mean"})
    reduction: Reduction = "token_mean"
    fixed_length_tokens: int = 0
    """What `reduction = "fixed_length"` divides an attempt's sum by; 0: as many as its task allows."""
    kl: KLConfig | None = None
    entropy: EntropyConfig | None = None
    critic: CriticConfig | None = None
    updates_per_step: int = 1
    """A step's groups are learned from in so many updates of the same size."""
    epochs: int = 1
    """How often a step's groups are learned from."""
    max_update_kl: float = 0.0
    """Nats a token between the policy that sampled and the present one, at which a step's remaining updates are left
    out; 0: no limit."""
    rules: list[Rule] = field(default_factory=list)
    """Beside those for collapse that every run has (`run/collapse.py`); one of the same name replaces it."""
    max_roll_backs: int = 2
    """How often rules may send the stage back to a good checkpoint; the next time it stops."""
    optimizer: dict[str, Any] = field(default_factory=dict)
    evaluate: bool = True
    evaluate_every_steps: int = 0
    """Within the stage, on the same suite; 0: only at its end."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "steps", "groups_per_step", "group_size", "updates_per_step", "epochs")
        _at_least(self, 0, "max_staleness", "refill_rounds", "overlong_buffer_tokens", "fixed_length_tokens")
        _at_least(self, 0, "max_update_kl", "max_roll_backs", "evaluate_every_steps")
        if not math.isfinite(self.temperature):
            raise ValueError(f"temperature must be a finite number, not {self.temperature}")
        if self.temperature <= 0:
            raise ValueError("temperature 0 cannot be trained on: every group would be constant (law L16)")
        if self.updates_per_step > self.groups_per_step:
            raise ValueError(f"{self.groups_per_step} groups cannot make {self.updates_per_step} updates")
        for rule in self.rules:
            if rule.action is Action.QUARANTINE and not rule.metric.startswith(QUARANTINE_METRICS):
                raise ValueError(
                    f'rule {rule.name}: attempts are quarantined by a metric that counts them, "suspect/DOMAIN" or '
                    f'"detector/NAME/DOMAIN", not {rule.metric!r}'
                )
            if rule.action is Action.PAUSE and "/" not in rule.metric:
                raise ValueError(f"rule {rule.name}: a domain is paused by a metric that ends with its name")
        object.__setattr__(self, "rules", with_defaults(self.rules))  # so that the run's record shows what acts
        if found := contradictions(dataclasses.asdict(self)):
            raise ValueError("; ".join(found))

    @property
    def losses(self) -> list[Component]:
        """The components whose terms are added up."""
        losses = [self.loss]
        if self.kl is not None and self.kl.place == "loss":
            losses.append({"name": "kl_penalty", "coefficient": self.kl.coefficient, "estimator": self.kl.estimator})
        if self.entropy is not None:
            losses.append({"name": "entropy_bonus", "coefficient": self.entropy.coefficient})
        if self.critic is not None:
            losses.append({"name": "value", **dataclasses.asdict(self.critic)})
        return losses


def _at_least(config: object, least: int, *names: str) -> None:
    for name in names:
        if not getattr(config, name) >= least:
            raise ValueError(f"{name} must be at least {least}, not {getattr(config, name)}")
