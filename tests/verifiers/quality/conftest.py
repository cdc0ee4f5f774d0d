"""Sandboxes that run these tests' own programs in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.verifiers.quality.parts import ended, run_here

from posttrain.core.sandboxing import CallResult, ResultClass
from posttrain.sandbox.scripted import ScriptedCall, ScriptedSandbox


@pytest.fixture
def here() -> ScriptedSandbox:
    return ScriptedSandbox(answer=run_here)


@pytest.fixture
def here_except() -> Callable[[Callable[[ScriptedCall], bool], ResultClass], ScriptedSandbox]:
    """Runs programs here, but ends those that `chosen` chooses with a result class of its own."""

    def build(chosen: Callable[[ScriptedCall], bool], result_class: ResultClass) -> ScriptedSandbox:
        def answer(asked: ScriptedCall) -> CallResult:
            return ended(asked, result_class, "told to") if chosen(asked) else run_here(asked)

        return ScriptedSandbox(answer=answer)

    return build
