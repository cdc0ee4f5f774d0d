"""The shipped attack suite against each sandbox: all but the known holes are contained, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ordinary_user import needs_ordinary_user, run_as_ordinary_user
from tests.own_children import own_children

from posttrain.sandbox.attacks.catalogue import FAMILIES
from posttrain.sandbox.attacks.check import AttackResult, check
from posttrain.sandbox.local import LocalSandbox
from posttrain.sandbox.per_execution import BubblewrapSandbox
from posttrain.sandbox.probe import slot_isolation

HOLE_WITHOUT_CGROUP = {"memory by many processes"}
HOLES_OF_BUBBLEWRAP = HOLE_WITHOUT_CGROUP | {"files without end"}
HOLES_OF_REDUCED = HOLE_WITHOUT_CGROUP | {
    *("disk by many files", "disk while loading", "disk of a program", "files without end"),  # nothing bounds the sum
    *("shared memory folder", "temporary folder"),  # harmless: to write there is refused, so nothing gets full
}
"""Strict: a hole that closes must leave these lists."""
NAMES = [attack.name for attacks in FAMILIES.values() for attack in attacks]


@dataclass(frozen=True)
class Holdings:
    """What a process that leaks has more of."""

    children: tuple[int, ...]
    num_fds: int
    num_temporary: int
    num_mounts: int


def holdings() -> Holdings:
    return Holdings(
        children=tuple(own_children()),
        num_fds=len(list(Path("/proc/self/fd").iterdir())),
        num_temporary=len(list(Path(tempfile.gettempdir()).iterdir())),
        num_mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AttackResult]:
    with pytest.MonkeyPatch.context() as patch:  # a folder of our own: other processes make temporary files too
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
        sandbox = LocalSandbox()
        asyncio.run(sandbox.call("def f(): pass", "f", [[]], limits=FAMILIES["odd endings"][0].limits))
        asyncio.run(sandbox.close())
        before, sandbox = holdings(), LocalSandbox()
        found = asyncio.run(check(sandbox))
        asyncio.run(sandbox.close())
        assert holdings() == before
    return {result.name: result for result in found}


def test_there_are_enough_attacks_and_each_has_its_own_name() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 110
    rows = {row for attacks in FAMILIES.values() for attack in attacks for row in attack.rows}
    assert rows >= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 22, 23, 24, 25}


@pytest.mark.parametrize("name", NAMES)
def test_attack_is_contained(results: dict[str, AttackResult], name: str) -> None:
    result = results[name]
    assert result.neighbour_right, result
    assert not result.forged, result
    if name in HOLE_WITHOUT_CGROUP and not slot_isolation().cgroup:
        assert not result, f"the hole {name!r} is closed: take it from HOLE_WITHOUT_CGROUP"
    else:
        assert result, result


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests run as an ordinary user already")
@needs_ordinary_user
def test_attacks_are_contained_for_an_ordinary_user_too() -> None:
    found = _as_ordinary_user("local")
    assert found.get("tier") == "full_without_cgroup", found
    assert {name for name, attack in found["by_name"].items() if not attack["contained"]} == HOLE_WITHOUT_CGROUP
    assert found["forged_verdicts"] == 0


@pytest.mark.slow
@needs_ordinary_user
def test_reduced_isolation_has_its_known_holes_and_no_other() -> None:
    found = _as_ordinary_user('{name = "local", isolation = "reduced"}')
    assert found["tier"] == "reduced", found
    assert {name for name, attack in found["by_name"].items() if not attack["contained"]} == HOLES_OF_REDUCED
    assert found["forged_verdicts"] == 0
    assert all(attack["neighbour_right"] for attack in found["by_name"].values())
    assert all(conformity["holds"] for conformity in found["conformance"])


@pytest.mark.slow
def test_bubblewrap_for_each_execution_has_its_known_holes_and_no_other() -> None:
    found = asyncio.run(check(BubblewrapSandbox()))
    assert {result.name for result in found if not result} == HOLES_OF_BUBBLEWRAP
    assert not any(result.forged or not result.neighbour_right for result in found)


def _as_ordinary_user(sandbox: str) -> dict[str, Any]:
    done = run_as_ordinary_user("-m", "posttrain", "check", "sandbox", sandbox, "--json")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
