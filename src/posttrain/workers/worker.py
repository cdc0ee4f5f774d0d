"""A supervised worker: one object in a child process, called by method name, one call at a time.

A call that is out of time, or that its caller cancels, is ended by ending the process (law L24): there is never a
late answer to mistake for the next one. A worker is not started again here; `pool.py` replaces those it lost.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from posttrain.core.errors import DeadlineExceededError, WorkerDiedError
from posttrain.workers import wire
from posttrain.workers.messages import Answer, Build, Call, Raised
from posttrain.workers.process import ChildProcess
from posttrain.workers.spec import WorkerSpec


class Worker:
    """Made by `start`, ended by `stop` or `kill`; a worker that died or ran out of time needs neither.

    The thread that starts a worker must outlive it: the kernel kills the child when that thread ends.
    """

    def __init__(self, spec: WorkerSpec, process: ChildProcess) -> None:
        self.spec = spec
        self._process = process
        self._turn = asyncio.Lock()  # first come, first served
        self._ended_because = ""

    @classmethod
    async def start(cls, spec: WorkerSpec, *, timeout_s: float = 300.0) -> Worker:
        """Start the process and wait until its factory has returned.

        Raises what `call` raises: `WorkerCallError` for a factory that raised, and so on.
        """
        frame = wire.encode(Build(tuple(sys.path), spec.factory, spec.config))
        worker = cls(spec, ChildProcess(spec))
        try:
            await worker._ask(frame, "its factory", timeout_s)
        except BaseException:
            await worker.kill()
            raise
        return worker

    @property
    def alive(self) -> bool:
        return self._process.alive

    @property
    def killed(self) -> bool:
        """Whether this side ended it: by a deadline, a cancelled call, `kill` or `stop`."""
        return bool(self._ended_because)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Call `method` of the worker's object, sync or async, and return what it returns.

        The deadline counts from when the worker turns to this call, not from when the call began to wait for it.
        Raises `WorkerCallError` where the method raised (an error of `core/errors.py` keeps its class; the worker's
        traceback is the exception's note), `WorkerDiedError` with the reason and the end of its log, and
        `DeadlineExceededError` after the process has been killed. A cancelled call kills it too, once it has begun.
        """
        return await self._ask(wire.encode(Call(method, args, kwargs)), method, timeout_s)

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Let the call under way finish and the object close itself, for `grace_s` together; then kill."""
        self._ended_because = self._ended_because or "it was stopped"
        try:
            if self.alive:
                self._process.close_requests()
                async with asyncio.timeout(grace_s):
                    await self._process.ended()
        except TimeoutError:
            pass  # it is killed with what is left of its group
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End the process and what it started, at once; returns when all of it is gone. May be called again."""
        self._ended_because = self._ended_because or "it was killed"
        self._process.kill()
        async with self._turn:  # the call under way lets go of the channel first
            await self._process.reap()

    async def _ask(self, frame: wire.Frame, method: str, timeout_s: float | None) -> Any:
        async with self._turn:
            answer: Answer = wire.decode(await self._exchange(frame, method, timeout_s))
        if isinstance(answer, Raised):
            raise answer.error(self.spec.name, method)
        return answer.value

    async def _exchange(self, frame: wire.Frame, method: str, timeout_s: float | None) -> wire.Frame:
        try:
            return await self._process.exchange(frame, timeout_s)
        except TimeoutError:
            await self._end(f"{method} ran out of time")
            raise DeadlineExceededError(
                f"worker {self.spec.name}: {method} ran out of time: it had {timeout_s} s; its process was ended"
            ) from None
        except asyncio.CancelledError:
            await self._end(f"its call {method} was cancelled")
            raise
        except (EOFError, OSError):
            await self._process.reap()
            raise WorkerDiedError(self._obituary(method)) from None

    async def _end(self, because: str) -> None:
        self._ended_because = self._ended_because or because
        self._process.kill()
        await self._process.reap()

    def _obituary(self, method: str) -> str:
        reason = self._ended_because or f"it died ({self._process.exit_reason()})"
        tail = self._process.log_tail()
        log = f"the end of {self.spec.log_path}:\n{tail}" if tail else f"{self.spec.log_path} is empty"
        return f"worker {self.spec.name} owes the answer to {method}: {reason}; {log}"
