"""What every policy loss reports of the distance between the policy that sampled and the one that learns."""

from __future__ import annotations

import math

import pytest
import torch
from tests.losses.loss_parts import VOCABULARY, inputs, policy_losses, random_inputs, replaced, tensor

from posttrain.core.registry import build
from posttrain.losses.ratio import MAX_LOG_RATIO, log_ratio, ratio_metrics


def test_ratio_has_no_gradient_and_is_cut_where_exp_would_overflow() -> None:
    far = replaced(inputs([1.0, 1.0, 2.0], [1.0, 1.0, 1.0]), behavior_logprobs=tensor([-1e6, 1e6, -3.0]))
    found = log_ratio(far)
    assert not found.requires_grad
    assert found.tolist() == [MAX_LOG_RATIO, -MAX_LOG_RATIO, 1.0]


@pytest.mark.parametrize("name", policy_losses())
def test_every_policy_loss_reports_how_far_the_policies_are_apart(name: str) -> None:
    out = build("loss", name)(inputs([1.0, 1.5, 5.0], [1.0, 1.0, -1.0]))
    assert out.metrics["importance_ratio"].tolist() == pytest.approx([1.0, 1.5, 5.0])
    assert out.metrics["mismatch"].tolist() == pytest.approx([0.0, math.log(1.5), math.log(5.0)])
    assert out.metrics["mismatch_kl"].tolist() == pytest.approx([r - 1 - math.log(r) for r in (1.0, 1.5, 5.0)])
    assert out.maxima["mismatch_max"].tolist() == pytest.approx([0.0, math.log(1.5), math.log(5.0)])


@pytest.mark.parametrize("name", policy_losses())
def test_nothing_that_is_reported_carries_a_gradient(name: str) -> None:
    out = build("loss", name)(random_inputs([3, 2]))
    assert not any(values.requires_grad for values in (*out.metrics.values(), *out.maxima.values()))


def test_mean_of_mismatch_kl_is_the_kl_of_the_behaviour_to_the_policy() -> None:
    draw = torch.Generator().manual_seed(0)
    behavior, policy = (
        torch.log_softmax(torch.randn(VOCABULARY, generator=draw, dtype=torch.float64), dim=-1) for _ in range(2)
    )
    mean = (behavior.exp() * ratio_metrics(policy - behavior)["mismatch_kl"]).sum()
    assert torch.allclose(mean, (behavior.exp() * (behavior - policy)).sum())
