from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.parts import groups, prompt, request

from posttrain.core.errors import EngineError
from posttrain.core.protocols import GenerateRequest, Generation
from posttrain.engines.architecture import LlamaShape, read_shape
from posttrain.engines.decode import Decoding
from posttrain.engines.llama import Llama
from posttrain.engines.pages import PagePool, num_pages_of
from posttrain.engines.rotation import Rotation
from posttrain.engines.synchronous import Deadline
from posttrain.engines.torch_operations import TorchOperations
from posttrain.engines.weights import LlamaWeights


class CountingOperations(TorchOperations):
    """Remembers how many rows went through each pass over the layers."""

    def __init__(self) -> None:
        super().__init__(torch.float32)
        self.rows: list[int] = []

    def gated(self, x: torch.Tensor, linear: Any) -> torch.Tensor:
        self.rows.append(len(x))
        return super().gated(x, linear)

    def passes(self, num_layers: int = 2) -> list[int]:
        return self.rows[::num_layers]


class CountedModel:
    """Computes nothing: always the first token of a vocabulary of one."""

    shape = LlamaShape(1, 1, 1, 1, 1, 1, 2, 1e-5, Rotation((1.0,)), 1 << 20, tied=True)
    operations = TorchOperations(torch.float32, prepack=False)

    def prefill(self, prompts: Sequence[torch.Tensor], slots: torch.Tensor, pool: PagePool) -> torch.Tensor:
        return torch.zeros(len(prompts), 1)

    def decode(self, tokens: torch.Tensor, *others: Any) -> torch.Tensor:
        return torch.zeros(len(tokens), 1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


@pytest.fixture
def model(tied: Path) -> Llama:
    operations = CountingOperations()
    shape = read_shape(tied)
    weights = LlamaWeights(shape, operations)
    weights.load(tied)
    return Llama(shape, weights, operations)


def run(
    model: Llama, requests: list[GenerateRequest], max_rows: int = 128
) -> tuple[list[int], Decoding, list[Generation]]:
    """Rows of each pass, the finished decoding, its generations."""
    decoding = Decoding(model, 0, max_rows, requests)
    generations = decoding.run(Deadline(None))
    operations = model.operations
    assert isinstance(operations, CountingOperations)
    return operations.passes(), decoding, generations


def test_a_prompt_of_a_group_is_computed_once(model: Llama) -> None:
    passes, _, _ = run(model, groups(3, 4, max_new_tokens=3))
    assert passes == [3 + 40 + 17, 12, 12]  # the last token is sampled and never fed


def test_equal_prompts_of_different_groups_and_of_none_are_computed_apart(model: Llama) -> None:
    requests = [
        request("a", prompt(6), 1, group="x"),
        request("b", prompt(6), 1, group="y"),
        request("c", prompt(6), 1),
    ]
    requests += [
        request("d", prompt(6), 1),
        request("e", prompt(6), 1, group="x"),
        request("f", prompt(7), 1, group="x"),
    ]
    assert run(model, requests)[0] == [6 * 4 + 7]


def test_a_prompt_stays_while_a_sibling_waits(model: Llama) -> None:
    passes, _, _ = run(model, groups(1, 5, max_new_tokens=3), max_rows=2)
    assert passes == [3, 2, 2, 2, 2, 1, 1]


def test_a_finished_row_leaves_and_the_next_one_takes_its_place(model: Llama) -> None:
    requests = [request(str(length), prompt(4), length, group="g") for length in (6, 2, 3)]
    passes, _, generations = run(model, requests, max_rows=2)
    # Rows 6 and 2 start; when 2 has ended, 3 starts from the prompt while 6 is fed; then both run, then 6 alone.
    assert passes == [4, 2, 1, 2, 2, 1]
    assert [len(generation.tokens) for generation in generations] == [6, 2, 3]


def test_long_prompts_are_computed_apart_from_others(model: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posttrain.engines.decode._PREFILL_TOKENS", 50)
    assert run(model, groups(6, 1, max_new_tokens=1))[0] == [3 + 40, 17 + 32, 33 + 1]


def test_every_page_is_given_back(model: Llama) -> None:
    _, decoding, _ = run(model, groups(5, 3, max_new_tokens=40, stop_tokens=tuple(range(20))), max_rows=4)
    assert decoding.pool.num_free == decoding.pool.num_pages


def test_pages_of_finished_sequences_are_used_again(model: Llama) -> None:
    requests = [request(str(number), prompt(33, number), 40, number) for number in range(20)]
    _, decoding, _ = run(model, requests, max_rows=2)
    together = 2 * (num_pages_of(33) + num_pages_of(39))
    assert decoding.pool.num_pages <= 2 * together


def test_siblings_stand_together_whatever_the_order_of_the_requests(model: Llama) -> None:
    requests = groups(3, 3, max_new_tokens=2)
    mixed = [requests[index] for index in (0, 3, 6, 1, 4, 7, 2, 5, 8)]
    passes, _, generations = run(model, mixed, max_rows=3)
    assert passes == [3, 3, 40, 3, 17, 3]  # group by group
    assert [one.request_id for one in generations] == [one.request_id for one in mixed]


def limited(model: Llama, requests: list[GenerateRequest], max_pages: int) -> tuple[Decoding, list[Generation]]:
    """A decoding that may hold `max_pages`, watched: it never holds more."""
    decoding = Decoding(model, 0, 128, requests, max_pages)
    generations = decoding.run(Deadline(None))
    assert decoding.pool.num_free == decoding.pool.num_pages <= max_pages
    return decoding, generations


@pytest.mark.parametrize("max_pages", [5, 6, 8, 11, 90])
def test_with_few_pages_the_same_tokens_come_later(model: Llama, max_pages: int) -> None:
    """Rows wait and are preempted at page borders; what they sample does not change, nor do its log-probs."""
    requests = [*groups(7, 2, max_new_tokens=40, stop_tokens=(3, 4, 5)), *groups(3, 3, max_new_tokens=70)]
    free = run(model, requests)[2]
    decoding, found = limited(model, requests, max_pages)
    assert (decoding.num_preemptions > 0) == (max_pages < 90)
    for one, other in zip(found, free, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.stop == other.stop
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_mixture_of_lengths_ends_within_any_budget_that_holds_one(data: st.DataObject) -> None:
    """With pages of keys and values that are counted and not computed: no row is lost, none is held for ever."""
    prompts = data.draw(st.lists(st.integers(1, 90), min_size=1, max_size=6))
    rows = data.draw(st.lists(st.tuples(st.integers(0, len(prompts) - 1), st.integers(0, 90)), max_size=16))
    requests = [
        request(str(number), prompt(prompts[group], seed=group), limit, group=str(group))
        for number, (group, limit) in enumerate(rows)
    ]
    needed = max((num_pages_of(prompts[group]) + num_pages_of(limit) for group, limit in rows), default=1)
    max_pages = data.draw(st.integers(needed, needed + 6))
    max_rows = data.draw(st.integers(1, 12))
    decoding = Decoding(cast("Llama", CountedModel()), 0, max_rows, requests, max_pages)
    found = decoding.run(Deadline(None))
    assert [len(one.tokens) for one in found] == [one.max_new_tokens for one in requests]
    assert decoding.pool.num_free == decoding.pool.num_pages <= max_pages


def test_a_sequence_that_never_fits_is_refused_before_anything_is_computed(model: Llama) -> None:
    with pytest.raises(EngineError, match=r"may need 4 pages .* \(33 \+ 63 tokens\), and .* cache_mib allows 3"):
        Decoding(model, 0, 8, [request("r", prompt(33), 63)], max_pages=3)


def test_a_prompt_that_only_waits_gives_its_pages_to_rows_that_run() -> None:
    """The short row is preempted, and the long one then needs even what the short one's prompt holds."""
    requests = [request("long", prompt(1), 190, group="a"), request("short", prompt(33), 80, group="b")]
    decoding = Decoding(cast("Llama", CountedModel()), 0, 128, requests, max_pages=7)
    for _ in range(1000):
        if decoding._waiting or len(decoding._running):
            decoding._step()
    assert not decoding._waiting
    assert not len(decoding._running)
    assert decoding.num_preemptions > 0
