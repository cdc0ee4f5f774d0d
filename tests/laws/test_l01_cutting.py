"""L1: the gradient of a step does not depend on how the step is cut, laid out, ordered or shared among ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learn.parts import (
    ENTROPY_BONUS,
    KL_PENALTY,
    POLICY_GRADIENT,
    SUPERVISED,
    VALUE,
    gradient,
    judged,
    norm_in_its_own_dtype,
    sample,
    some_samples,
    watching_trainer,
    write_tiny_model,
)
from tests.losses.loss_parts import registered_losses

from posttrain.core.registry import build
from posttrain.core.types import Sample
from posttrain.learn.layout import LayoutOptions
from posttrain.learn.trainer import Trainer

torch.set_num_threads(1)

TOLERANCE = 1e-10
ONE_BY_ONE = LayoutOptions(micro_batch_tokens=1, row_tokens=1, hidden_size=16)
LAYOUTS = {
    "padded_rows_of_one_sample": LayoutOptions(micro_batch_tokens=4096, row_tokens=1, hidden_size=16),
    "packed_and_prefix_shared": LayoutOptions(micro_batch_tokens=4096, row_tokens=128, hidden_size=16),
    "prefix_shared_in_short_rows": LayoutOptions(micro_batch_tokens=4096, row_tokens=20, hidden_size=16),
    "many_micro_batches": LayoutOptions(micro_batch_tokens=24, row_tokens=24, hidden_size=16),
    "computed": LayoutOptions(micro_batch_tokens=64, row_tokens=0, hidden_size=16),
}
LOSSES: dict[str, list[dict[str, Any]]] = {
    **{name: [{"name": name}] for name in registered_losses()},
    "entropy_bonus": [{"name": "entropy_bonus", "coefficient": 1.0}],
    "several": [POLICY_GRADIENT, KL_PENALTY, ENTROPY_BONUS, VALUE],
    "sequence_ratios_within_bounds": [{"name": "gspo", "clip_low": 1.0, "clip_high": 1e6}],
}


@pytest.fixture(scope="module", autouse=True)
def exact_norms() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", norm_in_its_own_dtype)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module", params=LOSSES)
def trainer(request: pytest.FixtureRequest, model: Path) -> Trainer:
    losses = LOSSES[request.param]
    return watching_trainer(model, *losses, critic=any(build("loss", loss).needs_critic for loss in losses))


@pytest.fixture(scope="module")
def supervised(model: Path) -> Trainer:
    return watching_trainer(model, SUPERVISED)


def plain_gradient(folder: Path, samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """Of the weighted mean negative log-likelihood, one sample at a time, through transformers alone."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    total = sum(float(s.loss_weights[s.trainable].sum(dtype=np.float64)) for s in samples)
    loss = torch.zeros((), dtype=torch.float64)
    for s in samples:
        tokens = torch.from_numpy(s.tokens).long()
        table = torch.log_softmax(model(tokens[None]).logits[0] / np.float32(s.temperature), dim=-1)
        for place in np.flatnonzero(s.trainable):
            loss = loss - float(s.loss_weights[place]) * table[place - 1, tokens[place]] / total
    torch.autograd.backward(loss)
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_same(left: torch.Tensor, right: torch.Tensor) -> None:
    assert left.abs().max() > 1e-3
    assert (left - right).abs().max() < TOLERANCE


def test_gradient_is_that_of_a_plain_loop_over_samples(supervised: Trainer, model: Path) -> None:
    ours = supervised._parameters.views(gradient(supervised, some_samples(), LAYOUTS["packed_and_prefix_shared"]))
    for name, theirs in plain_gradient(model, some_samples()).items():
        assert_same(ours[name], theirs)


@pytest.mark.parametrize("name", LAYOUTS)
def test_gradient_does_not_depend_on_layout_or_micro_batch_split(trainer: Trainer, name: str) -> None:
    samples = judged(some_samples())
    assert_same(gradient(trainer, samples, LAYOUTS[name]), gradient(trainer, samples, ONE_BY_ONE))


def test_gradient_does_not_depend_on_the_order_of_samples(trainer: Trainer) -> None:
    samples = judged(some_samples())
    expected = gradient(trainer, samples, LAYOUTS["packed_and_prefix_shared"])
    for seed in range(3):
        shuffled = [samples[i] for i in np.random.default_rng(seed).permutation(len(samples))]
        assert_same(gradient(trainer, shuffled, LAYOUTS["packed_and_prefix_shared"]), expected)


def test_gradient_is_the_same_with_prefixes_shared_and_with_a_group_for_each_sample(trainer: Trainer) -> None:
    samples = judged(some_samples())
    alone = [sample_of(s, group=f"alone-{i}") for i, s in enumerate(samples)]
    layout = LAYOUTS["packed_and_prefix_shared"]
    assert_same(gradient(trainer, samples, layout), gradient(trainer, alone, layout))


def sample_of(s: Sample, *, group: str) -> Sample:
    fields = {name: getattr(s, name) for name in s.__dataclass_fields__}
    return Sample(**{**fields, "group_id": group})


def test_metrics_do_not_depend_on_the_cut(trainer: Trainer) -> None:
    trainer._layout = ONE_BY_ONE
    one = trainer.step(judged(some_samples()))
    trainer._layout = LAYOUTS["packed_and_prefix_shared"]
    other = trainer.step(judged(some_samples()))
    assert other.num_computed_tokens < one.num_computed_tokens
    assert other.num_loss_tokens == one.num_loss_tokens
    assert other.loss == pytest.approx(one.loss, abs=TOLERANCE)
    assert other.values == pytest.approx(one.values, abs=TOLERANCE)


PROMPTS = ([1], [2, 3, 4], [2, 3, 5, 6, 7, 8])
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.lists(st.integers(0, 39), min_size=1, max_size=6), st.integers(1, 63)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, row_tokens=st.integers(0, 40), micro_batch_tokens=st.integers(1, 120))
def test_gradient_is_the_same_for_any_samples_and_any_budgets(
    supervised: Trainer, rows: list[tuple[int, list[int], int]], row_tokens: int, micro_batch_tokens: int
) -> None:
    samples = [
        sample(
            PROMPTS[prompt],
            completion,
            name=f"{i}",
            group=f"{prompt}",
            trainable=[bool(mask >> place & 1) for place in range(len(completion))],
        )
        for i, (prompt, completion, mask) in enumerate(rows)
    ]
    expected = gradient(supervised, samples, ONE_BY_ONE) if any(s.trainable.any() for s in samples) else None
    if expected is not None:
        ours = gradient(supervised, samples, LayoutOptions(micro_batch_tokens, row_tokens, 16))
        assert (ours - expected).abs().max() < TOLERANCE
