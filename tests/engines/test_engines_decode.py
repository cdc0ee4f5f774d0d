from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines.parts import groups, prompt, request

from posttrain.core.protocols import GenerateRequest, Generation
from posttrain.engines.architecture import read_shape
from posttrain.engines.decode import Decoding
from posttrain.engines.llama import Llama
from posttrain.engines.pages import num_pages_of
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
