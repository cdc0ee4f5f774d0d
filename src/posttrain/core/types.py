"""The records that travel between rooms: from a task to a scored group to rows to learn from.

All are frozen. Arrays are numpy and are not to be written to after construction. Axis letters (`T` tokens of one
sample, `G` siblings, `K` turns) are explained in `docs/notation.md`. Nothing here computes a reward, talks to a
model or touches a disk.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

SCHEMA_VERSION = 2
"""Written into every stored file; raised when a reader of the old files would go wrong."""

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]

Json = Any
"""Plain data: None, bool, int, float, str, and lists and string-keyed mappings of them."""


class Split(enum.StrEnum):
    """Which stream a task belongs to; the two never share content (law L30)."""

    TRAIN = "train"
    EVAL = "eval"


class Role(enum.StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True)
class Message:
    """One message as people read it; `rollout/render.py` alone turns messages into tokens."""

    role: Role
    content: str


@dataclass(frozen=True)
class Limits:
    """What one attempt at a task may use."""

    max_new_tokens: int = 64
    """Sampled tokens per turn."""
    max_turns: int = 1
    timeout_s: float = 60.0
    """Wall time of the environment's and verifier's own work, not of sampling."""


@dataclass(frozen=True)
class Task:
    """One problem. Two tasks with the same content have the same `task_id`, whatever their split or index."""

    domain: str
    prompt: tuple[Message, ...]
    hidden: Mapping[str, Json]
    """What the verifier needs and the policy never sees: plain data."""
    split: Split
    seed: int
    index: int
    level: int
    limits: Limits = field(default_factory=Limits)
    content_key: str = ""
    """Canonical form of the problem (operands sorted, say); empty: the prompt itself. Tasks that are the same
    problem in other words carry the same key, so that overlap is judged on content."""

    @cached_property
    def task_id(self) -> str:
        """128-bit content hash, hexadecimal, of domain and content (not of split, seed or index)."""
        content = self.content_key or json.dumps([[m.role, m.content] for m in self.prompt])
        return hashlib.blake2b(f"{self.domain}\0{content}".encode(), digest_size=16).hexdigest()


class StopReason(enum.StrEnum):
    """Why an attempt ended."""

    STOP = "stop"
    """The policy sampled a stop token in its last turn."""
    MAX_NEW_TOKENS = "max_new_tokens"
    MAX_TURNS = "max_turns"
    MAX_CONTEXT = "max_context"
    """The model's context was full."""
    ABORTED = "aborted"
    """Our side ended it: a failure is recorded beside it."""

    @property
    def truncated(self) -> bool:
        return self in (StopReason.MAX_NEW_TOKENS, StopReason.MAX_CONTEXT)


class Boundary(enum.StrEnum):
    """Where a failure of ours happened; never the candidate's own doing (law L23)."""

    ENGINE = "engine"
    SANDBOX = "sandbox"
    VERIFIER = "verifier"
    ENVIRONMENT = "environment"


@dataclass(frozen=True)
class Failure:
    """A failure as data: recorded once, attributed to the boundary it crossed; siblings go on."""

    boundary: Boundary
    reason: str


class VerdictStatus(enum.StrEnum):
    CORRECT = "correct"
    INCORRECT = "incorrect"
    NO_VERDICT = "no_verdict"


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one attempt (law L23: a failure of ours is NO_VERDICT, never a score)."""

    status: VerdictStatus
    score: float
    """In [0, 1]; of NO_VERDICT it is 0 and means nothing."""
    reason: str = ""
    answer: str | None = None
    """The final answer as it was read, for answer statistics; None where none was found."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Named scores beside the one, each in [0, 1]: what a reward may be composed of (`rewards/spec.py`)."""
    evidence: Mapping[str, Json] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    """Detectors that fired, such as "several_answers"."""
    verifier_version: str = ""
    isolation_tier: str | None = None
    """Which sandbox tier ran the candidate's code; None where nothing was executed."""
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:  # also refuses NaN
            raise ValueError(f"a verdict's score must lie in [0, 1], not {self.score}")
        for name, part in self.parts.items():
            if not 0.0 <= part <= 1.0:
                raise ValueError(f"a verdict's part {name!r} must lie in [0, 1], not {part}")

    @classmethod
    def correct(cls, **fields: Any) -> Verdict:
        return cls(VerdictStatus.CORRECT, 1.0, **fields)

    @classmethod
    def incorrect(cls, reason: str, **fields: Any) -> Verdict:
        return cls(VerdictStatus.INCORRECT, 0.0, reason, **fields)

    @classmethod
    def none(cls, reason: str, **fields: Any) -> Verdict:
        return cls(VerdictStatus.NO_VERDICT, 0.0, reason, **fields)


@dataclass(frozen=True)
class Detection:
    """A sign of a cheat on one attempt: what was seen, not what it costs."""

    name: str
    """Of the detector, such as "several_answers"."""
    row: int
    """Of the catalogue in `verifiers/detect/catalogue.py`; 0: of none."""
    seen: str
    """What it fired on, shortened, for people."""
    grave: bool = False
    """Whether a verifier that pays for such an attempt is contradicted by it; otherwise it is a hint."""


@dataclass(frozen=True)
class Reward:
    """A scalar with its reasons; `rewards/compose.py` computes `total` again from the rest."""

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    """Raw parts, as they were measured: before weights, gates and correction for chance."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Those of the step that learned from the attempt."""
    gates: Mapping[str, bool] = field(default_factory=dict)
    """Whether each condition held; where one did not, every part counts as 0."""
    withheld: tuple[str, ...] = ()
    """Parts that count as 0 in this attempt, since they wait for correctness."""
    null_levels: Mapping[str, float] = field(default_factory=dict)
    """Of parts that are corrected for chance: what a policy without skill scores."""


@dataclass(frozen=True)
class Turn:
    """One sampled action, `tokens[start:end]` of its trajectory, and the environment's reply to it."""

    start: int
    end: int
    reward: float = 0.0
    """The environment's, for this turn. Where `done`, it is the verdict's score once more and is not counted twice."""
    done: bool = True
    info: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What one attempt used. Seconds are wall time."""

    num_sampled_tokens: int = 0
    wall_s: float = 0.0
    sandbox_s: float = 0.0


@dataclass(frozen=True)
class Trajectory:
    """One attempt at a task: one append-only token stream (laws L11-L14) and what came of it."""

    trajectory_id: str
    task: Task
    group_id: str
    sibling: int
    tokens: IntArray  # [T]
    sampled: BoolArray  # [T], True where the policy sampled the token in this attempt
    behavior_logprobs: FloatArray  # [T], log-probs of the distribution sampled from; 0 where not sampled
    versions: IntArray  # [T], version of the weights that sampled each token; -1 where not sampled
    turns: tuple[Turn, ...]
    reply: str
    """The last turn's text, stop token left out: for people and for pure verifiers."""
    stop: StopReason
    verdict: Verdict | None = None
    reward: Reward | None = None
    failure: Failure | None = None
    cost: Cost = field(default_factory=Cost)
    detections: tuple[Detection, ...] = ()
    held_out: Verdict | None = None
    """Of the domain's independent verifier, where it has one: measured, never rewarded."""
    quarantine: str = ""
    """Why a rule keeps the attempt out of the gradient; empty: none does."""

    def __post_init__(self) -> None:
        lengths = {len(self.tokens), len(self.sampled), len(self.behavior_logprobs), len(self.versions)}
        if len(lengths) != 1:
            raise ValueError(f"a trajectory's ids, mask, log-probs and versions differ in length: {sorted(lengths)}")

    @property
    def judged(self) -> bool:
        """Whether the attempt has a verdict and a reward; otherwise a failure of ours left it without (law L23)."""
        return (
            self.failure is None
            and self.reward is not None
            and self.verdict is not None
            and self.verdict.status is not VerdictStatus.NO_VERDICT
        )

    @property
    def scored(self) -> bool:
        """Whether the attempt has a verdict that may be learned from: a quarantined one is in no statistic of its
        group, no term and no denominator, since its reward is what is not believed."""
        return self.judged and not self.quarantine

    @property
    def suspect(self) -> bool:
        """Whether the verifier paid for what a grave detector saw. What earned nothing teaches the right thing."""
        return (
            self.judged
            and self.verdict is not None
            and self.verdict.score > 0.0
            and any(detection.grave for detection in self.detections)
        )

    @property
    def prompt_length(self) -> int:
        """Tokens before the first sampled one; the whole length where nothing was sampled."""
        return int(np.argmax(self.sampled)) if self.sampled.any() else len(self.tokens)


@dataclass(frozen=True)
class Group:
    """Siblings: attempts at the same task instance, told apart by id, never by position (law L8)."""

    group_id: str
    task: Task
    trajectories: tuple[Trajectory, ...]  # [G], ragged groups are legal

    def __post_init__(self) -> None:
        for trajectory in self.trajectories:
            if trajectory.group_id != self.group_id or trajectory.task.task_id != self.task.task_id:
                raise ValueError(f"trajectory {trajectory.trajectory_id} is not of group {self.group_id}")


@dataclass(frozen=True)
class Sample:
    """One row to learn from. A trajectory gives one or, where its prefix had to split, several segments."""

    trajectory_id: str
    segment: int
    group_id: str
    """Samples of one group share their prompt, which packing computes once."""
    domain: str
    tokens: IntArray  # [T]
    trainable: BoolArray  # [T]; position 0 is never trainable: nothing predicts it
    behavior_logprobs: FloatArray  # [T]
    advantages: FloatArray  # [T]
    loss_weights: FloatArray  # [T], any reduction is expressed here; 1 is the plain token mean
    versions: IntArray  # [T]
    reference_logprobs: FloatArray | None = None  # [T]
    values: FloatArray | None = None  # [T], the critic's before this step's updates: expected return before each token
    returns: FloatArray | None = None  # [T], what the critic is to predict
    temperature: float = 1.0
    """Of the distribution sampled from: the trainer divides its logits by it (law L16)."""
    denominator: float | None = None
    """What the sample adds to the step's one denominator; None: the sum of its loss weights, a weighted token mean."""

    def __post_init__(self) -> None:
        optional = [array for array in (self.reference_logprobs, self.values, self.returns) if array is not None]
        fields = [self.trainable, self.behavior_logprobs, self.advantages, self.loss_weights, self.versions]
        if any(len(array) != len(self.tokens) for array in [*fields, *optional]):
            raise ValueError(f"sample {self.trajectory_id}/{self.segment}: fields differ in length")
        if len(self.tokens) and self.trainable[0]:
            raise ValueError(f"sample {self.trajectory_id}/{self.segment}: its first token cannot be trained")

    @property
    def num_loss_tokens(self) -> int:
        return int(self.trainable.sum())

    @property
    def weight(self) -> float:
        """Its share of the step's denominator; 0 where nothing of it is trained (law L4)."""
        if self.num_loss_tokens == 0:
            return 0.0
        if self.denominator is not None:
            return self.denominator
        return float(self.loss_weights[self.trainable].sum(dtype=np.float64))


@dataclass(frozen=True)
class Annotations:
    """What credit needs of the models, by trajectory id: `[T]` each, 0 where the policy did not sample.

    A mapping is empty where nobody asked for it.
    """

    values: Mapping[str, FloatArray] = field(default_factory=dict)
    """The critic's, before each token."""
    policy_logprobs: Mapping[str, FloatArray] = field(default_factory=dict)
    """Of the trainer's weights before the update."""
    reference_logprobs: Mapping[str, FloatArray] = field(default_factory=dict)
    kl_in_reward: float = 0.0
    """What a nat of KL to the reference costs in the reward; 0: nothing, and no reference is needed."""


@dataclass(frozen=True)
class ItemScore:
    """One evaluation item: one task, `samples` attempts at temperature 1 and one greedy attempt."""

    domain: str
    task_id: str
    scores: tuple[float, ...]
    """One per attempt that was scheduled; attempts that died count 0 and are counted in `failures` (law L28)."""
    greedy: float | None
    answers: tuple[str | None, ...]
    failures: int
    """Attempts without a verdict, through a failure of ours."""
    num_tokens: int
    """Sampled tokens, all attempts."""
    truncated: int


@dataclass(frozen=True)
class DomainScore:
    """A score with its uncertainty and its n (law L29), and what a policy without skill would get."""

    pass_at_1: float
    ci95: tuple[float, float]
    n: int
    """Distinct tasks."""
    samples: int
    """Attempts a task."""
    pass_at_k: float
    """Share of tasks that at least one of the `samples` attempts solved."""
    greedy: float | None
    best_constant: float
    """Score of the best constant answer on these tasks."""
    distinct_answers: int
    no_verdict: int
    """Attempts that a failure of ours left without a verdict."""
    mean_tokens: float
    truncated_share: float


@dataclass(frozen=True)
class EvalReport:
    """One policy on one fixed suite."""

    label: str
    model: str
    version: int
    suite_id: str
    """Hash of the suite's task ids in order: only reports of one suite are compared item by item."""
    domains: Mapping[str, DomainScore]
    mean: DomainScore
    """Over domains that weigh equally."""
    items: tuple[ItemScore, ...]
    wall_s: float
