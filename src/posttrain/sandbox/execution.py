"""One execution within walls that are built for it: start bubblewrap, watch, end it, and leave nothing behind.

Leaving the coroutine early, cancelled or not, kills the process tree before it returns. What happened is returned as
facts (`Ended`); `outcome.py` judges them.
"""

from __future__ import annotations

import asyncio

from posttrain.sandbox.bubblewrap import Host
from posttrain.sandbox.conversation import Conversation
from posttrain.sandbox.job import Single, job_frame, sealed_file, single_file
from posttrain.sandbox.order import Order
from posttrain.sandbox.tree import Tree
from posttrain.sandbox.watch import Ended, Stop, Watch, parse_report

_GRACE_S = 0.5
"""Between asking pid 1 to end everything and report, and ending pid 1."""


async def execute(host: Host, order: Order, conversation: Conversation | None = None) -> Ended:
    """Run `order` to its end. Raises `SandboxError` where a process can neither be started nor ended."""
    running = _Running(order, conversation)
    try:
        running.begin(host)
        await running.over.wait()
        return running.ended()
    finally:
        running.abandon()


class _Running:
    def __init__(self, order: Order, conversation: Conversation | None) -> None:
        self.over = asyncio.Event()
        self._watch = Watch(asyncio.get_running_loop(), order.limits, conversation, self._on_end)
        self._pipes = self._watch.pipes
        self._order = order
        self._tree: Tree | None = None
        self._control = -1
        self._reported = b""

    def begin(self, host: Host) -> None:
        pipes, order = self._pipes, self._order
        stdout, stdout_w = pipes.make()
        stderr, stderr_w = pipes.make()
        info, info_w = pipes.make()
        report, report_w = pipes.make()
        answer, answer_w = pipes.make()
        control_r, self._control = pipes.make()
        input_r, input_w = pipes.make()
        single = Single(uid=host.user(), control=control_r, report=report_w, input=input_r, answer=answer_w)
        code_fd = pipes.own(single_file(single))
        filter_fd = pipes.own(sealed_file("posttrain-seccomp", host.seccomp))
        stdin = pipes.own(sealed_file("posttrain-stdin", order.stdin.encode(errors="replace")))
        inside = (code_fd, filter_fd, info_w, report_w, answer_w, control_r, input_r)
        command = host.single_command(
            code_fd=code_fd, info_fd=info_w, seccomp_fd=filter_fd, disk_mib=order.limits.disk_mib
        )
        self._tree = Tree(command, stdin=stdin, stdout=stdout_w, stderr=stderr_w, pass_fds=inside)
        pipes.close(stdin, stdout_w, stderr_w, *inside)
        pipes.on_ready(self._tree.outer, self._on_outer_end)
        pipes.on_data(info, self._tree.hear)
        pipes.on_data(report, self._on_report)
        self._watch.begin(job=job_frame(order), stdout=stdout, stderr=stderr, input=input_w, answer=answer)

    def ended(self) -> Ended:
        return self._watch.ended(parse_report(self._reported))

    def abandon(self) -> None:
        """Kill whatever is left, wait for it, close everything; after a normal end only the closing is left."""
        self._watch.disarm()
        try:
            if self._tree:
                self._pipes.ignore(self._tree.outer)
                self._tree.end()
        finally:
            self._pipes.close_all()

    def _on_report(self, data: bytes) -> None:
        self._reported += data
        if self._reported.endswith(b"\n"):
            self._watch.over()
            self._kill_after(_GRACE_S)

    def _on_end(self, stop: Stop) -> None:
        """Ask pid 1 to kill all others and report; it notices that the control pipe closes."""
        self._pipes.close(self._control)
        self._kill_after(_GRACE_S if self._watch.ready else 0.0)

    def _kill_after(self, delay_s: float) -> None:
        assert self._tree is not None
        self._watch.after(delay_s, self._tree.kill)

    def _on_outer_end(self) -> None:
        assert self._tree is not None
        self._pipes.ignore(self._tree.outer)
        self._tree.reap()
        self._pipes.check()
        self._pipes.drain()
        self._watch.over()
        self.over.set()
