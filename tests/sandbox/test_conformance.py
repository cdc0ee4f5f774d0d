"""The sandboxes keep every promise to honest programs, and one that answers wrongly does not."""

from __future__ import annotations

import asyncio

import pytest

from posttrain.core.protocols import Sandbox
from posttrain.sandbox.conformance import check_conformance, exact
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.per_execution import BubblewrapSandbox
from posttrain.sandbox.scripted import ScriptedSandbox


@pytest.mark.parametrize("sandbox", [LocalSandbox(), BubblewrapSandbox()], ids=["local", "bubblewrap"])
def test_sandbox_conforms(sandbox: Sandbox) -> None:
    assert [found for found in asyncio.run(check_conformance(sandbox)) if not found] == []


def test_sandbox_that_runs_nothing_does_not_conform() -> None:
    found = {result.name: result for result in asyncio.run(check_conformance(ScriptedSandbox()))}
    assert not any(found[name] for name in ("plain values cross unchanged", "a shell", "temporary files"))
    assert not found["wall, CPU and memory are plausible"]


@pytest.mark.parametrize(("left", "right"), [(True, 1), (1, 1.0), (0.0, -0.0), ((1,), [1]), ([True], [1]), ("1", 1)])
def test_exact_tells_types_apart(left: object, right: object) -> None:
    assert not exact(left, right)
    assert exact(left, left)
