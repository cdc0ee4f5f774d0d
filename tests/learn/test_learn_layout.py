"""What goes through the model together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learn.parts import sample, some_samples

from posttrain.core.types import Sample
from posttrain.learn.layout import DENSE_POSITIONS, MICRO_BATCH_OVERHEAD, LayoutOptions, MicroBatch, Tree, layout

PROMPT = list(range(10))


def group(*lengths: int, name: str = "g") -> list[Sample]:
    return [sample(PROMPT, list(range(n)), name=f"{name}{i}", group=name) for i, n in enumerate(lengths)]


def trees(plan: list[list[MicroBatch]]) -> list[Tree]:
    return [tree for rank in plan for batch in rank for row in batch for tree in row]


def computed(rank: list[MicroBatch]) -> int:
    return sum(len(batch) * max(sum(tree.length for tree in row) for row in batch) for batch in rank)


def test_prompt_of_a_group_is_computed_once() -> None:
    plan = layout(group(4, 4, 4, 4), 1, LayoutOptions(row_tokens=64))
    assert len(trees(plan)) == 1
    # Each completion's last token is a target only: 10 + 4 · 3 positions for 56 tokens.
    assert computed(plan[0]) == 22


def test_only_identical_prefixes_of_one_group_are_shared() -> None:
    shorter, other = PROMPT[:-1], [*PROMPT[:-1], 7]
    samples = [*group(3, name="a"), *group(3, name="b")]
    samples += [sample(prompt, [1, 2, 3], name="a9", group="a") for prompt in (shorter, other)]
    assert len(trees(layout(samples, 1, LayoutOptions()))) == 4


def test_tree_too_long_for_a_row_is_split_and_repeats_its_prefix() -> None:
    plan = layout(group(6, 6, 6, 6), 1, LayoutOptions(row_tokens=20))
    assert [(tree.prefix, len(tree.spans)) for tree in trees(plan)] == [(10, 2), (10, 2)]


def test_sample_longer_than_the_budget_gets_a_row_of_its_own() -> None:
    plan = layout(group(30, 2), 1, LayoutOptions(row_tokens=12, micro_batch_tokens=12))
    assert [len(batch) for batch in plan[0]] == [1, 1]


def test_micro_batches_keep_to_their_budget() -> None:
    samples = [s for i in range(12) for s in group(5 + i, name=f"g{i}")]
    plan = layout(samples, 1, LayoutOptions(micro_batch_tokens=64, row_tokens=32))
    assert len(plan[0]) > 1
    for batch in plan[0]:
        assert len(batch) * max(sum(tree.length for tree in row) for row in batch) <= 64


def test_samples_without_a_trainable_token_are_nowhere() -> None:
    samples = [sample(PROMPT, [1, 2], name="empty", trainable=[False, False]), *group(3)]
    assert [span.sample for tree in trees(layout(samples, 1, LayoutOptions())) for span in tree.spans] == [1]
    assert layout(samples[:1], 3, LayoutOptions()) == [[], [], []]


LONG = 3 * DENSE_POSITIONS


def test_short_samples_beside_a_long_one_keep_to_the_budget() -> None:
    samples = [*group(LONG, name="long"), *(s for i in range(60) for s in group(200, name=f"g{i}"))]
    options = LayoutOptions(micro_batch_tokens=1024)
    lengths = [
        len(batch) * max(sum(t.length for t in row) for row in batch) for batch in layout(samples, 1, options)[0]
    ]
    assert max(lengths) == LONG + len(PROMPT) - 1
    assert sorted(lengths)[-2] <= 1024


def test_long_prefix_is_shared_where_it_makes_no_pass_longer_than_the_longest_sample() -> None:
    prompt = [1] * LONG
    samples = [sample(prompt, [2] * n, name=f"{n}", group="g") for n in (400, 190, 180)]
    plan = layout(samples, 1, LayoutOptions())
    assert [[span.sample for span in tree.spans] for tree in trees(plan)] == [[0], [1, 2]]


def test_attention_in_parts_costs_the_pairs_that_see_each_other() -> None:
    """Four siblings in one row: dense attention over it would cost far more than what they see."""
    samples = [sample([1] * 1000, [2] * 1001, name=f"{i}", group="g") for i in range(4)]
    options = LayoutOptions(micro_batch_tokens=8192, row_tokens=8192)
    ((batch,),) = layout(samples, 1, options)
    assert trees([[batch]])[0].num_pairs == 1000**2 / 2 + 4 * (1000 * 1000 + 1000**2 / 2)
    assert options.cost(batch) == 5000 + 6_500_000 / (3 * 576) + MICRO_BATCH_OVERHEAD


@pytest.mark.parametrize("longest", [100, 400, DENSE_POSITIONS // 2])
def test_short_samples_stay_under_a_dense_mask(longest: int) -> None:
    samples = [s for i in range(6) for s in group(*[longest - len(PROMPT)] * 8, name=f"g{i}")]
    rows = [row for batch in layout(samples, 1, LayoutOptions(hidden_size=100_000))[0] for row in batch]
    assert max(sum(tree.length for tree in row) for row in rows) <= DENSE_POSITIONS


@settings(max_examples=40, deadline=None)
@given(
    groups=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), min_size=1, max_size=6),
    world_size=st.integers(1, 4),
    row_tokens=st.integers(0, 60),
    micro_batch_tokens=st.integers(1, 300),
)
def test_every_sample_is_in_exactly_one_place(
    groups: list[list[int]], world_size: int, row_tokens: int, micro_batch_tokens: int
) -> None:
    samples = [s for i, lengths in enumerate(groups) for s in group(*lengths, name=f"g{i}")]
    plan = layout(samples, world_size, LayoutOptions(micro_batch_tokens, row_tokens))
    placed = [span.sample for tree in trees(plan) for span in tree.spans]
    assert sorted(placed) == list(range(len(samples)))
    assert plan == layout(samples, world_size, LayoutOptions(micro_batch_tokens, row_tokens))


def test_two_ranks_get_about_the_same() -> None:
    samples = [s for i in range(8) for s in group(*(3 + (5 * i + 7 * j) % 23 for j in range(8)), name=f"g{i}")]
    loads = [computed(rank) for rank in layout(samples, 2, LayoutOptions())]
    assert max(loads) < 1.15 * min(loads)


def test_one_group_is_shared_by_two_ranks_where_that_is_faster() -> None:
    plan = layout(group(*[40] * 8), 2, LayoutOptions())
    assert all(plan)


@pytest.mark.parametrize("world_size", [1, 2])
def test_computed_row_length_is_no_worse_than_a_row_for_each_sample(world_size: int) -> None:
    options = LayoutOptions(hidden_size=16)

    def cost(row_tokens: int) -> float:
        plan = layout(some_samples(), world_size, LayoutOptions(row_tokens=row_tokens, hidden_size=16))
        return max(sum(map(options.cost, rank)) for rank in plan)

    assert cost(0) <= cost(1)
