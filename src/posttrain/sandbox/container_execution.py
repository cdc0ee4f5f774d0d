"""One execution in a container: start it, take its frames apart, watch, end it, and leave nothing behind.

The client's standard input is the container's: when we close it, or die, pid 1 inside ends everything. The container
itself stays until we have asked how it ended, and is removed in any case before the coroutine is left. What happened
is returned as facts (`Ended`); `outcome.py` judges them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator

from posttrain.core.errors import SandboxError
from posttrain.sandbox.container_command import Engine
from posttrain.sandbox.container_engine import ask, new_name, remove, sentence
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.decode import MalformedError
from posttrain.sandbox.inside.contained import ANSWER, ERRORS, HEAD_BYTES, OUTPUT, PIECE_BYTES, REPORT
from posttrain.sandbox.job import Contained, contained_frame, job_frame
from posttrain.sandbox.order import Order
from posttrain.sandbox.tree import has_ended
from posttrain.sandbox.watch import Ended, Report, Stop, Watch, parse_report

_GRACE_S = 2.0
"""Between asking pid 1 to end everything and report, and killing the container."""
_LAST_WAIT_S = 20.0
"""Between killing the container, and giving up on a client that does not notice."""
_MAX_SAID_BYTES = 4096
_NO_MORE = bytes(4)
"""A frame without a body, since the end of the input itself means something else."""


async def execute_in(engine: Engine, order: Order, conversation: Conversation | None = None) -> Ended:
    """Run `order` to its end. Raises `SandboxError` where a container can neither be started nor removed. Where it is
    cancelled, it blocks the event loop until the container is gone."""
    running = _Running(engine, order, conversation)
    try:
        running.begin()
        await running.over.wait()
        ended = await asyncio.to_thread(running.ended)
        await asyncio.to_thread(running.remove)
    finally:
        running.abandon()
    return ended


class Frames:
    """What pid 1 writes, in pieces of any size, taken apart."""

    def __init__(self) -> None:
        self._unread = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Each frame's kind and body. Raises `MalformedError`: then it was not pid 1 who wrote."""
        self._unread += data
        while len(self._unread) >= HEAD_BYTES:
            kind, size = self._unread[:1], int.from_bytes(self._unread[1:HEAD_BYTES], "big")
            if kind not in (OUTPUT, ERRORS, ANSWER, REPORT) or size > PIECE_BYTES:
                raise MalformedError(f"the container wrote {self._unread[:40]!r} where a frame should be")
            if len(self._unread) < HEAD_BYTES + size:
                return
            body, self._unread = self._unread[HEAD_BYTES : HEAD_BYTES + size], self._unread[HEAD_BYTES + size :]
            yield kind, body


class _Running:
    def __init__(self, engine: Engine, order: Order, conversation: Conversation | None) -> None:
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watch = Watch(self._loop, order.limits, conversation, self._on_end)
        self._engine, self._order = engine, order
        self._name = ""
        self._client: subprocess.Popen[bytes] | None = None
        self._pidfd = self._input = self._output = self._complaints = -1
        self._frames = Frames()
        self._report: Report | None = None
        self._said = b""
        self._removed = False

    def begin(self) -> None:
        pipes, order = self._watch.pipes, self._order
        self._output, output_w = pipes.make()
        self._complaints, complaints_w = pipes.make()
        input_r, self._input = pipes.make()
        self._name = new_name()
        command = self._engine.run(self._name, order)
        try:
            # In a session of its own, out of the reach of a terminal's Ctrl-C.
            self._client = subprocess.Popen(
                command, stdin=input_r, stdout=output_w, stderr=complaints_w, start_new_session=True
            )
        except OSError as error:
            raise SandboxError(f"sandbox could not start {command[0]}: {error}") from error
        pipes.close(input_r, output_w, complaints_w)
        self._pidfd = pipes.own(os.pidfd_open(self._client.pid))
        pipes.on_ready(self._pidfd, self._on_client_end)
        pipes.on_data(self._output, self._on_frames)
        pipes.on_data(self._complaints, self._on_complaint)
        job = contained_frame(Contained(stdin=order.stdin)) + job_frame(order, num_ours=None)
        self._watch.begin_relayed(job=job, input=self._input, last=_NO_MORE)

    def ended(self) -> Ended:
        """Blocks, where pid 1 did not report: it may itself have been ended for the memory of all."""
        is_lost = self._report is None and self._watch.ready and not self._watch.stop
        lost_to_memory = is_lost and ask(self._engine.ask_out_of_memory(self._name)) == "true"
        assert self._client is not None
        said = sentence(self._said) or f"{self._engine.program} exited with {self._client.returncode}"
        return self._watch.ended(self._report, said, lost_to_memory=lost_to_memory)

    def remove(self) -> None:
        """Blocks."""
        remove(self._engine, self._name)
        self._removed = True

    def abandon(self) -> None:
        """End whatever is left, wait for it, close everything; after a normal end only the closing is left."""
        self._watch.disarm()
        try:
            if self._client is not None and not self._removed:
                self._end_client()
                self.remove()
        finally:
            self._watch.pipes.close_all()

    def _end_client(self) -> None:
        """A client that is killed while it makes a container would leave one that nobody has a name of yet."""
        client = self._client
        assert client is not None
        self._watch.pipes.close(self._input)
        if client.returncode is None and self._pidfd >= 0 and not has_ended(self._pidfd, _GRACE_S):
            with contextlib.suppress(SandboxError):  # it may not be there yet
                ask(self._engine.kill(self._name))
            has_ended(self._pidfd, _GRACE_S)
        client.kill()
        client.wait()

    # ── as things happen ──────────────────────────────────────────────────────────────────────────────────────

    def _on_frames(self, data: bytes) -> None:
        try:
            for kind, body in self._frames.feed(data):
                self._on_frame(kind, body)
        except MalformedError as error:
            self._watch.blame_us(str(error))
            self._stop(_GRACE_S)

    def _on_frame(self, kind: bytes, body: bytes) -> None:
        if kind == OUTPUT:
            self._watch.take_output("stdout", body)
        elif kind == ERRORS:
            self._watch.take_output("stderr", body)
        elif kind == ANSWER:
            self._watch.take_answer(body)
        else:
            num_oom_kills, _, report = body.partition(b" ")
            self._report = parse_report(report, out_of_memory=int(num_oom_kills) > 0)
            self._watch.over()
            self._watch.after(_GRACE_S, self._kill)

    def _on_complaint(self, data: bytes) -> None:
        self._said = (self._said + data)[-_MAX_SAID_BYTES:]

    def _on_end(self, stop: Stop) -> None:
        self._stop(_GRACE_S if self._watch.ready else 0.0)

    def _stop(self, grace_s: float) -> None:
        """Ask pid 1 to kill all others and report."""
        self._watch.pipes.close(self._input)
        self._watch.after(grace_s, self._kill)

    def _kill(self) -> None:
        self._loop.run_in_executor(None, self._ask_to_kill)
        assert self._client is not None
        self._watch.after(_LAST_WAIT_S, self._client.kill)

    def _ask_to_kill(self) -> None:
        with contextlib.suppress(SandboxError):  # it may have ended in the same moment; `remove` finds out
            ask(self._engine.kill(self._name))

    def _on_client_end(self) -> None:
        assert self._client is not None
        self._client.wait()
        self._watch.pipes.check()
        self._watch.pipes.drain()
        self._watch.pipes.close(self._pidfd, self._output, self._complaints)
        self._watch.over()
        self._watch.disarm()
        self.over.set()
