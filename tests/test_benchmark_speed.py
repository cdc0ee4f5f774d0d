"""The benchmark measures what it says, on a model and a batch small enough for a test."""

from __future__ import annotations

import asyncio
import json

from benchmarks.speed import Part, as_json, as_table, measure

from posttrain.run.load import parse

CONFIG = {
    "model": "seedling-random",
    "domains": {"arithmetic": {}, "words": {}},
    "stages": [{"kind": "rl"}],
    "engine": {"processes": 0},
    "learner": {"processes": 0, "dtype": "float32"},
}


def test_every_part_is_measured_as_often_as_asked() -> None:
    parts = asyncio.run(measure(parse(CONFIG), num_prompts=2, group_size=2, repeats=2))
    assert [(part.num_sequences, len(part.tokens_per_s)) for part in parts] == [(4, 2), (2, 2), (4, 2)]
    assert all(rate > 0 for part in parts for rate in part.tokens_per_s)


def test_a_row_has_the_median_and_the_range_of_its_repeats() -> None:
    async def nothing() -> int:
        return 0

    part = Part("engine", 3, nothing, [1.0, 9.0, 2.0])
    assert as_table([part]).splitlines()[-1] == "| engine | 3 | 2.0 | 1.1 to 8.7 |"
    row = json.loads(as_json(parse(CONFIG), [part]))["parts"]["engine"]
    assert (row["sequences"], row["tokens_per_s"], len(row["range95"])) == (3, 2.0, 2)
