"""Small Python functions from one sentence, judged by hidden tests in a sandbox.

Programs are put together from parts, so their number is large, their expected values are exact, and their wrong
siblings are known: a task whose hidden tests let one of those pass is not admitted. An empty list's sum is
0 and its list empty; products, largest and smallest values say what they are of nothing. The functions are
deterministic, which is what lets identical programs share one execution.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from posttrain.core.errors import ConfigError
from posttrain.core.protocols import Sandbox
from posttrain.core.sandboxing import SandboxLimits
from posttrain.core.types import Json, Limits, Split, Task, Verdict
from posttrain.domains.program_families import Family, Lists, Pairs, Scalars, Texts
from posttrain.domains.program_tests import choose_tests, content_key, mutation_score
from posttrain.domains.single_turn import SingleTurnEnvironment
from posttrain.domains.streams import Problem, check_level, draw, split_of
from posttrain.verifiers.execution_cache import ExecutionCache
from posttrain.verifiers.python_code import HiddenTests, ProgramVerifier
from posttrain.verifiers.quality.measure import Subject

MIN_MUTATION_SCORE = 1.0
SANDBOX_LIMITS = SandboxLimits(wall_s=6.0, cpu_s=2.0, memory_mib=256, processes=4, output_kib=64, disk_mib=1)

_FAMILIES: dict[int, tuple[Family, ...]] = {
    1: (Scalars(),),
    2: (Lists(parts=1),),
    3: (Lists(parts=2),),
    4: (Texts(), Pairs()),
}
_TOKENS = {1: 32, 2: 48, 3: 56, 4: 40}


@dataclass(frozen=True)
class PythonFunctions:
    """Level 1 two steps on a number, 2 a list filtered or mapped and reduced, 3 both, 4 texts and two arguments."""

    cache: ExecutionCache = field(default_factory=ExecutionCache, init=False, repr=False, compare=False)

    name = "python_functions"
    version = "2"
    licence = "Apache-2.0"
    levels = 4
    needs_sandbox = True

    def task(self, split: Split, seed: int, index: int, level: int) -> Task:
        check_level(self.name, level, self.levels)
        return draw(self.name, split, seed, index, level, lambda state: self._problem(state, level, split))

    def environment(self, task: Task, sandbox: Sandbox | None) -> SingleTurnEnvironment:
        """Raises `ConfigError` without a sandbox, `IsolationUnavailableError` where the sandbox cannot isolate, and
        ValueError for a task without tests (law L26)."""
        if sandbox is None:
            raise ConfigError(f"domain {self.name} runs programs and needs a sandbox; none was given")
        assert sandbox.tier  # asked now: without isolation no attempt is to begin (law L27)
        verifier = ProgramVerifier(HiddenTests.read(task.hidden), sandbox, SANDBOX_LIMITS, self.cache)

        async def verify(task: Task, reply: str) -> Verdict:
            return await verifier.verify(reply)

        return SingleTurnEnvironment(task, verify, self.version)

    def demonstration(self, task: Task) -> str:
        return str(task.hidden["solution"])

    def subject(self, task: Task) -> Subject:
        """How the task's hidden tests are measured; mutants that its family's probes cannot tell apart are the same."""
        # A content key begins with its family's arguments, which no two families of a level share.
        (family,) = (one for one in _FAMILIES[task.level] if task.content_key.startswith(f"{one.arguments}:"))
        tests = HiddenTests.read(task.hidden)
        return Subject(task.task_id, self.demonstration(task), tests, SANDBOX_LIMITS, probes=family.probes)

    def _problem(self, state: random.Random, level: int, split: Split) -> Problem | None:
        family = state.choice(_FAMILIES[level])
        pieces = family.draw(state)
        key = None if pieces is None else content_key(family, pieces)
        # Tests cost more than a key: those of the other side are not made.
        if pieces is None or key is None or split_of(self.name, key) is not split:
            return None
        tests = choose_tests(family, pieces, state)
        if mutation_score(family, pieces, tests) < MIN_MUTATION_SCORE:
            return None
        prompt = (
            f"Write a Python function f({family.arguments}) that {family.task(pieces, state)}. Reply with code only."
        )
        hidden: dict[str, Json] = {
            "function": "f",
            "tests": [[arguments, expected] for arguments, expected in tests],
            "solution": family.code(pieces),
        }
        return Problem(prompt, hidden, key, Limits(max_new_tokens=_TOKENS[level]))
