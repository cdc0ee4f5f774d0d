"""A domain from Python objects: tasks as a list or generator, and a plain reward function.

The rows are divided into train and evaluation by content, or the evaluation rows are given. A pass over a split
visits every task once, in an order that depends on the seed. Scores are never clamped: what is not a number in
[0, 1] is no verdict. It holds closures, so it lives in the process that made it.
"""

from __future__ import annotations

import inspect
import itertools
import numbers
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from posttrain.core.errors import ConfigError, OverlapError
from posttrain.core.protocols import Sandbox
from posttrain.core.seeding import stable_hash, stable_random
from posttrain.core.types import Json, Limits, Message, Role, Split, Task, Verdict, VerdictStatus
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.domains.streams import check_level, split_of
from posttrain.verifiers.final_answer import Refused, read_final_answer

Row = Task | tuple[str, Json]
Score = float | bool | Verdict
RewardFunction = Callable[[Task, str], Score | Awaitable[Score]]

MAX_TASKS = 100_000
MAX_ANSWER_CHARACTERS = 500


@dataclass(frozen=True)
class FunctionDomain:
    """Raises `ConfigError` for rows that cannot be used and `OverlapError` where `eval_tasks` repeats a train row."""

    tasks: Iterable[Row]
    """`(prompt, answer)` pairs, the answer being plain data in `task.hidden["answer"]`, or `Task` records (whose
    domain, split, seed and index are rewritten). A generator is read to its end; 100,000 rows are the most."""
    reward: RewardFunction
    """`reward(task, reply)` → a number in [0, 1], a bool or a `Verdict`; may be async. A score of 1 is correct."""
    name: str = "function"
    eval_tasks: Iterable[Row] | None = None
    """None holds out the quarter of `tasks` that a hash of their content picks, at least one."""
    demonstrate: Callable[[Task], str | None] | None = None
    """`demonstrate(task)` → a correct reply, for a supervised start."""
    limits: Limits = field(default_factory=Limits)
    """Of tasks that are given as pairs."""
    version: str = "1"
    """Raise it when `reward` changes."""
    licence: str = "unstated"

    needs_sandbox = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "tasks", self._read(self.tasks, "tasks"))
        if self.eval_tasks is not None:
            object.__setattr__(self, "eval_tasks", self._read(self.eval_tasks, "eval_tasks"))
        for level, split in itertools.product(range(1, self.levels + 1), Split):
            if not self._rows.get((split, level)):
                raise ConfigError(
                    f"domain {self.name}: no {split.value} task is left at level {level}; give more tasks, or the "
                    f"evaluation tasks themselves as eval_tasks"
                )

    @property
    def levels(self) -> int:
        return max((level for _, level in self._rows), default=1)

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        check_level(self.name, level, self.levels)
        rows = self._rows[split, level]
        around, position = divmod(index, len(rows))
        order = self._order(split, seed, around, level)
        return replace(rows[order[position]], split=split, seed=seed, index=index)

    def environment(self, task: Task, sandbox: Sandbox | None) -> SingleTurnEnvironment:
        return SingleTurnEnvironment(task, self._verify, self.version)

    def demonstration(self, task: Task) -> str | None:
        return None if self.demonstrate is None else self.demonstrate(task)

    async def _verify(self, task: Task, reply: str) -> Verdict:
        result = self.reward(task, reply)
        return _verdict(await result if inspect.isawaitable(result) else result, reply)

    def _read(self, rows: Iterable[Row], what: str) -> tuple[Task, ...]:
        """Rows as tasks of this domain, each content once."""
        tasks: dict[str, Task] = {}
        for number, row in enumerate(rows):
            if number == MAX_TASKS:
                raise ConfigError(f"domain {self.name}: {what} has more than {MAX_TASKS} rows; write a Domain instead")
            task = self._task(row, f"{what}[{number}]")
            known = tasks.setdefault(task.task_id, task)
            if known.hidden != task.hidden:
                raise ConfigError(f"domain {self.name}: {what}[{number}] asks what an earlier row asks, but differs")
        return tuple(tasks.values())

    def _task(self, row: Row, where: str) -> Task:
        if isinstance(row, Task):
            if row.level < 1 or not row.prompt:
                raise ConfigError(f"domain {self.name}: {where} needs a prompt and a level of at least 1")
            return replace(row, domain=self.name)
        if not (isinstance(row, tuple | list) and len(row) == 2 and isinstance(row[0], str) and row[0].strip()):
            raise ConfigError(f"domain {self.name}: {where} must be a Task or a (prompt, answer) pair with a prompt")
        prompt, answer = row
        hidden = {"answer": answer}
        return Task(self.name, (Message(Role.USER, prompt),), hidden, Split.TRAIN, 0, 0, 1, self.limits)

    @cached_property
    def _rows(self) -> dict[tuple[Split, int], list[Task]]:
        assert isinstance(self.tasks, tuple)
        rows: dict[tuple[Split, int], list[Task]] = {}
        if self.eval_tasks is None:
            for task in self.tasks:
                rows.setdefault((split_of(self.name, task.task_id), task.level), []).append(task)
            return self._with_both_sides(rows)
        known = {task.task_id for task in self.tasks}
        repeated = [task for task in self.eval_tasks if isinstance(task, Task) and task.task_id in known]
        if repeated:
            raise OverlapError(
                f"domain {self.name}: {len(repeated)} of eval_tasks are among tasks too, such as "
                f"{repeated[0].prompt[-1].content[:80]!r}"
            )
        for split, side in ((Split.TRAIN, self.tasks), (Split.EVAL, self.eval_tasks)):
            for task in side:
                assert isinstance(task, Task)
                rows.setdefault((split, task.level), []).append(task)
        return rows

    def _with_both_sides(self, rows: dict[tuple[Split, int], list[Task]]) -> dict[tuple[Split, int], list[Task]]:
        """A short list may fall on one side whole: the task with the least hash then crosses over."""
        for level in sorted({level for _, level in rows}):
            train, held_out = (rows.setdefault((split, level), []) for split in (Split.TRAIN, Split.EVAL))
            full, empty = (train, held_out) if train else (held_out, train)
            if not empty and len(full) > 1:
                crossing = min(full, key=lambda task: stable_hash("crossing", task.task_id))
                full.remove(crossing)
                empty.append(crossing)
        return rows

    @cached_property
    def _orders(self) -> dict[tuple[Split, int, int, int], list[int]]:
        return {}

    def _order(self, split: Split, seed: int, around: int, level: int) -> list[int]:
        key = (split, seed, around, level)
        if key not in self._orders:
            if len(self._orders) >= 64:  # passes follow one another: old ones are not asked for again
                self._orders.clear()
            order = list(range(len(self._rows[split, level])))
            stable_random("order", self.name, split.value, seed, around, level).shuffle(order)
            self._orders[key] = order
        return self._orders[key]


def _verdict(score: object, reply: str) -> Verdict:
    if isinstance(score, Verdict):
        return score
    if not isinstance(score, numbers.Real | np.bool_):
        return Verdict.none(f"the reward function answered with {type(score).__name__}, which is no number")
    value = float(score)
    if not 0.0 <= value <= 1.0:  # also refuses NaN
        return Verdict.none(f"the reward function answered {value}, which is not in [0, 1]")
    answer = read_final_answer(reply)
    text = reply.strip()[:MAX_ANSWER_CHARACTERS] if isinstance(answer, Refused) else answer
    status = VerdictStatus.CORRECT if value == 1.0 else VerdictStatus.INCORRECT
    reason = "" if value == 1.0 else f"the reward function answered {value:g}"
    return Verdict(status, value, reason, answer=text or None)
