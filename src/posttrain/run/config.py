"""A run as its user states it: frozen dataclasses whose fields are the options, filled from TOML.

`load` reads a file and applies overrides; unknown keys are refused with the closest known one. Component options
(`loss`, `engine` …) are checked by the component itself when it is built. Nothing is loaded or started here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from posttrain.core.processor import faster_dtype
from posttrain.fleet.local import Placement
from posttrain.gate.evaluate import EvaluationOptions
from posttrain.learn.lora_config import LoraConfig
from posttrain.rewards.spec import RewardSpec
from posttrain.run.part_rules import misdirected
from posttrain.run.rl_stage import RlStage

STRICT = ConfigDict(extra="forbid")
Component = dict[str, Any]


@dataclass(frozen=True)
class HeldOutConfig:
    """A second, independent verifier of a domain. It never enters the reward: what is trained against wears out."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    verifier: Component
    """Its name and options."""
    gold: str = "answer"
    """Which entry of a task's hidden data it compares with."""


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
    held_out: HeldOutConfig | None = None
    """Absent: nothing judges the verifier while the run goes on but people (`posttrain review`)."""
    precision_floor: float = 0.9
    """Share of the attempts that the verifier calls correct which must be: below it, by people's labels and beyond
    doubt, the domain is paused."""
    reward: RewardSpec | None = None
    """What differs from the run's `reward`, laid over it key by key; absent: the run's as it is."""

    @property
    def levels(self) -> tuple[int, ...]:
        return (self.level,) if isinstance(self.level, int) else tuple(self.level)

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError("level needs at least one number")
        if not (math.isfinite(self.weight) and self.weight > 0.0):
            raise ValueError(f"weight must be above 0, not {self.weight}: leave the domain out instead")
        if not 0.0 <= self.precision_floor <= 1.0:
            raise ValueError(f"precision_floor must lie in [0, 1], not {self.precision_floor}")


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
    dtype: Literal["bfloat16", "float32", "float64"] = field(default_factory=faster_dtype)
    """Of the model's arithmetic, the engine's too; master weights and optimizer are at least float32. If not given:
    bfloat16 where this processor multiplies it in hardware, else float32; a run keeps what it began with."""
    lora: LoraConfig | None = None
    """Absent: all weights are trained; `{}`: adapters on every linear layer of the blocks."""
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
    """Held out from training, over all sources."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "every_steps", "patience", "validation_demonstrations")


@dataclass(frozen=True)
class SftStage:
    """Supervised fine-tuning: on the domains' demonstrations, on rows of files, on the policy's own verified attempts.

    Evaluation tasks are kept out of what the domains give (law L30); what a file holds cannot be compared with them.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["sft"]
    name: str = "sft"
    max_steps: int = 100
    source: Literal["domains", "self"] = "domains"
    """Who answers the domains' training tasks. "self" is rejection sampling: before its first step the stage samples
    `attempts` replies a task at temperature 1, and a task's best verified one (highest score, then fewest tokens) is
    its demonstration, trained on the sampled ids (law L11). Tasks without a correct, finished reply are left out."""
    demonstrations: int = 256
    """Distinct training tasks of each domain, 0: `data` alone; epochs run over all rows in orders keyed by the seed."""
    attempts: int = 8
    """Of each task with `source = "self"`."""
    demonstrations_per_step: int = 32
    """Rows of one step, whatever they come from."""
    data: list[str] = field(default_factory=list)
    """JSONL and Parquet files, or globs of them, relative to the working directory: rows `{"messages": …}`, or
    `{"prompt": …, "completion": …}` (`store/sft_rows.py`). Every assistant turn of `messages` is learned, its stop
    token included. A resumed run refuses rows that have changed."""
    max_bad_share: float = 0.01
    """The stage does not begin where more of the rows in `data` than this share cannot be used. One that is longer
    than the model's context cannot: nothing is cut."""
    prompt_loss_weight: float = 0.0
    """Of a token that the assistant did not write, beside 1 for one that it did. 0: those are not learned; 1: the whole
    text is, as in pre-training. The loss is the mean under these weights."""
    validation: int = 0
    """Rows held out from training, over all sources, for the validation loss; a plateau rule has its own."""
    validate_every_steps: int = 0
    """0: after the last step alone."""
    plateau: PlateauConfig | None = None
    loss: Component = field(default_factory=lambda: {"name": "supervised"})
    optimizer: dict[str, Any] = field(default_factory=dict)
    evaluate: bool = True
    """Score the policy on the fixed suite when the stage has ended."""
    evaluate_every_steps: int = 0
    """Score it during the stage too; 0: only when it has ended."""

    def __post_init__(self) -> None:
        _at_least(self, 1, "max_steps", "demonstrations_per_step", "attempts")
        _at_least(self, 0, "demonstrations", "validation", "validate_every_steps", "evaluate_every_steps")
        if self.demonstrations == 0 and self.source == "self":
            raise ValueError('source = "self" needs tasks to sample: demonstrations must be at least 1')
        if self.demonstrations == 0 and not self.data:
            raise ValueError(
                "demonstrations = 0 leaves nothing to learn from: give data, or demonstrations = 1 or more"
            )
        for name in ("max_bad_share", "prompt_loss_weight"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must lie in [0, 1], not {getattr(self, name)}")
        if self.plateau is not None and (self.validation or self.validate_every_steps):
            raise ValueError(
                "a plateau rule states its own validation: set plateau.validation_demonstrations and "
                "plateau.every_steps instead of validation and validate_every_steps"
            )
        if self.validate_every_steps and not self.validation:
            raise ValueError("validate_every_steps needs rows to validate on: validation = …")

    @property
    def num_validation(self) -> int:
        """Rows held out from training, over all sources."""
        return self.plateau.validation_demonstrations if self.plateau is not None else self.validation

    def validates_after(self, step: int) -> bool:
        """Whether the validation loss is measured after step number `step`, counted from 1."""
        if self.plateau is not None:
            return step % self.plateau.every_steps == 0
        if not self.validation:
            return False
        return step == self.max_steps or (self.validate_every_steps > 0 and step % self.validate_every_steps == 0)

    def evaluates_after(self, step: int) -> bool:
        """Whether the fixed suite is scored after step number `step`, besides the stage's end."""
        return self.evaluate_every_steps > 0 and step % self.evaluate_every_steps == 0 and step < self.max_steps


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
    reward: RewardSpec = field(default_factory=RewardSpec)
    """What verdicts are worth in every domain that does not say otherwise."""

    def reward_of(self, domain: str) -> RewardSpec:
        own = self.domains[domain].reward
        return self.reward if own is None else own

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
        rewards = {name: self.reward_of(name) for name in self.domains}
        rules = [rule for stage in self.stages if isinstance(stage, RlStage) for rule in stage.rules]
        if found := misdirected(rules, rewards):
            raise ValueError("; ".join(found))


def _at_least(options: SftStage | PlateauConfig, least: int, *names: str) -> None:
    for name in names:
        if getattr(options, name) < least:
            raise ValueError(f"{name} must be at least {least}, not {getattr(options, name)}")
