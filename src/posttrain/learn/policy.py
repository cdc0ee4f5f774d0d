"""A Hugging Face causal language model as a policy: log-probs of loss tokens, and its weights by name.

Hidden states are computed for every position; only those that predict a loss token meet the output head. A model
whose attention or head does not do what packing relies on is refused at load, by trying. Dropout is off. It holds no
optimizer and knows no loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posttrain.core.errors import ConfigError, ModelError, UserError
from posttrain.learn import attention
from posttrain.learn.critic import add_critic, is_critic, values_of
from posttrain.learn.head import head_logprobs
from posttrain.learn.lora import Adapter, is_adapter, plain_name
from posttrain.learn.lora_config import LoraConfig
from posttrain.learn.pack import Batch
from posttrain.learn.recompute import recompute_layers

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def compute_dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ConfigError(f"a learner computes in {', '.join(DTYPES)}, not in {name!r}")
    return DTYPES[name]


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of log-probs, losses, gradients' sums, master weights and moments: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class Outputs:
    """Of a batch's `N` targets, at least float32."""

    logprobs: Tensor
    entropy: Tensor
    values: Tensor | None


class Policy:
    """Wraps the model in `folder`. Its parameters are plain attributes: whoever trains may move their storage."""

    def __init__(
        self,
        folder: Path,
        dtype: torch.dtype,
        *,
        recompute: bool = False,
        critic: bool = False,
        lora: LoraConfig | None = None,
        seed: int = 0,
    ) -> None:
        """`critic` adds a value head, which says 0 until it is trained. `recompute` keeps each layer's input alone and
        computes the rest again in the backward pass, in less memory and about a third more time: the same numbers,
        bit for bit, where rows are short; in long rows up to the order of sums (`learn/recompute.py`). With `lora` the
        model is frozen and an adapter trained, which begins as a function of `seed`.

        Raises `ModelError` for a folder that is no causal language model or one that cannot be packed, `ConfigError`
        for an adapter that does not fit it.
        """
        self.folder = folder
        self.dtype = dtype
        self.model = _load(folder, dtype)
        self.hidden_size: int = self.model.get_output_embeddings().weight.shape[1]
        self.max_context = _max_context(self.model.config.get_text_config())
        self.recomputation = recompute_layers(self.model, folder) if recompute else None
        _refuse_unfaithful(self)
        self.trained_dtype = dtype if lora is None else wide_dtype(dtype)
        self.adapter = None if lora is None else Adapter(self.model, lora, folder, self.trained_dtype, seed)
        self.critic = add_critic(self.model, self.hidden_size, self.trained_dtype) if critic else None

    def parameters(self) -> dict[str, Tensor]:
        """Of the policy as it was loaded, under the names of its folder: neither adapter nor critic."""
        return {
            plain_name(name): parameter.detach()
            for name, parameter in self.model.named_parameters()
            if not (is_adapter(name) or is_critic(name))
        }

    def tensors(self) -> dict[str, Tensor]:
        """All that makes the policy an ordinary model, any adapter merged; what is not merged is the model's memory."""
        buffers = {
            name: tensor
            for name, tensor in self.model.state_dict(keep_vars=True).items()
            if not isinstance(tensor, nn.Parameter)
        }
        merged = {} if self.adapter is None else self.adapter.merged()
        return {**self.parameters(), **merged, **buffers}

    def outputs(self, batch: Batch) -> Outputs:
        """What losses read of the batch's targets; everything has gradients."""
        chosen = self._chosen(batch)
        logprobs, entropy = self._head(chosen, batch, with_entropy=True)
        assert entropy is not None
        return Outputs(logprobs, entropy, None if self.critic is None else values_of(self.critic, chosen))

    def values(self, batch: Batch) -> Tensor:
        """`[N]`, the critic's before each target. Raises `UserError` where there is no critic."""
        if self.critic is None:
            raise UserError("values need a critic: give the stage a [critic]")
        return values_of(self.critic, self._chosen(batch))

    def logprobs(self, batch: Batch, *, with_entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """`[N]` log-probs of the batch's targets at their temperatures, and the entropy there; both have gradients."""
        return self._head(self._chosen(batch), batch, with_entropy=with_entropy)

    def _chosen(self, batch: Batch) -> Tensor:
        """`[N, H]`: the hidden states that predict the targets."""
        hidden = self.hidden_states(batch.tokens, batch.positions, batch.attention_mask(self.dtype))
        return hidden.flatten(0, 1).index_select(0, batch.predict_from)

    def _head(self, chosen: Tensor, batch: Batch, *, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
        head = self.model.get_output_embeddings().weight
        return head_logprobs(chosen, head, batch.targets, batch.temperatures, with_entropy=with_entropy)

    def hidden_states(self, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, T, H]`, after the last norm; `mask` is one of those that `Batch.attention_mask` gives."""
        output = self.model.base_model(
            input_ids=tokens, attention_mask=mask, position_ids=positions, use_cache=False, return_dict=True
        )
        hidden: Tensor = output.last_hidden_state
        return hidden


def _load(folder: Path, dtype: torch.dtype) -> Any:
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a Hugging Face model folder: it has no config.json")
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            attn_implementation="sdpa",
            local_files_only=True,
            use_safetensors=True,  # never a pickle, and never code from the folder (SECURITY.md)
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} cannot be loaded for training: {error}") from error
    attention.register()
    model.set_attn_implementation(attention.NAME)
    if model.config.get_text_config()._attn_implementation != attention.NAME:
        raise ModelError(f"{model.config.model_type} in {folder} lets nobody replace its attention, as long rows need")
    return model.eval().requires_grad_(True)


def _max_context(config: Any) -> int:
    """Beyond a sliding window packed rows, which know none, would see more than the model does."""
    window: int | None = getattr(config, "sliding_window", None)
    limit: int = config.max_position_embeddings
    return limit if window is None else min(limit, window)


def _in_chunks(policy: Policy, ids: Tensor, positions: Tensor, parts: Tensor) -> Tensor:
    """`[T, H]`, as long rows are recomputed."""
    assert policy.recomputation is not None
    policy.recomputation.chunk_positions = 2
    try:
        return policy.hidden_states(ids, positions, parts)[0]
    finally:
        policy.recomputation.chunk_positions = None


@torch.no_grad()
def _refuse_unfaithful(policy: Policy) -> None:
    """Try a tree of 2 + 1 + 2 tokens, under a mask, in parts and in chunks, against its two branches; and our head
    against the model's own logits.

    Sliding windows shorter than this, recurrent layers, position schemes that ignore `position_ids`, and heads that
    scale, cap or shift their logits would make packed training silently wrong.
    """
    head = policy.model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or head.bias is not None:
        raise ModelError(f"the output head of {policy.folder} is not a plain linear map, which training needs")
    ids = torch.arange(5)[None] % len(head.weight)
    restarted = torch.tensor([[0, 1, 2, 2, 3]])
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    visible[3:, 2] = False
    mask = torch.zeros(1, 1, 5, 5, dtype=policy.dtype).masked_fill_(~visible, -torch.inf)
    packed = policy.hidden_states(ids, restarted, mask)[0]
    parts = torch.tensor([[0, 0, 3, 0, 3], [0, 3, 5, 0, 2], [0, 3, 5, 3, 5]])
    in_parts = policy.hidden_states(ids, restarted, parts[None, None])[0]
    in_chunks = in_parts if policy.recomputation is None else _in_chunks(policy, ids, restarted, parts[None, None])
    branch = ids[:, [0, 1, 3, 4]]
    alone = policy.hidden_states(branch, torch.arange(4)[None], None)[0]
    own = policy.model(input_ids=branch, use_cache=False).logits[0]
    for what, ours, theirs in [
        ("attention masks and positions of packed rows", packed[[0, 1, 3, 4]], alone),
        ("attention in parts over packed rows", in_parts[[0, 1, 3, 4]], alone),
        ("layers whose positions meet in attention alone", in_chunks[[0, 1, 3, 4]], alone),
        ("logits that are hidden states times the head's weights", alone @ head.weight.t(), own),
    ]:
        error = (ours - theirs).float().norm() / theirs.float().norm().clamp_min(1e-30)
        # 5 % is far above what the order of sums does in bfloat16, far below what a wrong mask does.
        if not error < 0.05:
            name = policy.model.config.model_type
            raise ModelError(f"training relies on {what}; {name} in {policy.folder} deviates by {error:.1%}")
