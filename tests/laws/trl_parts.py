"""TRL's trainers without models, datasets and generation: only the arithmetic between rewards and loss is called.

TRL is a development dependency; where it is not installed, importing this skips the importing tests.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

_REASON = "trl, a development dependency that only this comparison needs, is not installed"
GRPO: Any = pytest.importorskip("trl.trainer.grpo_trainer", reason=_REASON).GRPOTrainer
RLOO: Any = pytest.importorskip("trl.trainer.rloo_trainer", reason=_REASON).RLOOTrainer


@dataclass(frozen=True)
class Step:
    """Completions of one step as TRL lays them out: `[B, T]`, padded on the right."""

    mask: Tensor  # [B, T] bool: tokens that count
    old_logprobs: Tensor
    reference_logprobs: Tensor
    rewards: Tensor  # [B], groups one after the other
    group_size: int

    @property
    def lengths(self) -> Tensor:
        """`[B]` numbers of tokens that count."""
        return self.mask.sum(dim=1)

    @property
    def completion_ids(self) -> list[list[int]]:
        return [[1] * int(row.nonzero().max() + 1) for row in self.mask]


def trainer(kind: Any, step: Step, logprobs: Tensor, entropy: Tensor, **options: Any) -> Any:
    """A trainer of `kind` that has been given nothing but what its arithmetic reads; `options` are its attributes."""

    def model_says(model: Any, *_: Any, **__: Any) -> tuple[Tensor, Tensor, None]:
        if torch.is_grad_enabled():
            return logprobs, entropy, None
        return (step.reference_logprobs if model == "reference" else step.old_logprobs), entropy, None

    def generated(prompts: Sequence[Any]) -> tuple[Any, ...]:
        prompt_ids, texts = [[1]] * len(prompts), ["x"] * len(prompts)
        if kind is RLOO:
            return prompt_ids, step.completion_ids, texts
        tool_mask = [row[: len(ids)] for row, ids in zip(step.mask.long().tolist(), step.completion_ids, strict=True)]
        return prompt_ids, step.completion_ids, tool_mask, texts, None, {}, None, None

    bare = object.__new__(kind)
    for name, value in {**_settings(step), **_AS_BY_DEFAULT, **_bookkeeping(), **_with_arguments(options)}.items():
        setattr(bare, name, value)
    bare._entropy_bonus_enabled = bare.entropy_coef != 0.0
    bare._get_per_token_logps_and_entropies = model_says
    bare._generate = generated
    bare._calculate_rewards = lambda *_: step.rewards[:, None]
    return bare


_AS_BY_DEFAULT: dict[str, Any] = {
    "beta": 0.0,
    "loss_type": "grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "importance_sampling_level": "token",
    "scale_rewards": "group",
    "normalize_advantages": False,
    "multi_objective_aggregation": "sum_then_normalize",
    "reward_clip_range": None,
    "entropy_coef": 0.0,
    "top_entropy_quantile": 1.0,
    **dict.fromkeys(["use_vllm", "vllm_importance_sampling_correction", "mask_truncated_completions"], False),
    **dict.fromkeys(["aux_loss_enabled", "use_adaptive_entropy", "log_multimodal"], False),
    **dict.fromkeys(["off_policy_mask_threshold", "environment_factories", "environments", "tools"]),
    "pad_to_multiple_of": None,
}

_ARGUMENTS: dict[str, Any] = {
    "delta": None,
    "use_bias_correction_kl": True,
    "steps_per_generation": 1,
    "gradient_accumulation_steps": 1,
    "per_device_train_batch_size": 1,
    "gradient_checkpointing_kwargs": None,
}


def _with_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that TRL keeps as attributes stand as they are, those that it reads from its arguments go there."""
    arguments = {name: options.get(name, value) for name, value in _ARGUMENTS.items()}
    own = {name: value for name, value in options.items() if name not in _ARGUMENTS}
    return {**own, "args": SimpleNamespace(**arguments)}


def _settings(step: Step) -> dict[str, Any]:
    return {
        "max_completion_length": step.mask.shape[1],
        "num_generations": step.group_size,
        "num_iterations": 2,  # makes it ask for the old log-probs
        "current_gradient_accumulation_steps": 1,
        "reward_weights": torch.ones(1, dtype=torch.float64),
        "reward_funcs": [None],
        "reward_func_names": ["reward"],
    }


def _bookkeeping() -> dict[str, Any]:
    """One process, a model in training, logs that nobody reads."""
    return {
        "accelerator": SimpleNamespace(
            device=torch.device("cpu"),
            num_processes=1,
            process_index=0,
            gather=lambda values: values,
            gather_for_metrics=lambda values: values,
            reduce=lambda values, reduction: values,
            sync_gradients=True,
        ),
        "model": SimpleNamespace(training=True, is_gradient_checkpointing=False),
        "ref_model": "reference",
        "_tokenizer": SimpleNamespace(pad_token_id=0),
        "_metrics": defaultdict(lambda: defaultdict(list)),
        "_logs": defaultdict(list, rewards=defaultdict(list)),
        "_pending_extra_logs": {},
        "_pending_metrics": {},
    }


def scored(bare: Any, step: Step) -> dict[str, Tensor]:
    """What the trainer makes of a step's rewards, for its own loss."""
    result: dict[str, Tensor] = bare._generate_and_score_completions([{"prompt": "x"}] * len(step.rewards))
    return result


def loss_of(kind: Any, step: Step, logprobs: Tensor, entropy: Tensor, **options: Any) -> Tensor:
    """From rewards to the loss, as the trainer computes it over the whole step at once."""
    bare = trainer(kind, step, logprobs, entropy, **options)
    loss: Tensor = bare._compute_loss(bare.model, scored(bare, step))
    return loss
