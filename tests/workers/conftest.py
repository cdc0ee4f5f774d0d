"""Workers to start, and a count of what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.own_children import own_children

from posttrain.workers.spec import WorkerSpec

MakeSpec = Callable[..., WorkerSpec]


@pytest.fixture
def make_spec(tmp_path: Path) -> MakeSpec:
    def make(factory: str = "worker_parts:Part", **fields: Any) -> WorkerSpec:
        environment = {"PYTHONPATH": str(Path(__file__).parent), **fields.pop("environment", {})}
        return WorkerSpec("w", factory, tmp_path / "logs" / "w.log", environment=environment, **fields)

    return make


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """Law L25: children (zombies too) and descriptors are what they were."""
    children, descriptors = set(own_children()), _descriptors()
    yield
    assert set(own_children()) == children
    assert _descriptors() == descriptors


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
