"""Runs pytest over a tree that nobody can write to, without the candidate's plug-ins, configuration and hooks.

What it writes comes out of a process in which the candidate's code runs too: it can be forged by code that looks for
this file's doings, and the result says so. What it cannot do is choose which tests count: that is decided outside, by
expected ids.
"""

import os
import sys

from posttrain.sandbox.inside.program import WORK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", f"--rootdir={WORK}"),
    *("--import-mode=importlib", "-o", "addopts=", "--continue-on-collection-errors"),
)


def run_tests(files: "list[str]", answer: int) -> None:
    """Does not return. Each finished test is a line: its outcome, a blank, its id."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.environ["PYTEST_ADDOPTS"] = ""
    os.chdir(WORK)
    sys.path.append(WORK)  # last, so that no file of the tree stands before the standard library
    import pytest

    code = pytest.main([*_OPTIONS, *files], plugins=[_Recorder(answer)])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))


class _Recorder:
    def __init__(self, answer: int) -> None:
        self._answer = answer
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: "Any") -> None:
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "call" and report.passed and hasattr(report, "wasxfail"):
            self._failed.add(report.nodeid)
        if report.when == "teardown":
            outcome = "failed" if report.nodeid in self._failed else "ended"
            os.write(self._answer, f"{outcome} {report.nodeid}\n".encode())
        elif report.when == "call" and report.passed:
            os.write(self._answer, f"passed {report.nodeid}\n".encode())
