"""Facts in, one result class out."""

from __future__ import annotations

import signal

import pytest

from posttrain.core.sandboxing import IsolationTier, ResultClass, SandboxLimits
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.outcome import judge
from posttrain.sandbox.watch import Ended, Report, Stop

LIMITS = SandboxLimits(wall_s=2.0, cpu_s=1.5, memory_mib=100, processes=4)
TIER = IsolationTier.FULL_WITHOUT_CGROUP


def report(
    *,
    exit_code: int = 0,
    by: int = 0,
    cpu_s: float = 0.1,
    peak: float = 10.0,
    unawaited: int = 0,
    full: bool = False,
    killed: bool = False,
) -> Report:
    return Report(exit_code << 8 | by, cpu_s, peak, unawaited, full, killed)


def ended(
    account: Report | None,
    *,
    ready: bool = True,
    stop: Stop | None = None,
    stderr: bytes = b"",
    lost_to_memory: bool = False,
) -> Ended:
    return Ended(ready, stop, account, lost_to_memory, b"", stderr, "", False, 0.5)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (ended(report()), ResultClass.OK),
        (ended(report(peak=99, full=True, unawaited=9)), ResultClass.OK),
        (ended(report(exit_code=1)), ResultClass.PROGRAM_ERROR),
        (ended(report(exit_code=137)), ResultClass.PROGRAM_ERROR),
        (ended(report(exit_code=152)), ResultClass.PROGRAM_ERROR),
        (ended(report(by=signal.SIGSEGV)), ResultClass.SIGNAL),
        (ended(report(by=signal.SIGKILL)), ResultClass.SIGNAL),
        (ended(report(by=50)), ResultClass.SIGNAL),
        (ended(report(by=signal.SIGXCPU, cpu_s=2.0)), ResultClass.CPU_LIMIT),
        (ended(report(by=signal.SIGKILL, cpu_s=3.0)), ResultClass.CPU_LIMIT),
        (ended(report(by=signal.SIGKILL, cpu_s=2.2)), ResultClass.CPU_LIMIT),
        (ended(report(by=signal.SIGSYS)), ResultClass.POLICY_DENIED),
        (ended(report(by=signal.SIGXFSZ)), ResultClass.DISK_LIMIT),
        (ended(report(exit_code=1, peak=95)), ResultClass.MEMORY_LIMIT),
        (ended(report(killed=True)), ResultClass.MEMORY_LIMIT),
        (ended(report(by=signal.SIGKILL, killed=True)), ResultClass.MEMORY_LIMIT),
        (ended(report(by=signal.SIGABRT, peak=95)), ResultClass.MEMORY_LIMIT),
        (ended(report(exit_code=1, full=True)), ResultClass.DISK_LIMIT),
        (ended(report(exit_code=1, unawaited=3)), ResultClass.PROCESS_LIMIT),
        (ended(report(by=signal.SIGKILL), stop=Stop.TIME), ResultClass.TIME_LIMIT),
        (ended(None, stop=Stop.TIME), ResultClass.TIME_LIMIT),
        (ended(report(by=signal.SIGKILL), stop=Stop.OUTPUT), ResultClass.OUTPUT_LIMIT),
        (ended(None), ResultClass.INFRASTRUCTURE_ERROR),
        (ended(None, lost_to_memory=True), ResultClass.MEMORY_LIMIT),
        (ended(None, lost_to_memory=True, stop=Stop.TIME), ResultClass.TIME_LIMIT),
        (ended(None, lost_to_memory=True, ready=False), ResultClass.INFRASTRUCTURE_ERROR),
        (ended(None, ready=False), ResultClass.INFRASTRUCTURE_ERROR),
        (ended(None, ready=False, stop=Stop.SETUP), ResultClass.INFRASTRUCTURE_ERROR),
        (ended(report(exit_code=1), ready=True, stop=Stop.SETUP), ResultClass.INFRASTRUCTURE_ERROR),
    ],
)
def test_every_end_has_one_class_and_a_sentence(facts: Ended, expected: ResultClass) -> None:
    result = judge(facts, TIER, LIMITS)
    assert result.result_class is expected
    assert bool(result.reason) == (expected is not ResultClass.OK)
    assert result.tier is TIER


def test_a_program_that_was_never_ready_is_reported_with_what_bubblewrap_said() -> None:
    result = judge(ended(None, ready=False, stderr=b"bwrap: No permissions\n"), TIER, LIMITS)
    assert "bwrap: No permissions" in result.reason


def test_a_signal_is_no_exit_code() -> None:
    assert judge(ended(report(by=signal.SIGSEGV)), TIER, LIMITS).exit_code is None
    assert judge(ended(report(exit_code=3)), TIER, LIMITS).exit_code == 3


def test_a_limit_that_the_programs_exception_named_is_its_class() -> None:
    conversation = Conversation([[1]])
    conversation.limit = ResultClass.MEMORY_LIMIT
    assert judge(ended(report()), TIER, LIMITS, conversation).result_class is ResultClass.MEMORY_LIMIT


def test_a_violation_is_a_class_of_its_own_whatever_the_end() -> None:
    conversation = Conversation([[1]])
    conversation.next_message()
    conversation.feed(b"junk\n")
    for facts in (ended(report()), ended(None, stop=Stop.VIOLATION)):
        result = judge(facts, TIER, LIMITS, conversation)
        assert result.result_class is ResultClass.POLICY_DENIED
        assert "protocol violation" in result.reason
