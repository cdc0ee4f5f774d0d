"""What `posttrain bench sandbox` makes of its measurements, and that everything it promises is measured."""

from __future__ import annotations

import io
import json
import os
from typing import Any

import pytest
from rich.console import Console

from posttrain.core.errors import ConfigError, SandboxError
from posttrain.core.sandboxing import CallOutput, CallResult, IsolationTier, OutputStatus, ResultClass, RunResult
from posttrain.observe.sandbox_table import render
from posttrain.run.bench_sandbox import Plan, bench_sandbox, check, on_cores
from posttrain.run.bench_sandbox_figures import Measured, figures, percentile, ratios
from posttrain.run.bench_sandbox_programs import TRIVIAL

TINY = Plan(variant_s=0.0, num_latencies=3, num_resets=1, num_kills=1, num_bombs=1)


def measured(**rates: list[float]) -> Measured:
    num_rounds = len(next(iter(rates.values()), [1.0]))
    names = ("bare", "bare_as_installed", "rlimits", "numpy_cold", "trivial", "asserts", "numpy")
    times = [number / 1000 for number in range(1, 101)]
    all_rates = {name: [1.0] * num_rounds for name in names} | rates
    by_files = {50: [0.001], 2000: [0.004]}
    return Measured(all_rates, times, by_files, by_files, by_files, times[:10], times[:20])


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    """The third round was slow for both, and says the same as the first."""
    found = figures(measured(bare=[10.0, 10.0, 1.0], trivial=[30.0, 90.0, 3.0]))
    assert found["trivial_vs_bare"] == 3.0
    assert found["rates_per_s"]["trivial"] == 30.0


def test_scaling_is_ours_over_that_of_bare_python() -> None:
    rates = {"bare": [10.0], "bare_2_cores": [16.0], "trivial": [50.0], "trivial_2_cores": [90.0]}
    assert figures(measured(**rates))["scaling_2_cores"] == pytest.approx(1.8 / 1.6, abs=1e-3)
    assert figures(measured())["scaling_2_cores"] is None


def test_times_are_milliseconds() -> None:
    found = figures(measured())
    assert found["added_latency_ms"] == {"p50": 50.0, "p99": 99.0}
    assert found["kill_overshoot_ms"] == {"p99": 10.0}
    assert found["kill_overshoot_bombs_ms"] == {"p99": 20.0}
    for name in ("reset_ms", "snapshot_ms", "box_ms"):
        assert found[name]["50_files"] == {"p50": 1.0, "p99": 1.0}
        assert found[name]["2000_files"] == {"p50": 4.0, "p99": 4.0}
        assert found[name]["p99"] == 4.0


@pytest.mark.parametrize(
    ("values", "per_cent", "expected"),
    [([3.0], 99, 3.0), ([1.0, 2.0], 50, 1.0), ([2.0, 1.0, 3.0], 50, 2.0), (list(range(1, 201)), 99, 198)],
)
def test_a_percentile_is_one_of_the_values(values: list[float], per_cent: float, expected: float) -> None:
    assert percentile(values, per_cent) == expected


def test_rounds_are_compared_with_themselves_alone() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("value", "result_class"), [(3, ResultClass.OK), (True, ResultClass.INFRASTRUCTURE_ERROR), (2, ResultClass.SIGNAL)]
)
def test_a_wrong_answer_ends_the_benchmark(value: int, result_class: ResultClass) -> None:
    run = RunResult(result_class, IsolationTier.SCRIPTED)
    with pytest.raises(SandboxError, match="trivial"):
        check(TRIVIAL, CallResult(run, (CallOutput(OutputStatus.VALUE, value),)))


def test_threads_and_children_are_on_the_cores_and_come_back() -> None:
    before = os.sched_getaffinity(0)
    with on_cores({min(before)}):
        assert os.sched_getaffinity(0) == {min(before)}
        pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit $(( $(nproc) ))"], os.environ)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert os.sched_getaffinity(0) == before


def test_too_few_rounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 5"):
        bench_sandbox(4, lambda sentence: None)


def test_everything_that_is_promised_is_measured() -> None:
    notes: list[str] = []
    found: dict[str, Any] = json.loads(json.dumps(bench_sandbox(1, notes.append, TINY), allow_nan=False))
    assert notes == ["round 1 of 1"]
    assert found.keys() == {
        *("tier", "kernel", "landlock_abi", "cgroup", "rounds", "cores"),
        *("trivial_vs_bare", "trivial_vs_bare_as_installed", "asserts_vs_bare", "numpy_vs_cold", "trivial_vs_rlimits"),
        *("scaling_2_cores", "added_latency_ms", "kill_overshoot_ms", "kill_overshoot_bombs_ms"),
        *("reset_ms", "snapshot_ms", "box_ms", "rates_per_s"),
    }
    assert {"bare", "rlimits", "numpy_cold", "trivial", "asserts", "numpy"} <= found["rates_per_s"].keys()
    console = Console(record=True, file=io.StringIO())
    render(found, console)
    text = console.export_text()
    assert "numpy preloaded over cold import" in text
    assert found["tier"] in text
