"""The type that a run computes in where nothing is said follows from the processor's own words."""

from __future__ import annotations

import sys

import pytest

from posttrain.core import processor
from posttrain.core.processor import faster_dtype, processor_flags
from posttrain.run.config import LearnerConfig


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    processor_flags.cache_clear()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"avx2", "avx512f", "avx512_bf16"}, "bfloat16"),
        ({"amx_bf16", "amx_tile"}, "bfloat16"),
        ({"asimd", "bf16"}, "bfloat16"),
        ({"avx2", "fma"}, "float32"),
        ({"avx512f", "avx512_vnni"}, "float32"),
        (set(), "float32"),
    ],
)
def test_bfloat16_is_for_processors_that_multiply_it(
    monkeypatch: pytest.MonkeyPatch, flags: set[str], expected: str
) -> None:
    monkeypatch.setattr(processor, "processor_flags", lambda: frozenset(flags))
    assert faster_dtype() == expected
    assert LearnerConfig().dtype == expected
    assert LearnerConfig(dtype="float64").dtype == "float64"


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc/cpuinfo elsewhere")
def test_flags_are_single_words_of_this_machine() -> None:
    assert len(processor_flags()) > 3
    assert not any(" " in flag or ":" in flag for flag in processor_flags())
