"""Long rows are recomputed a chunk of positions at a time: the same numbers as the plain model's, in less memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learn.parts import some_samples

from posttrain.core.errors import ModelError
from posttrain.learn import layout as layouts
from posttrain.learn import recompute
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.pack import collate
from posttrain.learn.policy import Policy, wide_dtype


def outcome(policy: Policy) -> list[torch.Tensor]:
    """Log-probs, entropy and every parameter's gradient of packed rows that share a prefix."""
    ((micro_batch,),) = layouts.layout(some_samples(), 1, LayoutOptions(row_tokens=128))
    batch = collate(some_samples(), micro_batch, wide_dtype(policy.dtype))
    logprobs, entropy = policy.logprobs(batch, with_entropy=True)
    assert entropy is not None
    torch.autograd.backward((logprobs * torch.linspace(-1, 2, len(logprobs)).to(logprobs) + 0.1 * entropy).sum())
    gradients = [parameter.grad for parameter in policy.model.parameters() if parameter.grad is not None]
    assert len(gradients) == len(list(policy.model.parameters()))
    return [logprobs.detach(), entropy.detach(), *gradients]


@pytest.mark.parametrize("size", [1, 3, 7, 16])
def test_chunks_change_nothing_beyond_the_order_of_sums(
    tiny_model: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "DENSE_POSITIONS", 0)  # in parts, as rows are that are long
    plain = outcome(Policy(tiny_model, torch.float64))
    policy = Policy(tiny_model, torch.float64, recompute=True)
    assert policy.recomputation is not None
    policy.recomputation.chunk_positions = size
    for ours, theirs in zip(outcome(policy), plain, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_a_long_row_is_cut_into_chunks_of_nearly_one_size_that_cover_it() -> None:
    chunks = recompute.Recomputation().chunks(torch.empty(1, 2500, 4))
    assert [chunk.start for chunk in chunks[1:]] == [chunk.stop for chunk in chunks[:-1]]
    assert (chunks[0].start, chunks[-1].stop) == (0, 2500)
    assert {chunk.stop - chunk.start for chunk in chunks} <= {833, 834}


def test_a_short_row_is_one_chunk() -> None:
    assert recompute.Recomputation().chunks(torch.empty(3, recompute.CHUNK_POSITIONS, 4)) == [
        slice(0, recompute.CHUNK_POSITIONS)
    ]


def test_a_model_that_is_another_one_in_chunks_is_refused(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rightly = recompute._LayerInChunks._of_chunk

    def as_if_first(self: recompute._LayerInChunks, option: Any, chunk: slice) -> Any:
        return rightly(self, option, slice(0, chunk.stop - chunk.start))

    monkeypatch.setattr(recompute._LayerInChunks, "_of_chunk", as_if_first)
    with pytest.raises(ModelError, match="layers whose positions meet in attention alone"):
        Policy(tiny_model, torch.float32, recompute=True)
