"""What `posttrain bench memory` compares the learner's head with."""

from __future__ import annotations

import pytest
import torch

from posttrain.learn import measured_step
from posttrain.learn.head import head_logprobs


@pytest.mark.parametrize("with_entropy", [False, True])
def test_all_logits_at_once_give_what_blocks_give(with_entropy: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(300, 6, generator=draw, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(13, 6, generator=draw, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(13, (300,), generator=draw)
    temperatures = torch.full((300,), 0.7, dtype=torch.float64)
    results = []
    for head in (head_logprobs, measured_step._logprobs_from_all_logits):
        logprobs, entropy = head(hidden, weight, targets, temperatures, with_entropy=with_entropy)
        assert (entropy is not None) == with_entropy
        measured = [logprobs.detach(), *torch.autograd.grad(logprobs.sum(), [hidden, weight])]
        results.append(measured if entropy is None else [*measured, entropy.detach()])
    for blocks, at_once in zip(*results, strict=True):
        assert torch.allclose(blocks, at_once, rtol=0, atol=1e-11)


def test_sample_trains_every_token_but_the_first() -> None:
    assert measured_step._sample(20).num_loss_tokens == 19


def test_a_step_that_does_not_fit_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    step = measured_step.MeasuredStep("", "float32", 64, chunked=True, recompute=True, limit_mib=0)
    monkeypatch.setattr(measured_step.MeasuredStep, "_step_s", lambda self: torch.empty(1 << 60, dtype=torch.uint8))
    assert step.measure() is None


def test_any_other_error_of_a_step_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    step = measured_step.MeasuredStep("", "float32", 64, chunked=True, recompute=True, limit_mib=0)
    monkeypatch.setattr(measured_step.MeasuredStep, "_step_s", lambda self: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="inconsistent tensor size"):
        step.measure()
