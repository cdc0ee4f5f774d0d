"""A Hugging Face causal language model as a policy: log-probs of loss tokens, and nothing else.

Hidden states are computed for every position; only those that predict a loss token meet the output head. A model
whose attention or head does not do what packing relies on is refused at load, by trying. Dropout is off. It holds no
optimizer and knows no loss.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posttrain.core.errors import ConfigError, ModelError
from posttrain.learn.head import head_logprobs
from posttrain.learn.pack import Batch

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


def compute_dtype(name: str) -> torch.dtype:
    if name not in DTYPES:
        raise ConfigError(f"a learner computes in {', '.join(DTYPES)}, not in {name!r}")
    return DTYPES[name]


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Of log-probs, losses, gradients' sums, master weights and moments: at least float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


class Policy:
    """Wraps the model in `folder`. Its parameters are plain attributes: whoever trains may move their storage."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        """Raises `ModelError` for a folder that is no causal language model or one that cannot be packed."""
        self.folder = folder
        self.dtype = dtype
        self.model = _load(folder, dtype)
        self.hidden_size: int = self.model.get_output_embeddings().weight.shape[1]
        self.max_context: int = self.model.config.get_text_config().max_position_embeddings
        _refuse_unfaithful(self)

    def logprobs(self, batch: Batch, *, with_entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """`[N]` log-probs of the batch's targets at their temperatures, and the entropy there (no gradient)."""
        hidden = self.hidden_states(batch.tokens, batch.positions, batch.attention_mask(self.dtype))
        chosen = hidden.flatten(0, 1).index_select(0, batch.predict_from)
        head = self.model.get_output_embeddings().weight
        return head_logprobs(chosen, head, batch.targets, batch.temperatures, with_entropy=with_entropy)

    def hidden_states(self, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """`[B, T, H]`, after the last norm."""
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
            folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{folder} cannot be loaded for training: {error}") from error
    return model.eval().requires_grad_(True)


@torch.no_grad()
def _refuse_unfaithful(policy: Policy) -> None:
    """Try a tree of 2 + 1 + 2 tokens against its two branches, and our head against the model's own logits.

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
    branch = ids[:, [0, 1, 3, 4]]
    alone = policy.hidden_states(branch, torch.arange(4)[None], None)[0]
    own = policy.model(input_ids=branch, use_cache=False).logits[0]
    for what, ours, theirs in [
        ("attention masks and positions of packed rows", packed[[0, 1, 3, 4]], alone),
        ("logits that are hidden states times the head's weights", alone @ head.weight.t(), own),
    ]:
        error = (ours - theirs).float().norm() / theirs.float().norm().clamp_min(1e-30)
        # 5 % is far above what the order of sums does in bfloat16, far below what a wrong mask does.
        if not error < 0.05:
            name = policy.model.config.model_type
            raise ModelError(f"training relies on {what}; {name} in {policy.folder} deviates by {error:.1%}")
