"""Rotary embeddings (Su et al., arXiv:2104.09864): how fast each pair of dimensions turns, with the published ways of
stretching that to longer contexts.

The stretched frequencies are transformers' own, so that sampling turns as training does. Ways whose frequencies depend
on the length of the sequence are not here: a cache of keys cannot be turned again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.core.errors import ModelError

STRETCHED = ("linear", "llama3", "yarn")


@dataclass(frozen=True)
class Rotation:
    frequencies: tuple[float, ...]
    """Radians a position, one for each of the D/2 pairs."""
    scale: float = 1.0
    """Of cosines and sines: YaRN's correction of the attention's temperature (Peng et al., arXiv:2309.00071)."""

    def angles(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines, [T, D/2] float32 each, at `positions` [T]."""
        angles = positions.float()[:, None] * torch.tensor(self.frequencies)
        return angles.cos() * self.scale, angles.sin() * self.scale


def read_rotation(folder: Path, config: Mapping[str, Any], head_dim: int) -> Rotation:
    """Of a configuration whose `rope_type` is supported. Raises `ModelError` where it lacks a number of that type's."""
    rope = _rope_options(config)
    if rope_type(config) == "default":
        theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10_000.0)
        exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
        return Rotation(tuple((1.0 / theta**exponents).tolist()))
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    try:
        whole = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        frequencies, scale = ROPE_INIT_FUNCTIONS[rope_type(config)](whole)
    except KeyError as error:
        raise ModelError(f"{folder} has a rotation of type {rope_type(config)} that does not state {error}") from None
    return Rotation(tuple(frequencies.tolist()), float(scale))


def _rope_options(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Newer configurations keep theta and type together; older ones have `rope_theta` and an optional scaling."""
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def rope_type(config: Mapping[str, Any]) -> str:
    rope = _rope_options(config)
    return str(rope.get("rope_type", rope.get("type", "default")))
