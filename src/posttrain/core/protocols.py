"""The seams. Everything that a user or a later capability may replace is one of these protocols.

Signatures that touch the world (engine, environment, sandbox, learner) are async and carry deadlines in seconds.
A component behind a seam is one frozen dataclass whose fields are its options, found by name (`core/registry.py`).
The `Loss` seam takes tensors and stands in `losses/base.py`: this layer imports no torch.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from posttrain.core.sandboxing import SESSION_LIMITS, CallResult, CellResult, RunResult, SandboxLimits, TestResult
from posttrain.core.types import (
    Annotations,
    FloatArray,
    Group,
    IntArray,
    Json,
    Message,
    Sample,
    Split,
    StopReason,
    Task,
    Verdict,
)

# ── where tokens come from ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class GenerateRequest:
    """Tokens in. Sampling is a function of `seed` and position alone, never of the batch around the request."""

    request_id: str
    prompt: IntArray  # [P]
    max_new_tokens: int
    seed: int
    """63 bits, from `core/seeding.py`."""
    temperature: float = 1.0
    """0 is greedy; log-probs are then those of the temperature-1 distribution."""
    stop_tokens: tuple[int, ...] = ()
    group: str = ""
    """Requests of one group with one prompt share its computation; empty: shares with nobody."""


@dataclass(frozen=True)
class Generation:
    """Tokens out, the sampled stop token included (law L13)."""

    request_id: str
    tokens: IntArray  # [N]
    logprobs: FloatArray  # [N], of the distribution sampled from (law L16)
    versions: IntArray  # [N], version of the weights that sampled each token
    stop: StopReason


class PauseMode(enum.StrEnum):
    """What happens to running sequences while weights change."""

    DRAIN = "drain"
    """They finish first."""
    ABORT = "abort"
    """They end at once and are returned as ABORTED."""
    KEEP = "keep"
    """They stop where they are and go on with the new weights."""


@dataclass(frozen=True)
class EngineCapabilities:
    name: str
    max_context: int
    dtype: str
    pause_modes: tuple[PauseMode, ...]
    shares_prompts: bool


@runtime_checkable
class RolloutEngine(Protocol):
    """Tokens in, tokens out, with a log-prob and a weight version for every token."""

    async def generate(
        self, requests: Sequence[GenerateRequest], *, timeout_s: float | None = None
    ) -> list[Generation]:
        """One generation for each request, in order. Raises `DeadlineExceededError`, `EngineError`."""
        ...

    async def publish(self, version: int, weights: Path) -> None:
        """Take `weights` (a Hugging Face folder of safetensors) in place; caches of older versions are dropped."""
        ...

    async def pause(self, mode: PauseMode) -> None: ...

    async def resume(self) -> None: ...

    async def fingerprint(self) -> str:
        """Of the weights that now sample (law L17); `core/fingerprint.py` has the function both sides use."""
        ...

    async def capabilities(self) -> EngineCapabilities: ...

    async def close(self) -> None: ...


# ── where untrusted code runs ─────────────────────────────────────────────────────────────────────────────────


class SandboxSession(Protocol):
    """A work tree that stays between steps, for agents. Paths are relative to its root and cannot leave it."""

    async def exec(self, argv: Sequence[str], *, stdin: str = "", limits: SandboxLimits) -> RunResult: ...

    async def cell(self, code: str, *, limits: SandboxLimits) -> CellResult:
        """Run `code` in the session's one Python, which keeps its variables from cell to cell for as long as it
        lives; an expression at the end of `code` is printed. Limits of time and output are the cell's, and to run
        into one ends the interpreter; those of memory and processes are the interpreter's, and the session's."""
        ...

    async def read(self, path: str) -> bytes: ...
    async def write(self, path: str, content: bytes) -> None: ...

    async def edit(self, path: str, old: str, new: str) -> None:
        """Replace `old`, which must be there exactly once."""
        ...

    async def list(self, path: str = ".") -> list[str]:
        """Names in one folder, sorted; those of folders end with a slash."""
        ...

    async def run_tests(
        self, tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult: ...

    async def snapshot(self) -> str: ...
    async def restore(self, snapshot: str) -> None: ...
    async def fork(self) -> SandboxSession: ...

    async def diff(self) -> Mapping[str, bytes | None]:
        """Regular files that are new or changed since the session began; None for those that are gone."""
        ...

    async def close(self) -> None: ...


class Sandbox(Protocol):
    """Runs untrusted code. A verb that a backend lacks is refused by name with `SandboxError`."""

    @property
    def tier(self) -> str: ...

    async def call(
        self,
        source: str,
        function: str,
        inputs: Sequence[Sequence[Json]],
        *,
        limits: SandboxLimits,
        profile: str = "python",
    ) -> CallResult:
        """Load `source`, call `function(*args)` for each of `inputs`, one at a time; expected values stay outside."""
        ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        stdin: str = "",
        limits: SandboxLimits,
    ) -> RunResult: ...

    async def test(
        self, tree: Mapping[str, str], tests: Mapping[str, str], expected: Sequence[str], *, limits: SandboxLimits
    ) -> TestResult:
        """Two stages: the candidate's `tree` first, then `tests`, laid fresh after its processes are dead. `expected`
        are ids like `tests/test_x.py::test_one`; nothing else counts."""
        ...

    async def session(
        self, tree: Mapping[str, str], *, limits: SandboxLimits = SESSION_LIMITS, background: bool = False
    ) -> SandboxSession:
        """`limits.disk_mib` bounds all that the session writes. With `background`, processes that a step leaves go
        on."""
        ...

    async def close(self) -> None: ...


# ── what is worth learning ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Transition:
    """The environment's reply to one action; the last one (`done`) carries the verdict."""

    messages: tuple[Message, ...] = ()
    reward: float = 0.0
    done: bool = True
    verdict: Verdict | None = None
    info: Mapping[str, Json] = field(default_factory=dict)


class Environment(Protocol):
    """Single-use: made for one attempt, closed after it. Raises nothing for what the candidate causes."""

    async def reset(self) -> tuple[Message, ...]:
        """The prompt's messages."""
        ...

    async def step(self, reply: str, *, truncated: bool) -> Transition: ...

    async def close(self) -> None: ...


@runtime_checkable
class Domain(Protocol):
    """Random access to tasks and a way to judge attempts at them."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str:
        """Of the verifier; raised with every change of what it accepts."""
        ...

    @property
    def licence(self) -> str: ...
    @property
    def levels(self) -> int:
        """Difficulty levels are 1 to this number."""
        ...

    @property
    def needs_sandbox(self) -> bool: ...

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        """The same task for the same arguments, for ever; TRAIN and EVAL tasks never share a `task_id`."""
        ...

    def environment(self, task: Task, sandbox: Sandbox | None) -> Environment: ...

    def demonstration(self, task: Task) -> str | None:
        """A correct reply in the wanted format; None where the domain has none."""
        ...


class Verifier(Protocol):
    """Judges text without running it: pure, synchronous, called in a worker that a deadline ends.

    What the reply causes is INCORRECT; a `gold` that cannot be read raises ValueError, since a broken task is no
    wrong answer. Reasons carry nothing of `gold`: they may be shown to the policy.
    """

    @property
    def version(self) -> str:
        """Raised with every change of what is accepted."""
        ...

    def verify(self, reply: str, gold: Json) -> Verdict: ...


class SandboxVerifier(Protocol):
    """Judges what runs: as a `Verifier`, but async and over a sandbox, whose failure is NO_VERDICT (law L23)."""

    @property
    def version(self) -> str: ...

    async def verify(self, reply: str, gold: Json, sandbox: Sandbox) -> Verdict: ...


# ── learning ──────────────────────────────────────────────────────────────────────────────────────────────────


class Advantage(Protocol):
    """Credit: scored groups → one advantage for each token. Pure; sees the whole step, where it must whiten."""

    @property
    def needs_values(self) -> bool:
        """Whether `annotations.values` must be given: the learner then has a critic."""
        ...

    def __call__(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`, 0 where the policy did not sample; unscored trajectories are all 0."""
        ...


@runtime_checkable
class ValueTargets(Protocol):
    """An advantage that also says what the critic is to predict."""

    def value_targets(self, groups: Sequence[Group], annotations: Annotations) -> list[list[FloatArray]]:
        """`[P][G]` arrays of `[T]`: the return from each sampled token on."""
        ...


@dataclass(frozen=True)
class StageSpec:
    """What a learner is told when a stage begins: plain data, so that it crosses to another process."""

    losses: Sequence[Mapping[str, Json]]
    """`{"name": …, options…}` of components of kind "loss": their terms are added."""
    optimizer: Mapping[str, Json]
    """Fields of `learn.optimizer.OptimizerOptions`."""
    total_steps: int
    keep_reference: bool = False
    """Whether the weights at the stage's begin are kept as the reference policy."""


@dataclass(frozen=True)
class StepControls:
    """What may change from one update to the next; the default changes nothing."""

    learning_rate_factor: float = 1.0
    """On top of the schedule."""
    loss_factors: Mapping[str, float] = field(default_factory=dict)
    """Factors of single losses' terms, by the loss's name."""
    further_update: bool = False
    """One more update of the step before it: the schedule does not move on."""


UNCHANGED = StepControls()


@dataclass(frozen=True)
class StepMetrics:
    """One optimizer step. Means are over the step's loss tokens, over all ranks."""

    loss: float
    grad_norm: float
    learning_rate: float
    num_loss_tokens: int
    num_computed_tokens: int
    """Positions that went through the model, after packing."""
    values: Mapping[str, float]
    """The loss's own means: ratio, clipped share, KL, entropy …"""
    wall_s: float


class Learner(Protocol):
    """Groups → a better policy. Ranks, dtype and packing are its own affair."""

    async def begin_stage(self, spec: StageSpec) -> None: ...

    async def step(self, samples: Sequence[Sample], controls: StepControls = UNCHANGED) -> StepMetrics:
        """One optimizer step over all of `samples`, normalised by their one global denominator (law L2)."""
        ...

    async def values(self, samples: Sequence[Sample]) -> list[FloatArray]:
        """The critic's, before each of each sample's trainable tokens; `[T]`, 0 elsewhere."""
        ...

    async def refresh_reference(self) -> None:
        """The present weights become the reference policy."""
        ...

    async def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> list[FloatArray]:
        """Of each sample's trainable tokens under the policy or the kept reference; `[T]`, 0 elsewhere."""
        ...

    async def export(self, folder: Path) -> str:
        """Write the policy as a Hugging Face folder, an adapter merged; returns its fingerprint (law L17)."""
        ...

    async def export_adapter(self, folder: Path) -> None:
        """Write the adapter alone, in peft's format. Raises `UserError` for a learner that has none."""
        ...

    async def save(self, folder: Path) -> None: ...

    async def load(self, folder: Path) -> None: ...

    async def close(self) -> None: ...


class Mixture(Protocol):
    """What next: a pure function of its state and of what it has observed."""

    def next(self) -> Task: ...

    def pause(self, domains: Collection[str]) -> None:
        """These domains, and only these, give no tasks from the next one on. Raises `StoppedByRuleError` for all."""
        ...

    def observe(self, group: Group) -> None: ...

    def state(self) -> Json: ...

    def load_state(self, state: Json) -> None: ...


# ── what one sees ─────────────────────────────────────────────────────────────────────────────────────────────


class Observer(Protocol):
    """Told what a run does while it does it; never asked. Must not raise and must return at once."""

    def stage(self, name: str, total_steps: int | None, done: int = 0) -> None:
        """A stage begins, or goes on after its `done` steps; None where it has no steps or no known end."""
        ...

    def phase(self, name: str, total: int | None = None) -> None:
        """A new phase begins: "generating", "learning", "evaluating base" …; `total` in its own units."""
        ...

    def advance(self, amount: int = 1) -> None: ...

    def step(self, step: int, values: Mapping[str, float]) -> None: ...

    def note(self, sentence: str) -> None: ...
