"""A run as its user states it: frozen dataclasses whose fields are the options, filled from TOML.

`load` reads a file and applies overrides; unknown keys are refused with the closest known one. Component options
(`loss`, `engine` …) are checked by the component itself when it is built. Nothing is loaded or started here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from posttrain.fleet.local import Placement
from posttrain.gate.evaluate import EvaluationOptions

STRICT = ConfigDict(extra="forbid")
Component = dict[str, Any]


@dataclass(frozen=True)
class DomainConfig:
    """One domain of the mixture."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    level: int | list[int] = 1
    """Difficulty, from 1 to the domain's number of levels; several take turns."""
    weight: float = 1.0
    """Share of the mixture, relative to the other domains'."""
    source: str = ""
    """A registered name or `path/to/file.py:Object`; empty: the table's own name."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def levels(self) -> tuple[int, ...]:
        return (self.level,) if isinstance(self.level, int) else tuple(self.level)

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError("level needs at least one number")


@dataclass(frozen=True)
class EngineConfig:
    """Where tokens come from."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str = "torch"
    processes: int = 2
    """Engine processes; 0: inside the driver."""
    num_threads: int = 1
    """Each."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def placement(self) -> Placement:
        return Placement(self.processes, self.num_threads)


@dataclass(frozen=True)
class LearnerConfig:
    """Where the weights are updated."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    processes: int = 2
    """Data-parallel ranks; 0: inside the driver."""
    num_threads: int = 1
    dtype: Literal["bfloat16", "float32", "float64"] = "bfloat16"
    """Of the model's arithmetic, the engine's too; master weights and optimizer are at least float32."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def placement(self) -> Placement:
        return Placement(self.processes, self.num_threads)


@dataclass(frozen=True)
class CheckpointConfig:
    """How often a run can be picked up again."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    every_steps: int = 20
    """0: only at the end of each stage."""
    keep: int = 2

    def __post_init__(self) -> None:
        if self.every_steps < 0 or self.keep < 1:
            raise ValueError("every_steps must be at least 0 and keep at least 1")


@dataclass(frozen=True)
class PlateauConfig:
    """A stage stops when its validation loss no longer falls: stated before it begins."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    every_steps: int = 5
    patience: int = 2
    """Measurements in a row that may fail to improve on the best by `min_improvement`."""
    min_improvement: float = 0.01
    """Relative."""
    validation_demonstrations: int = 64
    """Held out from training, over all domains."""


@dataclass(frozen=True)
class SftStage:
    """Supervised fine-tuning on the domains' demonstrations."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["sft"]
    name: str = "sft"
    max_steps: int = 100
    demonstrations: int = 256
    """Distinct demonstrations in each domain; epochs run over them in an order keyed by the seed."""
    demonstrations_per_step: int = 32
    whole_text: bool = False
    """Learn the prompt's tokens too, as pre-training does."""
    plateau: PlateauConfig | None = None
    loss: Component = field(default_factory=lambda: {"name": "supervised"})
    optimizer: dict[str, Any] = field(default_factory=dict)
    evaluate: bool = True

    def __post_init__(self) -> None:
        _at_least_one(self, "max_steps", "demonstrations", "demonstrations_per_step")


@dataclass(frozen=True)
class RlStage:
    """Reinforcement learning against the domains' verifiers."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["rl"]
    name: str = "rl"
    steps: int = 100
    groups_per_step: int = 16
    group_size: int = 8
    max_staleness: int = 0
    """Steps that the oldest token of a sample may lag behind the trainer; 0 is the synchronous run."""
    temperature: float = 1.0
    truncated: Literal["keep", "mask"] = "keep"
    """Completions that ran into a length limit: learn from them like from any other, or leave them out."""
    loss: Component = field(default_factory=lambda: {"name": "clipped_policy_gradient"})
    advantage: Component = field(default_factory=lambda: {"name": "group_mean"})
    optimizer: dict[str, Any] = field(default_factory=dict)
    evaluate: bool = True

    def __post_init__(self) -> None:
        _at_least_one(self, "steps", "groups_per_step", "group_size")
        if self.temperature <= 0:
            raise ValueError("temperature 0 cannot be trained on: every group would be constant (law L16)")
        if self.max_staleness < 0:
            raise ValueError("max_staleness must be at least 0")


Stage = Annotated[SftStage | RlStage, Field(discriminator="kind")]


@dataclass(frozen=True)
class RunConfig:
    """A whole run."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model: str
    """A built-in name (`posttrain models list`), a local Hugging Face folder or a hub id."""
    domains: dict[str, DomainConfig]
    stages: list[Stage]
    seed: int = 0
    system_prompt: str | None = None
    """Put before every prompt that has no system message; absent: what the model's chat template does by itself."""
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    evaluate_base: bool = True
    engine: EngineConfig = field(default_factory=EngineConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    sandbox: Component = field(default_factory=lambda: {"name": "local"})

    def __post_init__(self) -> None:
        if not self.domains:
            raise ValueError("a run needs at least one domain: [domains.NAME]")
        if not self.stages:
            raise ValueError('a run needs at least one stage: [[stages]] with kind = "sft" or "rl"')
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names) or "base" in names:
            raise ValueError(f"stage names must differ from one another and from 'base', not {names}")
        sampling = self.engine.options.get("dtype", self.learner.dtype)
        if sampling != self.learner.dtype:
            raise ValueError(
                f"the engine's dtype is {sampling} and the learner's {self.learner.dtype}, so published weights would "
                "not arrive as they are: set learner.dtype alone, it holds for both"
            )


def _at_least_one(stage: SftStage | RlStage, *names: str) -> None:
    for name in names:
        if getattr(stage, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {getattr(stage, name)}")
