"""One learner out of several data-parallel ranks; each rank takes its share of the same step.

It moves samples and paths. What a step does is `learn/trainer.py`'s affair.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from posttrain.core.errors import WorkerDiedError
from posttrain.core.protocols import UNCHANGED, StageSpec, StepControls, StepMetrics
from posttrain.core.types import FloatArray, Sample
from posttrain.fleet.host import Host


class LearnerGroup:
    """Hosted trainers, rank by rank, that act as one `Learner`."""

    def __init__(self, ranks: Sequence[Host], rendezvous: Path | None = None) -> None:
        """`rendezvous` is the folder where the ranks meet; it goes with them."""
        assert ranks, "a learner needs a rank"
        self._ranks = list(ranks)
        self._rendezvous = rendezvous

    async def begin_stage(self, spec: StageSpec) -> None:
        await self._all("begin_stage", spec)

    async def step(self, samples: Sequence[Sample], controls: StepControls = UNCHANGED) -> StepMetrics:
        metrics: StepMetrics = (await self._all("step", list(samples), controls))[0]
        return metrics

    async def logprobs(self, samples: Sequence[Sample], *, reference: bool = False) -> list[FloatArray]:
        return await self._shared("logprobs", samples, reference=reference)

    async def values(self, samples: Sequence[Sample]) -> list[FloatArray]:
        return await self._shared("values", samples)

    async def refresh_reference(self) -> None:
        await self._all("refresh_reference")

    async def _shared(self, method: str, samples: Sequence[Sample], **options: Any) -> list[FloatArray]:
        """Each rank answers for its part of the samples."""
        size = -(-len(samples) // len(self._ranks))
        parts = [list(samples[start : start + size]) for start in range(0, len(samples), size)] if samples else []
        answers = await asyncio.gather(
            *(
                rank.call(method, part, **options)
                for rank, part in zip(self._ranks, parts, strict=False)  # fewer parts than ranks: the last ones idle
            )
        )
        return [row for answer in answers for row in answer]

    async def export(self, folder: Path) -> str:
        return str(await self._ranks[0].call("export", folder))

    async def export_adapter(self, folder: Path) -> None:
        await self._ranks[0].call("export_adapter", folder)

    async def save(self, folder: Path) -> None:
        await self._all("save", folder)

    async def load(self, folder: Path) -> None:
        await self._all("load", folder)

    async def close(self) -> None:
        await asyncio.gather(*(rank.stop() for rank in self._ranks))
        if self._rendezvous is not None:
            shutil.rmtree(self._rendezvous, ignore_errors=True)

    async def _all(self, method: str, *args: Any) -> list[Any]:
        """Of every rank, in their order. Where one fails, the others complain that it left: the cause is raised."""
        answers = await asyncio.gather(*(rank.call(method, *args) for rank in self._ranks), return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors:
            raise next((error for error in errors if not isinstance(error, WorkerDiedError)), errors[0])
        return answers
