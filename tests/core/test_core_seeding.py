"""Draws keyed by name: stable everywhere, independent of each other."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.seeding import stable_hash, stable_random

PARTS = st.lists(st.text() | st.integers(), min_size=1, max_size=4)


def test_hash_is_the_same_for_ever() -> None:
    assert stable_hash("run", 1, "task", 2) == 3645409605851545127


def test_hash_is_the_same_in_another_process() -> None:
    program = "from posttrain.core.seeding import stable_hash; print(stable_hash('ünïcode', -5))"
    command = [sys.executable, "-c", program]
    answers = {
        subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2")
    }
    assert answers == {f"{stable_hash('ünïcode', -5)}\n"}


@settings(max_examples=200, deadline=None)
@given(PARTS, PARTS)
def test_hash_tells_lists_of_parts_apart_types_and_borders_included(
    one: list[str | int], other: list[str | int]
) -> None:
    assert 0 <= stable_hash(*one) < 2**63
    same = [(type(part), part) for part in one] == [(type(part), part) for part in other]
    assert (stable_hash(*one) == stable_hash(*other)) is same


def test_number_and_its_digits_are_different_parts() -> None:
    assert len({stable_hash(1), stable_hash("1"), stable_hash(1, 1), stable_hash(11), stable_hash("1", "1")}) == 5


def test_neighbouring_seeds_and_indices_share_no_draw() -> None:
    draws = [stable_random("domain", seed, index).getrandbits(64) for seed in range(50) for index in range(50)]
    assert len(set(draws)) == len(draws)


def test_neighbours_agree_in_half_of_their_bits() -> None:
    differing = [(stable_hash("s", n) ^ stable_hash("s", n + 1)).bit_count() for n in range(500)]
    assert 30 < sum(differing) / len(differing) < 33  # of 63


def test_generator_repeats_itself_from_the_same_parts() -> None:
    assert [stable_random("a", 1).random() for _ in range(2)] == [stable_random("a", 1).random()] * 2
