"""L30: train and evaluation tasks never share content; neighbouring seeds and indices share nothing."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posttrain.core.errors import OverlapError
from posttrain.core.protocols import Domain
from posttrain.core.registry import build
from posttrain.core.types import Limits, Split
from posttrain.domains.function import FunctionDomain
from posttrain.domains.streams import Problem, draw, split_of

DOMAINS: list[Domain] = [build("domain", name) for name in ("arithmetic", "ordering", "python_functions", "words")]
every_domain = pytest.mark.parametrize("domain", DOMAINS, ids=[domain.name for domain in DOMAINS])


@every_domain
def test_train_and_evaluation_never_overlap_whatever_the_seeds_and_levels(domain: Domain) -> None:
    ids = {
        split: {
            domain.task(split, seed, index, level).task_id
            for seed in seeds
            for level in range(1, domain.levels + 1)
            for index in range(60)
        }
        for split, seeds in ((Split.TRAIN, (0, 1)), (Split.EVAL, (0, 7)))
    }
    assert ids[Split.TRAIN].isdisjoint(ids[Split.EVAL])
    assert all(len(found) > 100 for found in ids.values())


@every_domain
def test_the_prompts_of_the_two_sides_differ_too(domain: Domain) -> None:
    prompts = [
        {domain.task(split, 3, index, level).prompt for level in range(1, domain.levels + 1) for index in range(60)}
        for split in Split
    ]
    assert prompts[0].isdisjoint(prompts[1])


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 40))
def test_even_a_tiny_content_space_is_divided_without_overlap(train_seed: int, eval_seed: int, size: int) -> None:
    def make(state: random.Random) -> Problem:
        value = str(state.randrange(size + 60))
        return Problem(f"Say {value}.", {}, value, Limits())

    train = {draw("tiny", Split.TRAIN, train_seed, index, 1, make).task_id for index in range(40)}
    held_out = {draw("tiny", Split.EVAL, eval_seed, index, 1, make).task_id for index in range(40)}
    assert train.isdisjoint(held_out)


def _first_draw(domain: str, split: Split, seed: int, index: int, level: int) -> str:
    """What an item's random state gives first: drawn content is that state where every draw is admitted."""

    def make(state: random.Random) -> Problem:
        value = str(state.getrandbits(62))
        return Problem(value, {}, value, Limits())

    return draw(domain, split, seed, index, level, make).content_key


def test_every_coordinate_of_an_item_changes_its_whole_random_state() -> None:
    grid = itertools.product(("a", "b"), Split, range(-2, 6), range(12), (1, 2))
    drawn = [_first_draw(*coordinates) for coordinates in grid]
    assert len(set(drawn)) == len(drawn)


def test_a_seeds_stream_is_not_its_neighbours_stream_shifted() -> None:
    streams = {seed: {_first_draw("a", Split.TRAIN, seed, index, 1) for index in range(200)} for seed in range(5)}
    for one, other in itertools.combinations(streams.values(), 2):
        assert one.isdisjoint(other)


@every_domain
def test_neighbouring_seeds_share_no_more_than_chance(domain: Domain) -> None:
    """In a content space as large as the highest level's, two streams of 100 hardly meet; equal places never agree
    more than rarely."""
    level = domain.levels
    one, other = ([domain.task(Split.TRAIN, seed, index, level).task_id for index in range(100)] for seed in (4, 5))
    assert sum(a == b for a, b in zip(one, other, strict=True)) <= 3
    assert sum(a == b for a, b in zip(one[1:], other, strict=False)) <= 3


@settings(deadline=None, max_examples=40)
@given(st.lists(st.text(min_size=1, max_size=4).filter(str.strip), min_size=2, max_size=60, unique=True))
def test_a_users_own_rows_are_divided_without_overlap(prompts: list[str]) -> None:
    domain = FunctionDomain([(prompt, None) for prompt in prompts], lambda task, reply: 0.0)
    sides = [
        {domain.task(split, seed, index, 1).task_id for seed in (0, 1) for index in range(len(prompts))}
        for split in Split
    ]
    assert sides[0].isdisjoint(sides[1])
    assert len(sides[0] | sides[1]) == len(prompts)


def test_evaluation_rows_of_the_users_own_that_are_trained_on_are_refused() -> None:
    with pytest.raises(OverlapError):
        FunctionDomain([("a", 1), ("b", 2)], lambda task, reply: 0.0, eval_tasks=[("b", 2)])


def test_content_has_one_side_whatever_asks() -> None:
    assert {split_of("toy", "content") for _ in range(10)} == {split_of("toy", "content")}
    sides = {(domain, content): split_of(domain, content) for domain in "ab" for content in "cdefghijklmnop"}
    assert len({tuple(sides[domain, content] for content in "cdefghijklmnop") for domain in "ab"}) == 2
