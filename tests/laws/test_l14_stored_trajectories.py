"""L14 on disk: ids, mask, log-probs and versions of a stored attempt are one structure with one length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import StoreError
from posttrain.core.stream import TokenStream
from posttrain.core.types import Split, StopReason, Task, Trajectory
from posttrain.store.position import Position
from posttrain.store.trajectories import read_trajectories, write_trajectories

ARRAYS = ("tokens", "sampled", "behavior_logprobs", "versions")
SPANS = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 2**31 - 1), max_size=5)), max_size=6)


def attempt(spans: list[tuple[bool, list[int]]]) -> Trajectory:
    stream = TokenStream()
    for version, (by_policy, tokens) in enumerate(spans):
        if by_policy:
            stream.sample(tokens, [-0.1 * (i + 1) for i in range(len(tokens))], [version] * len(tokens))
        else:
            stream.observe(tokens)
    task = Task("words", (), {}, Split.TRAIN, seed=0, index=0, level=1)
    arrays = (stream.tokens(), stream.sampled(), stream.logprobs(), stream.versions())
    return Trajectory("t", task, "g", 0, *arrays, turns=(), reply="", stop=StopReason.STOP)


@settings(max_examples=30, deadline=None)
@given(st.lists(SPANS, min_size=1, max_size=4))
def test_stored_ids_mask_logprobs_and_versions_are_what_they_were(
    tmp_path_factory: pytest.TempPathFactory, attempts: list[list[tuple[bool, list[int]]]]
) -> None:
    path = tmp_path_factory.mktemp("l14") / "rows.parquet"
    written = [attempt(spans) for spans in attempts]
    write_trajectories(path, Position(0, 1), written)
    for before, after in zip(written, read_trajectories(path), strict=True):
        assert len({len(getattr(after, name)) for name in ARRAYS}) == 1
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
            assert getattr(after, name).dtype == getattr(before, name).dtype


@pytest.mark.parametrize("name", ARRAYS)
def test_a_stored_row_whose_lengths_differ_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.parquet"
    write_trajectories(path, Position(0, 1), [attempt([(False, [1, 2]), (True, [3])])])
    table = pq.read_table(path)
    cut = pa.array([table[name][0].as_py()[:-1]], table.schema.field(name).type)
    pq.write_table(table.set_column(table.schema.get_field_index(name), table.schema.field(name), cut), path)
    with pytest.raises(StoreError, match="lengths"):
        read_trajectories(path)
