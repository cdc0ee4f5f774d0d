"""The program's process, from the moment it is confined until the program takes over, and between its inputs.

It reads its job from the host, lays the files, sets the limits, says "ready", and then either becomes `argv` or loads
the candidate's source and answers inputs one at a time. Imports are few and cheap on purpose: executions pay for
them. Nothing here knows an expected value (attack 7).
"""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH102, PTH103, PTH112, PTH118, PTH120, PTH123

import _signal  # type: ignore[import-not-found]  # `signal` builds enums, which costs as much as starting Python
import marshal
import os
import resource
import sys
from _json import encode_basestring_ascii

from posttrain.sandbox.plain import NotPlainError, encode

TYPE_CHECKING = False  # importing typing would cost as much again
if TYPE_CHECKING:
    from posttrain.sandbox.job import Job

_WORK, _SCRATCH = "work", "tmp"
BOX = "/run/box"
"""Where there are mounts; elsewhere each server has its own."""
WORK = f"{BOX}/{_WORK}"
SCRATCH = f"{BOX}/{_SCRATCH}"
DEVICES = ("null", "zero", "full", "random", "urandom")
"""Of /dev: all that there are, or may be opened."""
OPEN_FILES = 128
MAX_ERROR_CHARACTERS = 500
READY = b"R"


def become(read: int, answer: int, box: str = BOX, num_others: int = 0) -> None:
    """Does not return. `read` gives the job and then the inputs, each behind its length in 4 bytes; on `answer` go the
    ready byte, once everything is in place and before the program's first instruction, and then the answers.
    `num_others`: processes of this user that the job's limit does not know of."""
    job: Job = marshal.loads(receive_frame(read))
    verb = job["verb"]
    if not verb:
        _lay_files(box, job["files"])
    if num_others:
        job["rlimits"]["RLIMIT_NPROC"] += num_others
    for name, amount in job["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (amount, amount))
    # The soft limit first, so that the end is SIGXCPU; the hard one for programs that ignore it.
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"] + 1))
    argv, source, function = job["argv"], job["source"], job["function"]
    del job
    os.write(answer, READY)
    if verb:
        _perform(verb, answer)
    if argv:
        os.closerange(3, 1 << 20)
        _execute(argv)
    sys.argv = ["candidate.py"]
    _serve(source, function, read, answer)


def _lay_files(box: str, files: "dict[str, str]") -> None:
    work = os.path.join(box, _WORK)
    for folder in (work, os.path.join(box, _SCRATCH)):
        if not os.path.isdir(folder):  # in a session they are there
            os.mkdir(folder)
    os.chdir(work)
    for path, content in files.items():
        os.makedirs(os.path.dirname(os.path.join(work, path)), exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(content)


def _perform(verb: "list[object]", answer: int) -> None:
    """Of a session, whose server alone has this code."""
    if verb[0] == "test":
        from posttrain.sandbox.inside.testing import run_tests

        run_tests(verb[1], answer)  # type: ignore[arg-type]
    from posttrain.sandbox.inside.files import perform

    perform(verb, answer)


def _execute(argv: "list[str]") -> None:
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
        frame = receive_frame(read)
        if not frame:
            break
        token, arguments = marshal.loads(frame)
        _send(answer, f'{{"token":"{token}",{_call(target, arguments)}}}')
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # not sys.exit: a thread that the candidate left behind must not keep us


def _call(target: object, arguments: "list[object]") -> str:
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


def receive_frame(fd: int) -> "bytes | bytearray":
    """Empty at the end of the input."""
    header = _receive(fd, 4)
    return _receive(fd, int.from_bytes(header, "big")) if header else b""


def _receive(fd: int, size: int) -> "bytes | bytearray":
    data = bytearray()
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
