"""Attention in parts against attention under a dense mask: the same numbers, and nothing of the size of the mask."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learn.largest_tensor import LargestTensor
from tests.learn.parts import sample, some_samples
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from posttrain.core.types import Sample
from posttrain.learn import layout as layouts
from posttrain.learn.attention import attention_in_parts
from posttrain.learn.layout import LayoutOptions, layout
from posttrain.learn.pack import Batch, collate

HEAD_SIZE = 8
Attend = Callable[[Batch, Tensor, Tensor, Tensor], Tensor]


def batch_of(samples: list[Sample], row_tokens: int) -> Batch:
    options = LayoutOptions(micro_batch_tokens=4096, row_tokens=row_tokens)
    ((micro_batch,),) = layout(samples, 1, options)
    return collate(samples, micro_batch, torch.float64)


def inputs(batch: Batch, dtype: torch.dtype, heads: int = 4, shared_heads: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value as projections lay them: heads beside one another."""
    draw = torch.Generator().manual_seed(0)

    def tensor(count: int) -> Tensor:
        values = torch.randn(*batch.tokens.shape, count, HEAD_SIZE, generator=draw, dtype=torch.float64).to(dtype)
        return values.transpose(1, 2).requires_grad_()

    return tensor(heads), tensor(shared_heads), tensor(shared_heads)


def outputs_and_gradients(attend: Attend, batch: Batch, leaves: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """What padding attends to is nobody's affair: it is left out."""
    output = attend(batch, *leaves)
    own = (batch.segments >= 0)[:, None, :, None].to(output.dtype)
    coefficients = torch.linspace(-1.0, 2.0, output.numel(), dtype=output.dtype).view(output.shape) * own
    return [(output * own).detach(), *torch.autograd.grad(output, leaves, coefficients)]


def dense(batch: Batch, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    mask = batch.attention_mask(query.dtype)
    assert mask is not None
    assert mask.is_floating_point()
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True)


def in_parts(batch: Batch, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention_in_parts(query, key, value, batch.attention_parts, 0.3)


def error(attend: Attend, batch: Batch, dtype: torch.dtype, heads: int = 4, shared_heads: int = 2) -> float:
    """Of outputs and gradients, against the dense mask in float64."""
    query, key, value = inputs(batch, dtype, heads, shared_heads)
    exact = (query.double().detach(), key.double().detach(), value.double().detach())
    expected = outputs_and_gradients(dense, batch, tuple(leaf.requires_grad_() for leaf in exact))  # type: ignore[arg-type]
    pairs = zip(outputs_and_gradients(attend, batch, (query, key, value)), expected, strict=True)
    return max(float((ours - theirs).abs().max()) for ours, theirs in pairs)


@pytest.mark.parametrize("row_tokens", [20, 32, 128])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (6, 2), (3, 1)], ids=str)
def test_outputs_and_gradients_are_those_of_the_dense_mask(row_tokens: int, heads: tuple[int, int]) -> None:
    assert error(in_parts, batch_of(some_samples(), row_tokens), torch.float64, *heads) < 1e-10


@settings(max_examples=30, deadline=None)
@given(
    trees=st.lists(
        st.tuples(st.integers(1, 90), st.lists(st.integers(1, 70), min_size=1, max_size=4)), min_size=1, max_size=4
    ),
    row_tokens=st.integers(2, 300),
)
def test_any_trees_agree_with_the_dense_mask(trees: list[tuple[int, list[int]]], row_tokens: int) -> None:
    # The lone sample of one completion keeps a row of single samples from being plainly causal.
    trees = [*trees, (1, [1, 2])]
    samples = [
        sample([1] * prefix, [2] * length, name=f"{i}-{j}", group=f"{i}")
        for i, (prefix, lengths) in enumerate(trees)
        for j, length in enumerate(lengths)
    ]
    for micro_batch in layout(samples, 1, LayoutOptions(row_tokens=max(row_tokens, 4)))[0]:
        batch = collate(samples, micro_batch, torch.float64)
        if not batch.causal:
            assert error(in_parts, batch, torch.float64, 2, 1) < 1e-10


def test_two_parts_are_merged_in_full_precision_and_rounded_once() -> None:
    batch = batch_of(some_samples(), 128)
    for dtype in (torch.float32, torch.bfloat16):
        assert error(in_parts, batch, dtype) < 1.5 * error(dense, batch, dtype)


def test_positions_in_no_part_get_nothing_and_give_nothing() -> None:
    leaves = inputs(batch_of(some_samples(), 128), torch.float64)
    output = attention_in_parts(*leaves, torch.tensor([[0, 3, 9, 3, 9]]), 1.0)
    outside = torch.ones(output.shape[2], dtype=torch.bool)
    outside[3:9] = False
    for tensor in [output, *torch.autograd.grad(output.sum(), leaves)]:
        assert not tensor[:, :, outside].any()
        assert tensor[:, :, ~outside].any()


def test_nothing_is_made_that_is_larger_than_the_queries() -> None:
    prompt = [1] * 200
    samples = [sample(prompt, [2] * 150, name=f"{i}", group="g") for i in range(4)]
    batch = batch_of(samples, 1000)
    leaves = inputs(batch, torch.float32)
    with LargestTensor() as watch:
        attention_in_parts(*leaves, batch.attention_parts, 1.0).sum().backward()
    assert 0 < watch.num_elements <= leaves[0].numel()
    assert leaves[0].numel() < batch.tokens.shape[1] ** 2


def test_long_rows_carry_a_table_of_parts_instead_of_a_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = batch_of(some_samples(), 128)
    monkeypatch.setattr(layouts, "DENSE_POSITIONS", batch.tokens.shape[1])
    dense = batch.attention_mask(torch.float32)
    assert dense is not None
    assert dense.shape[-1] == batch.tokens.shape[1]
    monkeypatch.setattr(layouts, "DENSE_POSITIONS", batch.tokens.shape[1] - 1)
    table = batch.attention_mask(torch.float32)
    assert table is not None
    assert torch.equal(table[0, 0], batch.attention_parts)
