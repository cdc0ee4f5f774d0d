"""The page of verifiers names those there are, with golds that they read."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from posttrain.core import registry
from posttrain.core.types import Verdict, VerdictStatus
from posttrain.sandbox.scripted import ScriptedSandbox
from posttrain.verifiers.instruction_rules import Rule
from posttrain.verifiers.puzzle import Constraint

PAGE = (Path(__file__).parents[2] / "docs" / "verifier_reference.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \| (?:answer|block|whole|as)", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_a_registered_verifier_that_reads_its_gold_and_accepts_no_empty_reply(
    name: str, tmp_path: Path
) -> None:
    options = (
        {"base_url": "http://127.0.0.1:9", "model": "m", "transcript": str(tmp_path / "t")} if name == "judge" else {}
    )
    verifier: Any = registry.build("verifier", {"name": name, **options})

    def verify(gold: Any) -> Verdict:
        judged: Verdict
        if inspect.iscoroutinefunction(verifier.verify):
            judged = asyncio.run(verifier.verify("", gold, ScriptedSandbox()))
        else:
            judged = verifier.verify("", gold)
        return judged

    assert verify(json.loads(ROWS[name])).status is VerdictStatus.INCORRECT
    with pytest.raises(ValueError, match=r"."):
        verify({"nothing": "known"})


def test_every_row_was_found() -> None:
    assert len(ROWS) == 15


@pytest.mark.parametrize("union", [Rule, Constraint])
def test_every_rule_and_constraint_stands_on_the_page(union: Any) -> None:
    alternatives, _ = typing.get_args(union)
    for record in typing.get_args(alternatives):
        hints = typing.get_type_hints(record)
        for name in typing.get_args(hints.get("rule", hints.get("kind"))):
            assert f"`{name}`" in PAGE
