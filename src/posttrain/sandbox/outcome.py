"""Whose doing was it: from the facts of an execution to exactly one result class and a sentence.

Only what happened before the ready signal, or without any doing of the program, is ours (law L23). Its output and
errors are never read for it (attack 5). Memory and process limits are enforced by making calls fail, which
a program may hide; then the class is its plain exit.
"""

from __future__ import annotations

import os
import signal

from posttrain.core.sandboxing import IsolationTier, ResultClass, RunResult, SandboxLimits
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.job import whole_cpu_s
from posttrain.sandbox.watch import Ended, Report, Stop

_NEARLY_ALL = 0.9
_LIMIT_SIGNALS: dict[int, ResultClass] = {
    signal.SIGXCPU: ResultClass.CPU_LIMIT,
    signal.SIGXFSZ: ResultClass.DISK_LIMIT,
    signal.SIGSYS: ResultClass.POLICY_DENIED,
}


def judge(
    ended: Ended, tier: IsolationTier, limits: SandboxLimits, conversation: Conversation | None = None
) -> RunResult:
    """`conversation` is the one that the execution held, where it held one."""
    result_class, reason = _classify(ended, limits, conversation)
    report = ended.report
    code = os.waitstatus_to_exitcode(report.status) if report and not ended.stop else None
    return RunResult(
        result_class=result_class,
        tier=tier,
        stdout=ended.stdout.decode(errors="replace"),
        stderr=ended.stderr.decode(errors="replace"),
        exit_code=code if code is not None and code >= 0 else None,
        truncated=ended.truncated,
        wall_s=ended.wall_s,
        cpu_s=report.cpu_s if report else 0.0,
        peak_memory_mib=report.peak_memory_mib if report else 0.0,
        reason=reason,
    )


def too_many_files(tier: IsolationTier, limits: SandboxLimits) -> RunResult:
    """Nothing was started."""
    reason = f"the files to lay are larger than the {limits.disk_mib} MiB of disk"
    return RunResult(ResultClass.DISK_LIMIT, tier, reason=reason)


def _classify(ended: Ended, limits: SandboxLimits, conversation: Conversation | None) -> tuple[ResultClass, str]:
    if ended.fault:
        return ResultClass.INFRASTRUCTURE_ERROR, f"sandbox failed on this side of the wall: {ended.fault}"
    if not ended.ready or ended.stop is Stop.SETUP:
        said = (ended.stderr.decode(errors="replace").strip() or ended.said)[-500:] or "it said nothing"
        when = "in time" if ended.stop is Stop.SETUP else "at all"
        return ResultClass.INFRASTRUCTURE_ERROR, f"sandbox did not become ready {when}: {said}"
    if conversation and conversation.violation:
        return ResultClass.POLICY_DENIED, conversation.violation
    if ended.stop:
        return _stopped(ended.stop, ended, limits)
    if ended.report is None:
        return _lost(ended, limits)
    return _exited(ended.report, limits, conversation.limit if conversation else None)


def _stopped(stop: Stop, ended: Ended, limits: SandboxLimits) -> tuple[ResultClass, str]:
    if stop is Stop.OUTPUT:
        return ResultClass.OUTPUT_LIMIT, f"the program wrote more than its {limits.output_kib} KiB of output"
    return ResultClass.TIME_LIMIT, f"the program ran out of time: {ended.wall_s:.1f} s of {limits.wall_s:.1f} s"


def _lost(ended: Ended, limits: SandboxLimits) -> tuple[ResultClass, str]:
    if ended.lost_to_memory:
        return ResultClass.MEMORY_LIMIT, f"the program's processes took more than {limits.memory_mib} MiB of memory"
    return ResultClass.INFRASTRUCTURE_ERROR, "sandbox lost its first process while the program was running"


def _exited(report: Report, limits: SandboxLimits, hint: ResultClass | None) -> tuple[ResultClass, str]:
    """`hint` is the limit that the program's own exception spoke of."""
    code = os.waitstatus_to_exitcode(report.status)
    if report.out_of_memory:
        return ResultClass.MEMORY_LIMIT, _sentence(ResultClass.MEMORY_LIMIT, report, limits)
    limit = _limit_of_signal(code, report, limits) or (_limit_of_use(report, limits) if code else None) or hint
    if limit:
        return limit, _sentence(limit, report, limits)
    if code < 0:
        return ResultClass.SIGNAL, f"the program was ended by {_signal_name(-code)}"
    return (ResultClass.PROGRAM_ERROR, f"the program exited with {code}") if code else (ResultClass.OK, "")


def _limit_of_signal(code: int, report: Report, limits: SandboxLimits) -> ResultClass | None:
    if code == -signal.SIGKILL and report.cpu_s >= whole_cpu_s(limits):
        return ResultClass.CPU_LIMIT  # the hard limit: past the soft one are only programs that ignore SIGXCPU
    return _LIMIT_SIGNALS.get(-code)


def _limit_of_use(report: Report, limits: SandboxLimits) -> ResultClass | None:
    """The limit that a program which failed had used up."""
    if report.peak_memory_mib >= _NEARLY_ALL * limits.memory_mib:
        return ResultClass.MEMORY_LIMIT
    if report.disk_full:
        return ResultClass.DISK_LIMIT
    return ResultClass.PROCESS_LIMIT if report.num_unawaited >= max(1, limits.processes - 1) else None


def _sentence(limit: ResultClass, report: Report, limits: SandboxLimits) -> str:
    match limit:
        case ResultClass.CPU_LIMIT:
            return f"the program ran out of CPU time: {report.cpu_s:.1f} s, allowed {whole_cpu_s(limits)} s"
        case ResultClass.MEMORY_LIMIT:
            peak = f"peak {report.peak_memory_mib:.0f} MiB"
            return f"the program asked for more than its {limits.memory_mib} MiB of memory ({peak})"
        case ResultClass.DISK_LIMIT:
            return f"the program filled its {limits.disk_mib} MiB of disk"
        case ResultClass.PROCESS_LIMIT:
            return f"the program asked for more than its {limits.processes} processes"
    return "the program made a system call that is not allowed, and was ended"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
