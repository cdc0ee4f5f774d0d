"""What a user says of LoRA, and whether it can be had here. No torch and no peft: a configuration is read without them.

The adapter itself is in `learn/lora.py`.
"""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import ConfigDict

from posttrain.core.errors import ConfigError


@dataclass(frozen=True)
class LoraConfig:
    """Low-rank adapters instead of all weights: W + alpha / rank · B · A, of which A and B alone are trained."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    rank: int = 16
    """Columns of B, rows of A."""
    alpha: float = 32.0
    """What is learned is scaled by alpha / rank."""
    targets: list[str] = field(default_factory=list)
    """Last parts of the names of linear layers, as in `["q_proj", "v_proj"]`; empty: every one but the output head."""

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank must be at least 1, not {self.rank}: leave lora out to train all weights")
        if not 0.0 < self.alpha < math.inf:
            raise ValueError(f"alpha must be a finite number above 0, not {self.alpha}")


def require_peft() -> None:
    """Raises `ConfigError` where peft is not installed."""
    if importlib.util.find_spec("peft") is None:
        raise ConfigError("learner.lora needs the package peft: pip install peft (posttrain's extra 'lora')")
