"""A value head on a policy's own hidden states: the expected return before each token (PPO with a learned critic).

One trunk for both, as in Ziegler et al., arXiv:1909.08593. Its weight is one more parameter of the model, so it is
sharded, stepped and checkpointed like any other; it is never exported, since it is no part of the policy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

NAME = "posttrain_critic"
"""Of the module in the model; its parameters' names begin with it."""


def add_critic(model: Any, hidden_size: int, dtype: torch.dtype) -> nn.Linear:
    """The head, now part of `model`. All zeros: it says 0, and the trunk feels it only once it says something."""
    head = nn.Linear(hidden_size, 1, bias=False, dtype=dtype)
    nn.init.zeros_(head.weight)
    model.add_module(NAME, head)
    return head


def values_of(head: nn.Linear, hidden: Tensor) -> Tensor:
    """`[N]` from hidden states `[N, H]`; float32, or float64 for a float64 model."""
    wide = torch.promote_types(hidden.dtype, torch.float32)
    return (hidden.to(wide) @ head.weight.to(wide).t()).squeeze(1)


def is_critic(name: str) -> bool:
    """Whether a parameter of this name belongs to the head."""
    return name.startswith(f"{NAME}.")
