"""Runs of chosen tests against a posttrain of one's own: the driver's side of `tests/laws/mutants/nursery.py`."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.laws.mutants.mutant import SOURCE
from tests.laws.mutants.nursery import Outcome

ROOT = SOURCE.parents[1]
OBJECTIONS = {"AssertionError", "Failed"}
"""What a test raises that found something wrong; `Failed` is that of `pytest.raises`."""


@dataclass(frozen=True)
class Result:
    outcome: Outcome
    output: str

    @property
    def passed(self) -> bool:
        return self.outcome.exit_code == 0

    @property
    def killed(self) -> bool:
        """Whether a test objected. Code that cannot be imported or run at all teaches nothing about the tests."""
        found = {name for _, name in self.outcome.failures}
        return self.outcome.exit_code == 1 and bool(found) and found <= OBJECTIONS


class Nursery:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, tree: Path, killers: Sequence[str]) -> Result:
        """`killers` are node ids under `tests`."""
        log = tree / "output.txt"
        order = {"tree": str(tree), "node_ids": [f"tests/{killer}" for killer in killers], "log": str(log)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        outcome = Outcome(**json.loads(self._process.stdout.readline()))
        return Result(outcome, f"{outcome}\n{log.read_text(errors='replace')[-3000:]}")


@contextlib.contextmanager
def nursery(*options: str) -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.laws.mutants.nursery", *options]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=ours) as process:
        yield Nursery(process)  # leaving closes its standard input, at which it ends
