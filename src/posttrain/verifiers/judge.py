"""Replies judged by a language model behind an OpenAI-compatible endpoint, which nobody should trust unwatched.

`gold` is `{"question": …, "rubric": …, "check": …}`. What a program can decide is decided first: an empty reply, text
addressed to the judge, and, where an option names one, another verifier on `check`. The rest is asked, the reply
between marks that nobody can guess, the answer held to a schema. Every batch carries negative controls; if the judge
accepts one, or fails on one, the whole batch has no verdict. All that was said is in the transcript, and only there:
reasons and evidence carry nothing of it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import httpx2
from pydantic import Field

from posttrain.core import registry
from posttrain.core.errors import ConfigError
from posttrain.core.protocols import Sandbox
from posttrain.core.types import Json, Verdict, VerdictStatus
from posttrain.verifiers import text_parts
from posttrain.verifiers.final_answer import MAX_REPLY_CHARACTERS, Refused
from posttrain.verifiers.flags import Flag
from posttrain.verifiers.gold import gold_reader, gold_record
from posttrain.verifiers.json_text import read_json
from posttrain.verifiers.judge_text import (
    CONTROLS,
    INSTRUCTIONS,
    RESPONSE_FORMAT,
    addresses_judge,
    neutral,
    request_text,
)

MAX_ANSWER_CHARACTERS = 500
MAX_RESPONSE_CHARACTERS = 200_000


@gold_record
class JudgeGold:
    """`Judge`'s gold."""

    question: Annotated[str, Field(min_length=1)]
    rubric: Annotated[str, Field(min_length=1)]
    """What a correct reply has; a reference answer may be part of it."""
    check: Any = None
    """The programmatic check's own gold."""


_read = gold_reader(JudgeGold, "a judged task")


@dataclass(frozen=True)
class Opinion:
    """What became of one question to the judge; `correct` is None where there is no usable answer."""

    correct: bool | None
    failure: str = ""
    attempts: int = 1
    exchange: str = ""
    """Of the transcript's last line about it."""


@dataclass(frozen=True)
class Judge:
    """The judge calls the reply correct, and none of the batch's negative controls."""

    base_url: str
    """Up to and with `/v1`."""
    model: str
    transcript: Path
    """JSON lines, one an exchange, appended."""
    api_key_variable: str = ""
    """The environment variable that holds the key; empty: no key is sent."""
    check: Mapping[str, Any] | str | None = None
    """A verifier that must find the reply correct before the judge is asked."""
    timeout_s: float = 60.0
    """Of one request."""
    retries: int = 2
    """After a failure of the server or an answer outside the schema."""
    concurrency: int = 8
    max_tokens: int = 512

    version: ClassVar[str] = "1"

    async def verify(self, reply: str, gold: Json, sandbox: Sandbox | None = None) -> Verdict:
        """A batch of one; controls make it five questions."""
        (verdict,) = await self.verify_batch([(reply, gold)], sandbox)
        return verdict

    async def verify_batch(self, rows: Sequence[tuple[str, Json]], sandbox: Sandbox | None = None) -> list[Verdict]:
        """One verdict for each `(reply, gold)`, in order. Raises ValueError for a gold that cannot be read."""
        golds: list[JudgeGold] = [_read(gold) for _, gold in rows]
        checker = None if self.check is None else registry.build("verifier", self.check)
        verdicts: list[Verdict | None] = [
            _refused_unread(reply) or await self._check(checker, reply, gold, sandbox)
            for (reply, _), gold in zip(rows, golds, strict=True)
        ]
        open_places = [place for place, verdict in enumerate(verdicts) if verdict is None]
        if open_places:
            asked = [(rows[place][0], golds[place]) for place in open_places]
            for place, verdict in zip(open_places, await self._ask_batch(asked), strict=True):
                verdicts[place] = verdict
        return [verdict for verdict in verdicts if verdict is not None]

    async def _check(self, checker: Any, reply: str, gold: JudgeGold, sandbox: Sandbox | None) -> Verdict | None:
        """The programmatic check's verdict, unless that is correct: then the judge has the word."""
        if checker is None:
            return None
        if not inspect.iscoroutinefunction(checker.verify):
            verdict: Verdict = checker.verify(reply, gold.check)
        elif sandbox is None:
            raise ConfigError("the judge's programmatic check runs programs and needs a sandbox; none was given")
        else:
            verdict = await checker.verify(reply, gold.check, sandbox)
        return None if verdict.status is VerdictStatus.CORRECT else verdict

    async def _ask_batch(self, asked: Sequence[tuple[str, JudgeGold]]) -> list[Verdict]:
        """With the controls among the replies, in an order that tells nothing."""
        batch = secrets.token_hex(8)
        controls = [(text, asked[place % len(asked)][1]) for place, text in enumerate(CONTROLS.values())]
        questions = [*asked, *controls]
        order = random.SystemRandom().sample(range(len(questions)), len(questions))
        gate = asyncio.Semaphore(self.concurrency)
        started = time.monotonic()
        async with httpx2.AsyncClient(timeout=self.timeout_s, headers=self._headers()) as client:
            asking = [self._ask(client, gate, batch, *questions[place]) for place in order]
            opinions = dict(zip(order, await asyncio.gather(*asking), strict=True))
        wall_s = (time.monotonic() - started) / len(asked)
        bad = [name for place, name in enumerate(CONTROLS, start=len(asked)) if opinions[place].correct is not False]
        return [
            replace(self._verdict(reply, opinions[place], batch, bad), wall_s=wall_s)
            for place, (reply, _) in enumerate(asked)
        ]

    def _verdict(self, reply: str, opinion: Opinion, batch: str, bad_controls: list[str]) -> Verdict:
        evidence = {
            "judge": self.model,
            "batch": batch,
            "exchange": opinion.exchange,
            "attempts": opinion.attempts,
            "controls": len(CONTROLS),
            "bad_controls": bad_controls,
        }
        shown: dict[str, Any] = {"answer": reply.strip()[:MAX_ANSWER_CHARACTERS], "evidence": evidence}
        if bad_controls:
            names = ", ".join(bad_controls)
            return Verdict.none(f"the judge did not refuse the batch's negative controls: {names}", **shown)
        if opinion.correct is None:
            return Verdict.none(f"the judge failed: {opinion.failure}", **shown)
        return (
            Verdict.correct(**shown) if opinion.correct else Verdict.incorrect("the judge refuses the reply", **shown)
        )

    async def _ask(
        self, client: httpx2.AsyncClient, gate: asyncio.Semaphore, batch: str, reply: str, gold: JudgeGold
    ) -> Opinion:
        opinion = Opinion(None, "it was not asked")
        for attempt in range(1, self.retries + 2):
            # A mark of its own for each attempt: what was once seen is of no use.
            body = self._body(reply, gold, secrets.token_hex(16))
            async with gate:
                status, text, failure = await _post(client, f"{self.base_url.rstrip('/')}/chat/completions", body)
            correct = None if failure else read_opinion(text)
            if not failure and correct is None:
                failure = "its answer is outside the schema"
            opinion = Opinion(correct, failure, attempt, secrets.token_hex(8))
            self._record(batch, body, status, text, opinion)
            if correct is not None or (400 <= status < 500 and status not in (408, 425, 429)):
                break
            if attempt <= self.retries:
                await asyncio.sleep(min(0.1 * 2**attempt, 5.0))
        return opinion

    def _body(self, reply: str, gold: JudgeGold, nonce: str) -> dict[str, Json]:
        return {
            "model": self.model,
            "messages": [
                {"role": "system", "content": INSTRUCTIONS.format(nonce=nonce)},
                {"role": "user", "content": request_text(gold.question, gold.rubric, reply, nonce)},
            ],
            "temperature": 0,
            "max_tokens": self.max_tokens,
            "response_format": RESPONSE_FORMAT,
        }

    def _headers(self) -> dict[str, str]:
        if not self.api_key_variable:
            return {}
        key = os.environ.get(self.api_key_variable)
        if not key:
            raise ConfigError(f"the environment has no {self.api_key_variable}, which is to hold the judge's key")
        return {"Authorization": f"Bearer {key}"}

    def _record(self, batch: str, body: Mapping[str, Json], status: int, text: str, opinion: Opinion) -> None:
        line = {"batch": batch, "at": time.time(), "request": body, "status": status, "response": text}
        with self.transcript.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | asdict(opinion)) + "\n")


def _refused_unread(reply: str) -> Verdict | None:
    """What no judge needs to see, for whom it may be written."""
    if len(reply) > MAX_REPLY_CHARACTERS:
        reason = f"the reply has {len(reply)} of at most {MAX_REPLY_CHARACTERS} characters"
        return Verdict.incorrect(reason, flags=(Flag.TOO_LONG,))
    if not text_parts.words(neutral(reply)):
        return Verdict.incorrect("the reply has no words", flags=(Flag.NO_ANSWER,))
    if addresses_judge(reply):
        return Verdict.incorrect("the reply speaks to its judge", flags=(Flag.ADDRESSES_JUDGE,))
    return None


async def _post(client: httpx2.AsyncClient, url: str, body: Mapping[str, Json]) -> tuple[int, str, str]:
    """The status (0 without one), the answer's text, and why there is no use in it, if so."""
    try:
        response = await client.post(url, json=body)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        return 0, "", f"{type(error).__name__}: {error}"
    if response.status_code != 200:
        return response.status_code, response.text[:MAX_RESPONSE_CHARACTERS], f"the server says {response.status_code}"
    return 200, response.text[:MAX_RESPONSE_CHARACTERS], ""


def read_opinion(text: str) -> bool | None:
    """The judge's verdict in a chat completion; None where it does not keep to the schema to the letter."""
    completion = read_json(text)
    try:
        (choice,) = completion["choices"]  # type: ignore[index]
        content = choice["message"]["content"]
        if choice.get("finish_reason") != "stop" or not isinstance(content, str):
            return None
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
    answer = read_json(content)
    if isinstance(answer, Refused) or not isinstance(answer, dict) or answer.keys() != {"reason", "verdict"}:
        return None
    if not isinstance(answer["reason"], str):
        return None
    return {"correct": True, "incorrect": False}.get(str(answer["verdict"]))
