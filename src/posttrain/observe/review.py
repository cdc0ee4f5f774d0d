"""`posttrain review`, without the parsing: what waits for a label, one label more, and what all of them say.

Writes through `store/review.py`, beside a run that may be going on: it does not take the run's lock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass

from posttrain.core.errors import UserError
from posttrain.core.registry import unknown
from posttrain.core.types import Json
from posttrain.gate.review import ReviewStats, draw, open_items, review_stats
from posttrain.store.attempt_facts import attempt_facts
from posttrain.store.files import plain
from posttrain.store.position import Position
from posttrain.store.review import Label, ReviewItem, ReviewLabel, ReviewStore
from posttrain.store.run_directory import RunDirectory
from posttrain.store.trajectories import TrajectoryStore
from posttrain.store.trajectory_row import TrajectoryRow

PER_STRATUM = 10
"""Attempts drawn of each domain, verdict, reward and of what is flagged or not."""


@dataclass(frozen=True)
class OpenItem:
    """An attempt as its reviewer sees it. What others said of it is not in here: the second label is blind."""

    item: ReviewItem
    prompt: str
    reply: str
    status: str
    """The verifier's."""
    answer: str | None
    """As the verifier read it."""
    reason: str
    reward: float | None
    flags: tuple[str, ...]
    """Detectors that fired."""

    def plain(self) -> dict[str, Json]:
        content = asdict(self)
        row: dict[str, Json] = plain({**content.pop("item"), **content})
        return row


def review_list(run: RunDirectory, reviewer: str, count: int) -> list[OpenItem]:
    """Draw what is missing in the queue, then the first `count` that wait for this reviewer, in random order of
    strata: who stops early has still seen some of everything."""
    attempts = TrajectoryStore(run.trajectories)
    facts = list(attempt_facts(attempts))
    store = ReviewStore(run.review)
    seed = run.manifest().seed
    items = store.extend(lambda known: draw(facts, known, per_stratum=PER_STRATUM, seed=seed))
    held = {one.trajectory_id for one in facts}
    waiting = [item for item in open_items(items, store.labels(), reviewer) if item.trajectory_id in held]
    return _with_texts(attempts, _mixed(waiting)[:count])


def review_label(run: RunDirectory, trajectory_id: str, label: Label, note: str, reviewer: str) -> ReviewLabel:
    """Raises `UserError` for an attempt that is not in the queue or whose label is not this reviewer's to give."""
    if not reviewer.strip():
        raise UserError("a label needs its reviewer's name: --reviewer NAME")
    store = ReviewStore(run.review)
    items = {item.trajectory_id: item for item in store.items()}
    if trajectory_id not in items:
        raise UserError(
            f"{unknown('attempt in the review queue', trajectory_id, list(items)[:20])}: posttrain review list "
            f"{run.path} draws it; labels on attempts of one's own choice would say nothing about the others"
        )
    return store.add(ReviewLabel(trajectory_id, reviewer.strip(), label, note))


def review_command_stats(run: RunDirectory) -> ReviewStats:
    store = ReviewStore(run.review)
    facts = list(attempt_facts(TrajectoryStore(run.trajectories)))
    return review_stats(facts, store.items(), store.labels())


def stats_plain(found: ReviewStats) -> dict[str, Json]:
    content: dict[str, Json] = plain(asdict(found))
    return content


def _mixed(items: list[ReviewItem]) -> list[ReviewItem]:
    """One of each stratum in turn."""
    strata: dict[str, list[ReviewItem]] = defaultdict(list)
    for item in items:
        strata[item.stratum].append(item)
    turns = max((len(own) for own in strata.values()), default=0)
    return [own[turn] for turn in range(turns) for own in strata.values() if turn < len(own)]


def _with_texts(store: TrajectoryStore, items: list[ReviewItem]) -> list[OpenItem]:
    rows: dict[str, TrajectoryRow] = {}
    for position in sorted({Position(item.stage_index, item.step) for item in items}):
        wanted = {item.trajectory_id for item in items}
        rows |= {row.trajectory_id: row for row in store.read(position) if row.trajectory_id in wanted}
    return [_open(item, rows[item.trajectory_id]) for item in items if item.trajectory_id in rows]


def _open(item: ReviewItem, row: TrajectoryRow) -> OpenItem:
    verdict = row.verdict
    return OpenItem(
        item=item,
        prompt=row.prompt[-1].content if row.prompt else "",
        reply=row.reply,
        status=str(row.status),
        answer=verdict.answer if verdict is not None else None,
        reason=verdict.reason if verdict is not None else "",
        reward=row.reward.total if row.reward is not None else None,
        flags=tuple(detection.name for detection in row.detections),
    )
