from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from posttrain.core.errors import PosttrainError, StorageFullError, WorkerDiedError
from posttrain.fleet.host import InlineHost
from posttrain.fleet.learners import LearnerGroup


class Rank:
    """A learner whose `save` fails after it has let the others run `turns` times."""

    def __init__(self, error: PosttrainError | None, turns: int) -> None:
        self.error = error
        self.turns = turns

    async def save(self, folder: Path) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("turns", [0, 9])
def test_the_cause_is_raised_and_not_what_the_other_ranks_saw_of_it(turns: int) -> None:
    left = WorkerDiedError("learner rank 1 ended while rank 0 waited for it")
    ranks = [Rank(left, 5), Rank(StorageFullError("the disk is full"), turns), Rank(None, 0)]
    with pytest.raises(StorageFullError, match="the disk is full"):
        asyncio.run(LearnerGroup([InlineHost(rank) for rank in ranks]).save(Path("folder")))


def test_a_rank_that_died_is_the_cause_where_there_is_no_other() -> None:
    ranks = [Rank(None, 0), Rank(WorkerDiedError("it died (signal SIGKILL)"), 0)]
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        asyncio.run(LearnerGroup([InlineHost(rank) for rank in ranks]).save(Path("folder")))
