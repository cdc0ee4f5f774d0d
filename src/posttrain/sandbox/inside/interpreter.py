"""A Python that stays for all cells of a session: what runs in the guest's own process, around its cells.

Whatever is here the guest's code can change, so nothing depends on it: who breaks it has broken an interpreter of his
own. A cell is a program's text in one `__main__` for all; its last statement, where it is an expression, is printed as
a notebook would. Between cells the interpreter stands outside the work tree, which a snapshot could not freeze
otherwise, and prints into the void.
"""

# Importing pathlib would cost as much as all the rest:
# ruff: noqa: PTH109, SIM105, SIM115

import _socket
import array
import importlib
import marshal
import os
import resource
import sys
import time

from posttrain.sandbox.inside.cells import DONE_WELL, FRESH, RAISED
from posttrain.sandbox.inside.program import READY, WORK, receive_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import IO, NoReturn

    from posttrain.sandbox.job import Job

_MAX_DESCRIPTORS = 6
_STREAMS = {"stdin": "r", "stdout": "w", "stderr": "w"}
_LOST = 1
"""Exit status where no other cell can come."""


def interpret(link_fd: int) -> "NoReturn":
    """On `link_fd` come the descriptors of cells: standard input, output and errors, the job, and where to say that it
    is done; for the first cell there is, before the last, one for the ready byte, once everything is in place. Ends as
    Python does where a cell says so."""
    link = _socket.socket(fileno=link_fd)
    shell = _Shell()
    *streams, input, answer, said = _received(link)
    job = _job(input)
    for name, amount in job["rlimits"].items():
        resource.setrlimit(getattr(resource, name), (amount, amount))
    os.write(answer, READY + FRESH)
    os.close(answer)
    own = os.getpid()
    while True:
        raised = shell.run(str(job["verb"][1]), job["cpu_s"], streams)
        if os.getpid() != own:
            os._exit(0)  # a copy that the cell has forked: the next cell is not for it
        try:
            done = _socket.socket(fileno=said)
            done.send(RAISED if raised else DONE_WELL)
            done.close()
            *streams, input, said = _received(link)
            job = _job(input)
        except (OSError, ValueError):  # a cell has closed what it found, or left no descriptors
            os._exit(_LOST)


class _Shell:
    def __init__(self) -> None:
        import ast
        import linecache
        import traceback

        self._ast, self._linecache, self._traceback = ast, linecache, traceback
        self._void = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._own: dict[str, IO[str]] = {}
        self._folder = WORK
        self._num_cells = 0
        self._module = sys.modules["__main__"] = type(sys)("__main__")
        sys.argv = [""]
        sys.path.insert(0, "")  # the folder that we are in

    def run(self, code: str, cpu_s: int, streams: "list[int]") -> bool:
        """Whether it raised."""
        self._num_cells += 1
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
            os.close(fd)
        self._give_streams()
        if not _enter(self._folder):
            _enter(WORK)
        _allow(cpu_s)
        importlib.invalidate_caches()  # files may have been written within the resolution of their folders' times
        raised = self._execute(code, f"<cell {self._num_cells}>")
        self._flush()
        self._folder = _left()
        for number in range(len(_STREAMS)):
            os.dup2(self._void, number)
        return raised

    def _execute(self, code: str, name: str) -> bool:
        self._linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        try:
            for part in self._compiled(code, name):
                exec(part, self._module.__dict__)
        except SystemExit:
            raise
        except BaseException as error:
            self._complain(error, name)
            return True
        return False

    def _compiled(self, code: str, name: str) -> "list[CodeType]":
        tree = self._ast.parse(code, name)
        last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], self._ast.Expr) else []
        return [
            compile(tree, name, "exec", dont_inherit=True),
            compile(self._ast.Interactive(last), name, "single", dont_inherit=True),
        ]

    def _complain(self, error: BaseException, name: str) -> None:
        """The traceback, without our own part of it."""
        try:
            lines = self._traceback.format_exception(type(error), error, _from_cell(error.__traceback__, name))
            text = "".join(lines)
        except BaseException:
            text = f"{type(error).__name__}: an exception that cannot say what it is\n"
        self._flush()
        self._own["stderr"].write(text)

    def _give_streams(self) -> None:
        """Ours in their old places, whatever an earlier cell has put there."""
        for number, (name, mode) in enumerate(_STREAMS.items()):
            if name not in self._own or _is_closed(self._own[name]):
                self._own[name] = open(
                    number, mode, buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
                )
            setattr(sys, name, self._own[name])
            setattr(sys, f"__{name}__", self._own[name])

    def _flush(self) -> None:
        """Ours, and what a cell has put in their places, whatever that is."""
        for name in ("stdout", "stderr"):
            for holder in (sys.__dict__, self._own):
                try:
                    holder[name].flush()
                except BaseException:
                    pass


def _from_cell(traceback: "TracebackType | None", name: str) -> "TracebackType | None":
    while traceback and traceback.tb_frame.f_code.co_filename != name:
        traceback = traceback.tb_next
    return traceback


def _is_closed(stream: "IO[str]") -> bool:
    try:
        return stream.closed
    except ValueError:  # its buffer is detached
        return True


def _enter(folder: str) -> bool:
    try:
        os.chdir(folder)
    except OSError:
        return False
    return True


def _left() -> str:
    """The folder that we were in."""
    try:
        folder = os.getcwd()
    except OSError:
        folder = WORK
    os.chdir("/")
    return folder


def _allow(cpu_s: int) -> None:
    """More of it. There is no hard limit, since nobody could raise it; for who ignores SIGXCPU there is the wall
    clock."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    limit = int(time.process_time()) + 1 + cpu_s
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))
    except ValueError:  # a cell has set a hard one
        pass


def _job(fd: int) -> "Job":
    job: Job = marshal.loads(receive_frame(fd))
    os.close(fd)
    return job


def _received(link: "_socket.socket") -> "list[int]":
    descriptors = array.array("i")
    _, ancillary, _, _ = link.recvmsg(16, _socket.CMSG_SPACE(_MAX_DESCRIPTORS * descriptors.itemsize))
    if not ancillary:
        os._exit(_LOST)
    descriptors.frombytes(ancillary[0][2])
    return list(descriptors)
