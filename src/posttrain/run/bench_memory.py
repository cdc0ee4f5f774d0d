"""`posttrain bench memory`: peak memory and tokens/s of a training step, by length, with and without each technique.

Every row is one step of full fine-tuning in a process of its own, started as a learner's is. A row whose step does not
fit the memory that is free says so, and those that need still more are not tried. It trains nothing that is kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from posttrain.core.errors import ConfigError, WorkerDiedError
from posttrain.core.processor import faster_dtype
from posttrain.models.catalog import resolve
from posttrain.workers.spec import WorkerSpec
from posttrain.workers.worker import Worker

MIN_CONTEXT = 32
LIBRARIES_MIB = 768
"""With less than this a child may fail in odd ways before it has loaded its libraries."""
SPARED_SHARE = 0.1
"""Of the free memory: a step that would take the last of it would take other programs with it."""


@dataclass(frozen=True)
class Setting:
    """What one row measures."""

    context: int
    """Tokens of the one sample."""
    chunked: bool
    """Log-probs in blocks of tokens, as the learner does it; else all logits at once."""
    recompute: bool
    """Each layer keeps its input alone and is computed again in the backward pass."""

    def needs_no_less_than(self, other: Setting) -> bool:
        return self.context >= other.context and self.chunked <= other.chunked and self.recompute <= other.recompute


@dataclass(frozen=True)
class MemoryRow:
    setting: Setting
    peak_mib: int | None = None
    """None where it could not be measured: `failure` says why."""
    tokens_per_s: float | None = None
    failure: str | None = None

    def plain(self) -> dict[str, Any]:
        fields = asdict(self)
        return {**fields.pop("setting"), **fields}


def bench_memory(model: str, contexts: Sequence[int], note: Callable[[str], None]) -> dict[str, Any]:
    """What `bench memory` prints as JSON; `note` gets a sentence for each row as it comes.

    Raises `UserError` for a model or lengths that cannot be measured.
    """
    if not contexts or min(contexts) < MIN_CONTEXT:
        raise ConfigError(f"a step is measured on samples of at least {MIN_CONTEXT} tokens, not on {list(contexts)}")
    folder = resolve(model)
    model_context = _max_context(folder)
    lifted = [context for context in contexts if context > model_context]
    about = ""
    if lifted:
        about = (
            f"{model} is made for {model_context} positions: longer samples are measured with a copy of its "
            "configuration that allows them, which changes neither memory nor time"
        )
        note(about)
    rows = asyncio.run(_measure_all(folder, contexts, note))
    return {
        "model": model,
        "model_context": model_context,
        "dtype": faster_dtype(),
        "num_threads": _num_threads(),
        "note": about,
        "rows": [row.plain() for row in rows],
    }


def parse_contexts(text: str) -> list[int]:
    """Of `1024,4096`. Raises `ConfigError`."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"lengths are numbers with commas between, such as 1024,4096, not {text!r}") from None


async def _measure_all(folder: Path, contexts: Sequence[int], note: Callable[[str], None]) -> list[MemoryRow]:
    settings = [
        Setting(context, chunked, recompute)
        for context in sorted(set(contexts))
        for chunked in (True, False)
        for recompute in (True, False)
    ]
    rows: list[MemoryRow] = []
    with tempfile.TemporaryDirectory(prefix="posttrain-bench-") as scratch:
        for setting in settings:
            too_much = [row.setting for row in rows if row.failure and setting.needs_no_less_than(row.setting)]
            if too_much:
                row = MemoryRow(setting, failure=f"not tried: {_named(too_much[0])} did not fit already")
            else:
                row = await _measure(_with_room_for(folder, setting.context, Path(scratch)), setting, Path(scratch))
            rows.append(row)
            note(_sentence(row))
    return rows


async def _measure(folder: Path, setting: Setting, scratch: Path) -> MemoryRow:
    limit_mib = int(_free_mib() * (1 - SPARED_SHARE))
    if limit_mib < LIBRARIES_MIB:
        return MemoryRow(setting, failure=f"only {limit_mib} MiB are free")
    spec = WorkerSpec(
        name=f"step of {_named(setting)}",
        factory="posttrain.learn.measured_step:MeasuredStep",
        config={"model": str(folder), "dtype": faster_dtype(), **asdict(setting), "limit_mib": limit_mib},
        num_threads=_num_threads(),
        log_path=scratch / "step.log",
    )
    worker = await Worker.start(spec)
    try:
        measured = await worker.call("measure")
    except WorkerDiedError as error:
        return MemoryRow(setting, failure=str(error).splitlines()[0])
    finally:
        await worker.kill()
    if measured is None:
        return MemoryRow(setting, failure=f"it needs more than the {limit_mib} MiB that were free")
    return MemoryRow(setting, measured.peak_mib, round(setting.context / measured.step_s, 2))


def _named(setting: Setting) -> str:
    techniques = {"chunking": setting.chunked, "recomputation": setting.recompute}
    used = " and ".join(name for name, is_used in techniques.items() if is_used)
    return f"{setting.context} tokens with {used or 'neither technique'}"


def _sentence(row: MemoryRow) -> str:
    if row.failure:
        return f"{_named(row.setting)}: {row.failure}"
    return f"{_named(row.setting)}: {row.peak_mib} MiB, {row.tokens_per_s} tokens/s"


def _max_context(folder: Path) -> int:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    if not isinstance(limit := config.get("max_position_embeddings"), int):
        raise ConfigError(f"the configuration of {folder} does not say how long its context is")
    return limit


def _with_room_for(folder: Path, context: int, scratch: Path) -> Path:
    """The model, or where `context` is beyond it a folder of links to it with another configuration."""
    if context <= _max_context(folder):
        return folder
    copy = scratch / f"model-{context}"
    if not copy.exists():
        copy.mkdir()
        for path in folder.iterdir():
            if path.name != "config.json":
                (copy / path.name).symlink_to(path.resolve())
        config = json.loads((folder / "config.json").read_text())
        (copy / "config.json").write_text(json.dumps({**config, "max_position_embeddings": context}))
    return copy


def _num_threads() -> int:
    return len(os.sched_getaffinity(0))


def _free_mib() -> int:
    """Of the machine, and of the container where that has a limit."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) >> 10
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and limit.read_text().strip() != "max":
        free = min(free, (int(limit.read_text()) - int(used.read_text())) >> 20)
    return max(1, free)
