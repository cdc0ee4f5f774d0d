"""Log-probs from hidden states, against logits in full."""

from __future__ import annotations

import pytest
import torch
from tests.learn.largest_tensor import LargestTensor
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


def test_gradients_are_those_of_all_logits() -> None:
    hidden, weight, targets, temperatures = inputs(torch.float64)
    coefficients = torch.linspace(-1.0, 2.0, len(targets), dtype=torch.float64)
    logprobs, _ = head_logprobs(hidden, weight, targets, temperatures, with_entropy=False)
    ours = torch.autograd.grad((coefficients * logprobs).sum(), [hidden, weight])
    table = torch.log_softmax(hidden @ weight.t() / temperatures[:, None], dim=-1)
    plain = (coefficients * table.gather(1, targets[:, None])[:, 0]).sum()
    for mine, theirs in zip(ours, torch.autograd.grad(plain, [hidden, weight]), strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=1e-12)


def test_frozen_head_costs_no_gradient_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, targets, temperatures = inputs(torch.float64)
    logprobs, _ = head_logprobs(hidden, weight, targets, temperatures, with_entropy=False)
    (expected,) = torch.autograd.grad(logprobs.sum(), [hidden])
    monkeypatch.setattr(Tensor, "addmm_", None)
    logprobs, _ = head_logprobs(hidden, weight.detach(), targets, temperatures, with_entropy=False)
    (found,) = torch.autograd.grad(logprobs.sum(), [hidden])
    assert torch.equal(found, expected)


def combined(logprobs: Tensor, entropy: Tensor) -> Tensor:
    coefficients = torch.linspace(-1.0, 2.0, len(logprobs), dtype=logprobs.dtype)
    return (coefficients * logprobs + coefficients.flip(0) * entropy).sum()


@pytest.mark.parametrize("with_logprobs", [True, False])
def test_entropy_has_the_gradient_of_all_logits(with_logprobs: bool) -> None:
    hidden, weight, targets, temperatures = inputs(torch.float64)
    logprobs, entropy = head_logprobs(hidden, weight, targets, temperatures, with_entropy=True)
    assert entropy is not None
    ours = torch.autograd.grad(combined(logprobs if with_logprobs else 0.0 * entropy, entropy), [hidden, weight])
    table = torch.log_softmax(hidden @ weight.t() / temperatures[:, None], dim=-1)
    plain = table.gather(1, targets[:, None])[:, 0] * float(with_logprobs)
    theirs = torch.autograd.grad(combined(plain, -(table.exp() * table).sum(-1)), [hidden, weight])
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, rtol=0, atol=1e-12)


def test_both_results_pass_a_finite_difference_check() -> None:
    hidden, weight, targets, temperatures = inputs(torch.float64, rows=5)
    assert (temperatures != 1.0).all()

    def both(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        logprobs, entropy = head_logprobs(hidden, weight, targets, temperatures, with_entropy=True)
        assert entropy is not None
        return logprobs, entropy

    assert torch.autograd.gradcheck(both, (hidden, weight))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_entropy_that_is_only_looked_at_changes_no_bit(dtype: torch.dtype) -> None:
    hidden, weight, targets, temperatures = inputs(dtype)
    gradients = []
    for with_entropy in (False, True):
        logprobs, _ = head_logprobs(hidden, weight, targets, temperatures, with_entropy=with_entropy)
        gradients.append(torch.autograd.grad(logprobs.sum(), [hidden, weight]))
    for without, beside in zip(*gradients, strict=True):
        assert torch.equal(without, beside)


@pytest.mark.parametrize("with_entropy", [True, False])
def test_no_table_of_all_tokens_by_all_words_exists(with_entropy: bool) -> None:
    rows = 3 * head.GRADIENT_ROWS + 1
    hidden, weight, targets, temperatures = inputs(torch.float32, rows)
    with LargestTensor() as watch:
        logprobs, entropy = head_logprobs(hidden, weight, targets, temperatures, with_entropy=with_entropy)
        (logprobs.sum() if entropy is None else combined(logprobs, entropy)).backward()
    largest_input = max(hidden.numel(), weight.numel())
    assert 0 < watch.num_elements <= max(largest_input, head.GRADIENT_ROWS * len(weight)) < rows * len(weight)


def test_bfloat16_model_gets_float32_logprobs() -> None:
    hidden, weight, targets, temperatures = inputs(torch.bfloat16)
    logprobs, _ = head_logprobs(hidden, weight, targets, temperatures, with_entropy=False)
    table = torch.log_softmax(hidden.float() @ weight.float().t() / temperatures[:, None], dim=-1)
    assert logprobs.dtype == torch.float32
    assert torch.allclose(logprobs, table.gather(1, targets[:, None])[:, 0], rtol=0, atol=1e-5)
    torch.autograd.backward(logprobs.sum())
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.bfloat16
