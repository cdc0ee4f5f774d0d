"""L4 for every registered loss: no token, no term, no gradient and no NaN."""

from __future__ import annotations

import pytest
import torch
from tests.losses.loss_parts import gradients, random_inputs, registered_losses

from posttrain.core.registry import build


@pytest.mark.parametrize("name", registered_losses())
@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]], ids=str)
def test_no_tokens_give_empty_terms_and_no_gradient(name: str, lengths: list[int]) -> None:
    nothing = random_inputs(lengths)
    out = build("loss", name)(nothing)
    assert out.terms
    for values in (*out.terms.values(), *out.metrics.values(), *out.maxima.values()):
        assert values.shape == (0,)
    assert all(values.shape == (0,) for values in gradients(build("loss", name), nothing).values())


@pytest.mark.parametrize("name", registered_losses())
def test_sample_without_tokens_beside_others_brings_no_nan(name: str) -> None:
    loss, beside = build("loss", name), random_inputs([2, 0, 3, 0])
    out = loss(beside)
    for values in (*out.terms.values(), *out.metrics.values(), *gradients(loss, beside).values()):
        assert values.shape == (5,)
        assert torch.isfinite(values).all()
