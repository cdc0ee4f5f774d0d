"""What runs inside: the first process of a sandbox, and the program's process before the program takes over.

The first process (pid 1) is ours: it gives up root, lays the files, forks the program, waits, kills what is left and
reports how it went over a pipe that the program does not have. The program's process sets its limits, says "ready",
and then either becomes `argv` or loads the candidate's source and answers inputs one at a time. Imports are few
and cheap on purpose: they are paid for by every execution. Nothing here knows an expected value (attack 7).
"""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH102, PTH103, PTH118, PTH120, PTH123

import _signal  # type: ignore[import-not-found]  # `signal` builds enums, which costs as much as starting Python
import marshal
import os
import resource
import select
import sys
from _json import encode_basestring_ascii

from posttrain.sandbox.plain import NotPlainError, encode

TYPE_CHECKING = False  # importing typing would cost as much again
if TYPE_CHECKING:
    from posttrain.sandbox.job import Job

BOX = "/box"
WORK = "/box/work"
SCRATCH = "/box/tmp"
OPEN_FILES = 128
MAX_ERROR_CHARACTERS = 500
_NEARLY_FULL_BYTES = 1 << 16


def start(job: "Job") -> None:
    """Be pid 1 from here on."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Python's own handler would let the program interrupt us
    if job["uid"]:
        os.setgroups([])
        os.setgid(job["uid"])
        os.setuid(job["uid"])
    _lay_files(job["files"])
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    _signal.signal(_signal.SIGCHLD, lambda *_: None)
    _signal.set_wakeup_fd(wake_write)
    program = os.fork()
    if program == 0:
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        for fd in (wake_read, wake_write, job["control"]):
            os.close(fd)
        _become_program(job)
    os.close(job["input"])
    os.close(job["answer"])
    _wait(program, job["control"], job["report"], wake_read)


def _lay_files(files: dict[str, str]) -> None:
    os.mkdir(WORK)
    os.mkdir(SCRATCH)
    os.chdir(WORK)
    for path, content in files.items():
        os.makedirs(os.path.dirname(os.path.join(WORK, path)), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(content)


class _Ledger:
    """What the reaped processes used."""

    def __init__(self, program: int) -> None:
        self.program = program
        self.status: int | None = None
        self.cpu_s = 0.0
        self.peak_kib = 0
        self.num_unawaited = 0

    def reap(self, flags: int) -> bool:
        """Reap one process; False where there is none (yet)."""
        try:
            pid, status, usage = os.wait4(-1, flags)
        except ChildProcessError:
            return False
        if pid == 0:
            return False
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.peak_kib = max(self.peak_kib, usage.ru_maxrss)
        if pid == self.program:
            self.status = status
        else:
            self.num_unawaited += 1
        return True


def _wait(program: int, control: int, report: int, wake: int) -> None:
    ledger = _Ledger(program)
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    poll.register(control, select.POLLIN)
    stopped = False
    while ledger.status is None and not stopped:
        events = [fd for fd, _ in poll.poll()]
        stopped = control in events  # the host closed its end: it wants us to stop, or it is gone
        if wake in events:
            os.read(wake, 4096)
        while ledger.reap(os.WNOHANG):
            pass
    while _kill_all() and ledger.reap(0):
        pass
    free = os.statvfs(BOX)
    full = free.f_bavail * free.f_frsize < _NEARLY_FULL_BYTES
    line = f"{ledger.status} {int(ledger.cpu_s * 1e6)} {ledger.peak_kib} {ledger.num_unawaited} {int(full)}\n"
    os.write(report, line.encode())
    os._exit(0)


def _kill_all() -> bool:
    """End every process but ourselves; False when there was none left, dead or alive."""
    try:
        os.kill(-1, _signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def _become_program(job: "Job") -> None:
    for name, amount in job["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (amount, amount))
    # The soft limit first, so that the end is SIGXCPU; the hard one for programs that ignore it.
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"] + 1))
    argv, read, answer = job["argv"], job["input"], job["answer"]
    os.write(job["report"], b"R")
    if argv:
        os.closerange(3, 1 << 20)
        _execute(argv)
    os.close(job["report"])
    sys.argv = ["candidate.py"]
    source, function = job["source"], job["function"]
    job.clear()  # type: ignore[attr-defined]
    _serve(source, function, read, answer)


def _execute(argv: list[str]) -> None:
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them; a program expects the default
        _signal.signal(number, _signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except (OSError, ValueError) as error:
        os.write(2, f"{argv[0]} cannot be started: {error}\n".encode(errors="replace"))
    os._exit(127)


def _serve(source: str, function: str, read: int, answer: int) -> None:
    module = type(sys)("candidate")
    sys.modules["candidate"] = module
    try:
        exec(compile(source, "candidate.py", "exec"), module.__dict__)
        target = getattr(module, function)
    except Exception as error:
        _send(answer, f'{{"load_failed":{_describe(error)},"limit":"{_limit(error)}"}}')
        raise
    while True:
        header = _receive(read, 4)
        if not header:
            break
        token, arguments = marshal.loads(_receive(read, int.from_bytes(header, "big")))
        _send(answer, f'{{"token":"{token}",{_call(target, arguments)}}}')
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not sys.exit: a thread that the candidate left behind must not keep us


def _call(target: object, arguments: list[object]) -> str:
    try:
        value = target(*arguments)  # type: ignore[operator]
    except Exception as error:
        return f'"raised":{_describe(error)},"limit":"{_limit(error)}"'
    try:
        return f'"value":{encode(value)}'
    except NotPlainError as error:
        return f'"not_plain":{_describe(error)}'


def _describe(error: Exception) -> str:
    try:
        text = f"{type(error).__name__}: {error}"[:MAX_ERROR_CHARACTERS]
    except Exception:
        text = "an exception that cannot say what it is"
    return encode_basestring_ascii(text.encode(errors="replace").decode())


def _limit(error: Exception) -> str:
    """Which of our limits an exception speaks of, by its `ResultClass`; empty for none."""
    if isinstance(error, MemoryError):
        return "memory_limit"
    if isinstance(error, OSError) and error.errno in (27, 28, 122):  # EFBIG, ENOSPC, EDQUOT
        return "disk_limit"
    if isinstance(error, BlockingIOError) or error.args == ("can't start new thread",):
        return "process_limit"
    return ""


def _receive(fd: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(fd, size - len(data))
        if not piece:
            return b""
        data += piece
    return data


def _send(fd: int, line: str) -> None:
    data = line.encode() + b"\n"
    while data:
        data = data[os.write(fd, data) :]
