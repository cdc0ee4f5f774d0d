from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from posttrain.store.position import Position

POSITIONS = st.builds(Position, st.integers(0, 99), st.integers(0, 999_999))


@given(POSITIONS, POSITIONS)
def test_names_sort_as_the_run_goes(one: Position, other: Position) -> None:
    assert (one < other) == (str(one) < str(other))


@given(st.builds(Position, st.integers(0, 1000), st.integers(0, 10_000_000)))
def test_a_name_gives_its_position_back(position: Position) -> None:
    assert Position.parse(str(position)) == position


def test_other_names_are_no_positions() -> None:
    assert [Position.parse(name) for name in ("", "1-2", "00-000001.tmp", "x00-000001")] == [None] * 4
