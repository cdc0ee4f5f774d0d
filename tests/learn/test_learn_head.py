"""Log-probs from hidden states, against logits in full."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from posttrain.learn import head
from posttrain.learn.head import head_logprobs


def inputs(dtype: torch.dtype, rows: int = 11) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, 6, generator=draw).to(dtype).requires_grad_()
    weight = torch.randn(13, 6, generator=draw).to(dtype).requires_grad_()
    targets = torch.randint(13, (rows,), generator=draw)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    temperatures = (0.5 + torch.rand(rows, generator=draw)).to(wide)
    return hidden, weight, targets, temperatures


@pytest.fixture(params=[(128, 1024), (4, 8), (3, 7)], ids=str, autouse=True)
def block_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "SOFTMAX_ROWS", request.param[0])
    monkeypatch.setattr(head, "GRADIENT_ROWS", request.param[1])


def test_logprobs_and_entropy_are_those_of_all_logits() -> None:
    hidden, weight, targets, temperatures = inputs(torch.float64)
    table = torch.log_softmax(hidden @ weight.t() / temperatures[:, None], dim=-1)
    logprobs, entropy = head_logprobs(hidden, weight, targets, temperatures, with_entropy=True)
    assert torch.allclose(logprobs, table.gather(1, targets[:, None])[:, 0], rtol=0, atol=1e-13)
    assert entropy is not None
    assert torch.allclose(entropy, -(table.exp() * table).sum(-1), rtol=0, atol=1e-13)
    assert not entropy.requires_grad


def test_gradients_are_those_of_all_logits() -> None:
    hidden, weight, targets, temperatures = inputs(torch.float64)
    coefficients = torch.linspace(-1.0, 2.0, len(targets), dtype=torch.float64)
    logprobs, _ = head_logprobs(hidden, weight, targets, temperatures, with_entropy=False)
    ours = torch.autograd.grad((coefficients * logprobs).sum(), [hidden, weight])
    table = torch.log_softmax(hidden @ weight.t() / temperatures[:, None], dim=-1)
    plain = (coefficients * table.gather(1, targets[:, None])[:, 0]).sum()
    for mine, theirs in zip(ours, torch.autograd.grad(plain, [hidden, weight]), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


def test_bfloat16_model_gets_float32_logprobs() -> None:
    hidden, weight, targets, temperatures = inputs(torch.bfloat16)
    logprobs, _ = head_logprobs(hidden, weight, targets, temperatures, with_entropy=False)
    table = torch.log_softmax(hidden.float() @ weight.float().t() / temperatures[:, None], dim=-1)
    assert logprobs.dtype == torch.float32
    assert torch.allclose(logprobs, table.gather(1, targets[:, None])[:, 0], rtol=0, atol=1e-5)
    torch.autograd.backward(logprobs.sum())
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.bfloat16
