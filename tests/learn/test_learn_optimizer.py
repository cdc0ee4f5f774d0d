"""Schedule, clipping, weight decay and master weights, against torch's own AdamW."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from posttrain.learn.optimizer import OptimizerOptions, OptimizerState, ShardedAdamW
from posttrain.learn.parameters import FlatParameters
from posttrain.learn.peers import Peers


def rates(options: OptimizerOptions, total_steps: int) -> list[float]:
    return [options.learning_rate_at(step, total_steps) for step in range(total_steps)]


def test_constant_schedule_warms_up_and_stays() -> None:
    assert rates(OptimizerOptions(learning_rate=1.0, warmup_steps=4), 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_schedule_falls_to_zero_at_the_end() -> None:
    options = OptimizerOptions(learning_rate=1.0, schedule="linear", warmup_steps=1)
    assert rates(options, 5) == pytest.approx([1.0, 1.0, 0.75, 0.5, 0.25])
    assert options.learning_rate_at(5, 5) == 0.0
    assert options.learning_rate_at(9, 5) == 0.0


def test_cosine_schedule_is_half_way_down_at_half_time() -> None:
    options = OptimizerOptions(learning_rate=1.0, schedule="cosine")
    assert options.learning_rate_at(0, 10) == 1.0
    assert options.learning_rate_at(5, 10) == pytest.approx(0.5)
    assert options.learning_rate_at(10, 10) == pytest.approx(0.0)


@pytest.mark.parametrize(
    "fields",
    [{"learning_rate": -1.0}, {"max_grad_norm": math.nan}, {"betas": (0.9, 1.0)}, {"warmup_steps": -1}],
    ids=str,
)
def test_impossible_options_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields))):
        OptimizerOptions(**fields)  # type: ignore[arg-type]


class Setup:
    """A matrix and a vector in float32, computed with in `dtype`."""

    def __init__(self, options: OptimizerOptions, dtype: torch.dtype = torch.float32) -> None:
        draw = torch.Generator().manual_seed(0)
        self.model = nn.Linear(3, 5)
        for parameter in self.model.parameters():
            parameter.data = torch.randn(parameter.shape, generator=draw)
        self.parameters = FlatParameters(self.model)
        size = self.parameters.num_elements
        self.state = OptimizerState(*(torch.zeros(size) for _ in range(3)))
        self.parameters.copy_to(self.state.master)
        self.weights = self.state.master if dtype == torch.float32 else self.state.master.to(dtype)
        self.optimizer = ShardedAdamW(options, self.parameters, self.state, Peers(0, 1, "", 1.0))

    def update(self, scale: float, seed: int = 1, rate: float = 0.1) -> tuple[float, dict[str, torch.Tensor]]:
        """One update from a random gradient; returns the norm and the gradient by name."""
        flat = torch.zeros(self.parameters.num_elements)
        draw = torch.Generator().manual_seed(seed)
        views = self.parameters.views(flat)
        for view in views.values():
            view.copy_(scale * torch.randn(view.shape, generator=draw))
        copies = {name: view.clone() for name, view in views.items()}
        return self.optimizer.update([flat], self.weights, rate), copies


def test_updates_are_those_of_torch_adamw_with_norms_and_biases_undecayed() -> None:
    options = OptimizerOptions(weight_decay=0.3, max_grad_norm=0.0)
    ours = Setup(options)
    model = Setup(options).model
    decayed: dict[str, Any] = {"params": [model.weight]}
    plain: dict[str, Any] = {"params": [model.bias], "weight_decay": 0.0}
    theirs = torch.optim.AdamW([decayed, plain], lr=0.1, betas=options.betas, eps=options.eps, weight_decay=0.3)
    for step in range(3):
        _, gradients = ours.update(1.0, seed=step)
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name]
        theirs.step()
    for name, view in ours.parameters.views(ours.weights).items():
        assert torch.allclose(view, model.get_parameter(name), rtol=1e-5, atol=1e-6)


def test_long_gradient_is_scaled_down_to_the_bound() -> None:
    clipped, small = Setup(OptimizerOptions(max_grad_norm=1.0)), Setup(OptimizerOptions(max_grad_norm=0.0))
    norm, gradients = clipped.update(100.0)
    exact = math.sqrt(sum(float(g.double().square().sum()) for g in gradients.values()))
    assert norm == pytest.approx(exact, rel=1e-6)
    small.update(100.0 / exact)
    assert torch.allclose(clipped.state.first_moment, small.state.first_moment, rtol=1e-5)
    assert torch.allclose(clipped.state.second_moment, small.state.second_moment, rtol=1e-5)


def test_short_gradient_is_left_alone() -> None:
    loose, none = Setup(OptimizerOptions(max_grad_norm=1e9)), Setup(OptimizerOptions(max_grad_norm=0.0))
    assert loose.update(1.0)[0] == none.update(1.0)[0]
    assert torch.equal(loose.weights, none.weights)


@pytest.mark.parametrize("scale", [math.nan, math.inf])
def test_gradient_that_is_not_finite_changes_nothing(scale: float) -> None:
    setup = Setup(OptimizerOptions())
    setup.update(1.0)
    before = [flat.clone() for flat in (setup.weights, *vars(setup.state).values())]
    norm, _ = setup.update(scale)
    assert not math.isfinite(norm)
    for flat, old in zip((setup.weights, *vars(setup.state).values()), before, strict=True):
        assert torch.equal(flat, old)
    assert setup.optimizer.num_updates == 1


def test_steps_too_small_for_bfloat16_add_up_in_the_master_weights() -> None:
    setup = Setup(OptimizerOptions(), torch.bfloat16)
    start = setup.weights.clone()
    setup.update(1.0, rate=1e-5)
    assert torch.equal(setup.weights, start)
    for _ in range(3000):
        setup.update(1.0, rate=1e-5)
    moved = (setup.weights.float() - start.float()).abs()
    used = torch.cat([torch.arange(slot.start, slot.end) for slot in setup.parameters.slots])
    assert moved[used].min() > 0.01


def test_shards_cover_every_element_once() -> None:
    parameters = Setup(OptimizerOptions()).parameters
    for world_size in range(1, 6):
        shards = [parameters.shard(rank, world_size) for rank in range(world_size)]
        covered = [index for shard in shards for index in range(shard.start, shard.stop)]
        assert covered == list(range(parameters.num_elements))
