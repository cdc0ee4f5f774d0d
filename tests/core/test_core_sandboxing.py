"""The sandbox's vocabulary."""

from __future__ import annotations

import pickle

from posttrain.core.sandboxing import (
    CallOutput,
    CallResult,
    IsolationTier,
    OutputStatus,
    ResultClass,
    RunResult,
    SandboxLimits,
    TestOutcome,
    TestResult,
)


def test_result_classes_are_a_closed_set_of_which_one_is_ours() -> None:
    assert len(ResultClass) == 11
    assert [member for member in ResultClass if "infrastructure" in member] == [ResultClass.INFRASTRUCTURE_ERROR]


def test_stored_names_are_the_lower_case_member_names() -> None:
    for enumeration in (ResultClass, IsolationTier, OutputStatus, TestOutcome):
        assert all(member.value == member.name.lower() for member in enumeration)


def test_limits_are_finite_by_default() -> None:
    limits = SandboxLimits()
    assert 0 < limits.cpu_s <= limits.wall_s
    assert min(limits.memory_mib, limits.processes, limits.output_kib, limits.disk_mib) > 0


def test_results_cross_a_process_border_unchanged() -> None:
    run = RunResult(ResultClass.OK, IsolationTier.FULL, stdout="1\n", exit_code=0)
    results = [
        CallResult(run, (CallOutput(OutputStatus.VALUE, [1, None]), CallOutput(OutputStatus.MISSING))),
        TestResult(run, {"test_a": TestOutcome.PASSED}),
    ]
    assert pickle.loads(pickle.dumps(results)) == results
