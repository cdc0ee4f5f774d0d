"""Where one part of a run lives: in a worker process, or in this one.

Both answer the same `call`, so nothing above knows the difference. In-process hosting exists for tests, debuggers and
very small models; it blocks the event loop while the part computes.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any, Protocol

from posttrain.workers.spec import WorkerSpec
from posttrain.workers.worker import Worker


class Host(Protocol):
    """Something that has the part and calls its methods."""

    async def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """What the method returns. Raises `DeadlineExceededError` where it has a deadline and misses it.

        A worker keeps the deadline by ending its process (law L24), and answers no more. In this process there is
        nothing to end: the deadline is handed to the method, which must have such a parameter.
        """
        ...

    async def stop(self) -> None: ...


class InlineHost:
    """The part is an object of this process."""

    def __init__(self, part: Any) -> None:
        self._part = part

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """As in `Host`; `timeout_s`, where one is given, is among `kwargs`."""
        result = getattr(self._part, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def stop(self) -> None:
        pass


async def host(
    name: str, factory: str, config: dict[str, Any], *, logs: Path, num_threads: int, in_process: bool
) -> Host:
    """Start a part from `module:callable` and plain configuration."""
    if in_process:
        module, _, attribute = factory.partition(":")
        return InlineHost(getattr(importlib.import_module(module), attribute)(**config))
    spec = WorkerSpec(name=name, factory=factory, config=config, num_threads=num_threads, log_path=logs / f"{name}.log")
    return await Worker.start(spec)
