"""The settings a worker's process has before it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.workers.spec import ALLOCATOR_TUNABLES, WorkerSpec
from posttrain.workers.worker import Worker

MakeSpec = Callable[..., WorkerSpec]


def test_child_starts_with_thread_and_allocator_settings(make_spec: MakeSpec) -> None:
    async def environment() -> list[str]:
        worker = await Worker.start(make_spec(num_threads=3))
        try:
            names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM", "GLIBC_TUNABLES", "PYTHONHASHSEED"]
            return list(await worker.call("environment", *names))
        finally:
            await worker.stop()

    assert asyncio.run(environment()) == ["3", "3", "false", ALLOCATOR_TUNABLES, "0"]


def test_own_variables_win_over_computed_ones(tmp_path: Path) -> None:
    spec = WorkerSpec("w", "m:f", tmp_path / "log", environment={"OMP_NUM_THREADS": "7", "EXTRA": "x"})
    assert spec.child_environment["OMP_NUM_THREADS"] == "7"
    assert spec.child_environment["EXTRA"] == "x"


def test_parents_variables_reach_the_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTTRAIN_TEST_VARIABLE", "seen")
    assert WorkerSpec("w", "m:f", tmp_path / "log").child_environment["POSTTRAIN_TEST_VARIABLE"] == "seen"


@pytest.mark.parametrize("factory", ["module", "module:", ":callable", ""])
def test_factory_without_module_or_callable_is_refused(tmp_path: Path, factory: str) -> None:
    with pytest.raises(ValueError, match=r"package\.module:callable"):
        WorkerSpec("w", factory, tmp_path / "log")


def test_worker_without_a_thread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1 thread"):
        WorkerSpec("w", "m:f", tmp_path / "log", num_threads=0)
