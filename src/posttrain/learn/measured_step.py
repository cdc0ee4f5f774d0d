"""One training step of one long sample, measured in a process of its own: the child's side of `posttrain bench memory`.

The step is the learner's (forward, backward, AdamW with float32 master weights, all parameters). For comparison it can
compute all logits at once, which the learner itself has no option for. It repeats nothing: what a step costs that fills
a machine is not measured twice.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from posttrain.core.protocols import StageSpec
from posttrain.core.types import Sample
from posttrain.learn import policy
from posttrain.learn.head import head_logprobs
from posttrain.learn.samples import demonstration_sample
from posttrain.learn.trainer import Trainer

NUM_WARM_TOKENS = 16
"""Of a first step that is not timed: it loads libraries and touches the optimizer's pages."""


@dataclass(frozen=True)
class Measured:
    peak_mib: int
    """Resident memory of the whole process at its highest, libraries and loading included."""
    step_s: float


class MeasuredStep:
    """A worker's part; `measure` is to be called once, since a process has only one peak."""

    def __init__(self, model: str, dtype: str, context: int, *, chunked: bool, recompute: bool, limit_mib: int) -> None:
        """`context` counts the sample's tokens; `limit_mib` bounds the process's own data, 0 does not."""
        self._model = model
        self._dtype = dtype
        self._context = context
        self._chunked = chunked
        self._recompute = recompute
        if limit_mib:
            resource.setrlimit(resource.RLIMIT_DATA, (limit_mib << 20, limit_mib << 20))

    def measure(self) -> Measured | None:
        """None where the memory did not suffice."""
        try:
            step_s = self._step_s()
        except MemoryError:
            return None
        except RuntimeError as error:  # torch has no class of its own for it on a CPU
            if "can't allocate memory" in str(error) or "bad_alloc" in str(error):
                return None
            raise
        return Measured(_peak_mib(), step_s)

    def _step_s(self) -> float:
        head = head_logprobs if self._chunked else _logprobs_from_all_logits
        with patch.object(policy, "head_logprobs", head):
            trainer = Trainer(self._model, self._dtype, recompute=self._recompute)
            trainer.begin_stage(StageSpec([{"name": "supervised"}], {"learning_rate": 1e-5}, total_steps=2))
            trainer.step([_sample(NUM_WARM_TOKENS)])
            return trainer.step([_sample(self._context)]).wall_s


def _sample(num_tokens: int) -> Sample:
    """Tokens that any vocabulary has; every one but the first is trained."""
    tokens = np.random.default_rng(0).integers(0, 256, num_tokens).astype(np.int32)
    return demonstration_sample("measured", "bench", tokens, np.arange(num_tokens) > 0)


def _peak_mib() -> int:
    """The kernel's high-water mark of this process; a page that is mapped twice counts once."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) >> 10


def _logprobs_from_all_logits(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperatures: Tensor, *, with_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """What `head_logprobs` replaces: every table of tokens by words in full, kept for the backward pass."""
    logits = (hidden @ weight.t()).to(temperatures.dtype) / temperatures[:, None]
    table = torch.log_softmax(logits, dim=-1)
    logprobs = table.gather(1, targets[:, None]).squeeze(1)
    if not with_entropy:
        return logprobs, None
    with torch.no_grad():
        return logprobs, -(table.exp() * table).sum(-1)
