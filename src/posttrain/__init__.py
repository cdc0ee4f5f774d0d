"""Post-training for language models, from a laptop to a cluster.

The public names are loaded when first used: importing this package imports no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from posttrain.api import evaluate, train
    from posttrain.core.types import (
        EvalReport,
        Group,
        Limits,
        Message,
        Reward,
        Role,
        Sample,
        Split,
        Task,
        Trajectory,
        Verdict,
        VerdictStatus,
    )

__all__ = [
    "EvalReport",
    "Group",
    "Limits",
    "Message",
    "Reward",
    "Role",
    "Sample",
    "Split",
    "Task",
    "Trajectory",
    "Verdict",
    "VerdictStatus",
    "evaluate",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'posttrain' has no attribute {name!r}")
    home = "posttrain.api" if name in ("evaluate", "train") else "posttrain.core.types"
    return getattr(importlib.import_module(home), name)
