"""L1 for every registered loss: what it says of a sample does not depend on what else is in the micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.loss_parts import LENGTHS, SEEDS, chosen, gradients, random_inputs, registered_losses

from posttrain.core.registry import build
from posttrain.losses.base import LossInputs

LOSSES = registered_losses()


def assert_said_alike(name: str, together: LossInputs, segments: Sequence[int], apart: LossInputs) -> None:
    """`apart` holds the `segments` of `together` in that order; weights as unequal as loss weights may be."""
    loss = build("loss", name)
    places = torch.cat([torch.empty(0, dtype=torch.int64), *(torch.where(together.segments == s)[0] for s in segments)])
    weights = torch.linspace(0.5, 2.0, len(together.segments), dtype=torch.float64)
    whole, part = loss(together), loss(apart)
    for kind in ("terms", "metrics", "maxima"):
        ours, theirs = getattr(part, kind), getattr(whole, kind)
        assert ours.keys() == theirs.keys()
        for key, values in ours.items():
            assert values.shape == apart.trainer_logprobs.shape, f"{key} is not one value for each token"
            assert torch.allclose(values, theirs[key][places], rtol=0, atol=1e-12), key
    found = gradients(loss, together, weights)
    for field, values in gradients(loss, apart, weights[places]).items():
        assert torch.allclose(values, found[field][places], rtol=0, atol=1e-12), field


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(lengths=LENGTHS, seed=SEEDS, cut=st.integers(0, 5))
def test_cutting_a_micro_batch_in_two_changes_nothing(name: str, lengths: list[int], seed: int, cut: int) -> None:
    together = random_inputs(lengths, seed)
    for segments in (range(min(cut, len(lengths))), range(min(cut, len(lengths)), len(lengths))):
        assert_said_alike(name, together, segments, chosen(together, segments))


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=15, deadline=None)
@given(lengths=LENGTHS, seed=SEEDS, data=st.data())
def test_order_of_the_samples_changes_nothing(name: str, lengths: list[int], seed: int, data: st.DataObject) -> None:
    together = random_inputs(lengths, seed)
    order = data.draw(st.permutations(range(len(lengths))))
    assert_said_alike(name, together, order, chosen(together, order))
