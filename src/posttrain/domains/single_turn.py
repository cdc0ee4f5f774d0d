"""One prompt, one reply, one verdict: an `Environment` from a plain `verify(task, reply)`.

A truncated reply is judged like any other text; it usually lacks a final answer and is incorrect for that. A verifier
that raises, or answers with something else than a verdict, gave no verdict (law L23). It does not bound the
verifier's time: whoever plays the episode holds the deadline.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from posttrain.core.errors import IsolationUnavailableError
from posttrain.core.protocols import Transition
from posttrain.core.types import Message, Task, Verdict

Verify = Callable[[Task, str], Verdict | Awaitable[Verdict]]


@dataclass
class SingleTurnEnvironment:
    """Made for one attempt. A synchronous `verify` runs on the event loop: it should be quick, or async."""

    task: Task
    verify: Verify
    version: str
    """Of the verifier; written into verdicts that name none."""
    _stepped: bool = field(default=False, init=False)

    async def reset(self) -> tuple[Message, ...]:
        return self.task.prompt

    async def step(self, reply: str, *, truncated: bool) -> Transition:
        assert not self._stepped, "a single-turn environment was asked to judge a second reply"
        self._stepped = True
        started = time.monotonic()
        verdict = await self._judge(reply)
        verdict = replace(
            verdict,
            verifier_version=verdict.verifier_version or self.version,
            wall_s=verdict.wall_s or time.monotonic() - started,
        )
        return Transition(reward=verdict.score, done=True, verdict=verdict)

    async def close(self) -> None:
        return None

    async def _judge(self, reply: str) -> Verdict:
        try:
            result = self.verify(self.task, reply)
            verdict = await result if inspect.isawaitable(result) else result
        except IsolationUnavailableError:  # no attempt's failure: the run must stop (law L27)
            raise
        except Exception as error:  # a verifier is a plug-in: whatever it raises is its failure, not the candidate's
            return Verdict.none(f"the verifier raised {type(error).__name__}: {error}")
        if not isinstance(verdict, Verdict):
            return Verdict.none(f"the verifier answered with {type(verdict).__name__}, which is no Verdict")
        return verdict
