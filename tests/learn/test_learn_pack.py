"""Tensors of one micro-batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.learn.parts import replace, sample, some_samples

from posttrain.core.errors import UserError
from posttrain.core.types import Sample
from posttrain.learn.layout import LayoutOptions, layout
from posttrain.learn.pack import Batch, collate


def batch_of(samples: list[Sample], row_tokens: int = 64) -> Batch:
    ((micro_batch,),) = layout(samples, 1, LayoutOptions(row_tokens=row_tokens))
    return collate(samples, micro_batch, torch.float64)


TWO = [sample([7, 8], [1, 2, 3], name="a", group="g"), sample([7, 8], [4, 5], name="b", group="g")]


def test_tree_of_two_completions() -> None:
    batch = batch_of(TWO)
    assert batch.tokens.tolist() == [[7, 8, 1, 2, 4]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 2]]
    assert batch.segments.tolist() == [[0, 0, 1, 1, 2]]
    assert batch.parent_segment.tolist() == [-1, 0, 0]
    assert batch.targets.tolist() == [1, 2, 3, 4, 5]
    assert batch.predict_from.tolist() == [1, 2, 3, 1, 4]
    assert batch.owners.tolist() == [0, 0, 0, 1, 1]
    assert batch.places.tolist() == [2, 3, 4, 2, 3]


def test_mask_shows_each_token_its_prefix_and_its_own_past() -> None:
    mask = batch_of(TWO).attention_mask(torch.float32)
    assert mask is not None
    assert (mask[0, 0] == 0).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 1],
    ]


def test_padding_sees_something_and_is_seen_by_nobody() -> None:
    batch = batch_of([*TWO, sample([9], [1, 2], name="c"), sample([9], [1], name="d")], row_tokens=6)
    mask = batch.attention_mask(torch.float32)
    assert mask is not None
    padding = batch.segments < 0
    assert padding.any()
    visible = (mask[:, 0] == 0) & ~padding[:, :, None]
    assert not (visible & padding[:, None, :]).any()
    assert (mask[:, 0] == 0).any(-1).all()  # a row of softmax over nothing would be NaN


def test_row_for_each_sample_needs_no_mask() -> None:
    batch = batch_of(some_samples(), row_tokens=1)
    assert batch.causal
    assert batch.attention_mask(torch.float32) is None
    assert torch.equal(batch.positions, torch.arange(batch.tokens.shape[1]).expand_as(batch.positions))


def test_flat_fields_are_those_of_the_tokens_they_stand_beside() -> None:
    samples = some_samples()
    batch = batch_of(samples, row_tokens=128)
    assert len(batch.targets) == sum(s.num_loss_tokens for s in samples)
    for n in range(len(batch.targets)):
        owner, place = samples[batch.samples[batch.owners[n]]], int(batch.places[n])
        assert owner.trainable[place]
        assert batch.targets[n] == owner.tokens[place]
        assert batch.advantages[n] == owner.advantages[place]
        assert batch.behavior_logprobs[n] == owner.behavior_logprobs[place]
        assert batch.loss_weights[n] == owner.loss_weights[place]
        assert batch.temperatures[n] == np.float32(owner.temperature)
        assert batch.reference_logprobs is not None
        assert owner.reference_logprobs is not None
        assert batch.reference_logprobs[n] == owner.reference_logprobs[place]
        before = batch.tokens.flatten()[batch.predict_from[n]]
        assert before == owner.tokens[place - 1]
        assert batch.positions.flatten()[batch.predict_from[n]] == place - 1


def test_reference_for_some_samples_only_is_refused() -> None:
    with pytest.raises(UserError, match="1 of 2 samples carry reference"):
        batch_of([TWO[0], replace(TWO[1], reference_logprobs=None)])


def test_no_reference_is_no_field() -> None:
    assert batch_of([replace(s, reference_logprobs=None) for s in TWO]).reference_logprobs is None
