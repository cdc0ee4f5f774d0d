"""Which attempts of a run a reader should see, and how each is laid out: prompt, shaded reply, verdict.

For each domain a few correct and a few incorrect ones of the last recorded step that has them. Everything in a view is
plain text: escaping is the template's work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from posttrain.core.types import Message, VerdictStatus
from posttrain.observe.token_text import TokenText
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.trajectory_row import TrajectoryRow

FOR_EACH = 2
"""Attempts of each status and domain."""
NUM_STEPS = 5
"""Steps that are looked at, from the last one back."""
DARKEST_NATS = 4.0
"""Surprise at which shading is full."""


@dataclass(frozen=True)
class TokenView:
    text: str
    """Of the token; its number where the run has no tokenizer."""
    shade: float
    """0: the policy was certain; 1: it was very surprised."""
    hint: str


@dataclass(frozen=True)
class AttemptView:
    domain: str
    status: str
    step: int
    level: int
    reward: float | None
    prompt: tuple[Message, ...]
    reply: str
    tokens: tuple[TokenView, ...]
    as_text: bool
    """Whether the tokens' texts spell the reply; otherwise both are shown."""
    reason: str
    answer: str | None
    flags: tuple[str, ...]
    stop: str


def attempt_views(store: TrajectoryStore, text_of: TokenText | None) -> dict[str, list[AttemptView]]:
    """By domain; correct ones first."""
    chosen: dict[str, dict[VerdictStatus, list[TrajectoryRow]]] = {}
    for position in reversed(store.positions()[-NUM_STEPS:]):
        for row in store.read(position):
            if row.status is VerdictStatus.NO_VERDICT:
                continue
            statuses = chosen.setdefault(row.domain, {VerdictStatus.CORRECT: [], VerdictStatus.INCORRECT: []})
            kept = statuses[row.status]
            if len(kept) < FOR_EACH and row.task_id not in {other.task_id for other in kept}:
                kept.append(row)
    return {
        domain: [_view(row, text_of) for rows in statuses.values() for row in rows]
        for domain, statuses in sorted(chosen.items())
    }


def unscored_reasons(*stores: TrajectoryStore) -> list[tuple[str, int]]:
    """Why attempts got no verdict, the ten most frequent reasons first, with how often."""
    rows = (row for store in stores for row in store.unscored())
    return Counter(f"{row.domain}, {row.why_unscored}" for row in rows).most_common(10)


def _view(row: TrajectoryRow, text_of: TokenText | None) -> AttemptView:
    verdict = row.verdict
    assert verdict is not None
    tokens = _tokens(row, text_of)
    return AttemptView(
        domain=row.domain,
        status=str(row.status),
        step=row.step,
        level=row.level,
        reward=row.reward.total if row.reward is not None else None,
        prompt=row.prompt,
        reply=row.reply,
        tokens=tokens,
        as_text=text_of is not None and row.reply.strip() in "".join(token.text for token in tokens),
        reason=verdict.reason,
        answer=verdict.answer,
        flags=verdict.flags,
        stop=str(row.stop),
    )


def _tokens(row: TrajectoryRow, text_of: TokenText | None) -> tuple[TokenView, ...]:
    tokens: Sequence[int] = row.tokens[row.sampled].tolist()
    texts = [str(token) for token in tokens] if text_of is None else text_of(tokens)
    logprobs, versions = row.behavior_logprobs[row.sampled].tolist(), row.versions[row.sampled].tolist()
    return tuple(
        TokenView(text, round(min(1.0, -logprob / DARKEST_NATS), 2), _hint(token, logprob, version))
        for text, token, logprob, version in zip(texts, tokens, logprobs, versions, strict=True)
    )


def _hint(token: int, logprob: float, version: int) -> str:
    return f"log-prob {logprob:.2f}, token {token}, weights {version}"
