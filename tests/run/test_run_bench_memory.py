"""Measured training steps, and what becomes of those that do not fit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.learn.parts import write_tiny_model

from posttrain.core.errors import ConfigError
from posttrain.run import bench_memory as bench
from posttrain.run.bench_memory import MemoryRow, Setting, bench_memory, parse_contexts
from posttrain.run.config import LearnerConfig


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_tiny_model(tmp_path_factory.mktemp("tiny"), vocab_size=256)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_a_step_is_measured_in_a_process_of_its_own(model: Path, tmp_path: Path) -> None:
    """Longer than the model's context, which a copy of its configuration allows."""
    setting = Setting(200, chunked=True, recompute=True)
    row = asyncio.run(bench._measure(bench._with_room_for(model, 200, tmp_path), setting, tmp_path))
    assert row.failure is None
    assert row.peak_mib is not None
    assert row.peak_mib > 100  # the libraries alone
    assert row.tokens_per_s is not None
    assert row.tokens_per_s > 0


def test_model_is_measured_as_it_is_up_to_its_own_context(model: Path, tmp_path: Path) -> None:
    assert bench._with_room_for(model, 128, tmp_path) == model
    assert (bench._with_room_for(model, 129, tmp_path) / "model.safetensors").samefile(model / "model.safetensors")


def test_rows_are_all_lengths_with_and_without_each_technique(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure(folder: Path, setting: Setting, scratch: Path) -> MemoryRow:
        return MemoryRow(setting, peak_mib=setting.context, tokens_per_s=2.0)

    monkeypatch.setattr(bench, "_measure", measure)
    notes: list[str] = []
    found = bench_memory(str(model), [200, 64], notes.append)
    assert [(row["context"], row["chunked"], row["recompute"], row["peak_mib"]) for row in found["rows"]] == [
        (context, chunked, recompute, context)
        for context in (64, 200)
        for chunked in (True, False)
        for recompute in (True, False)
    ]
    assert found["model_context"] == 128
    assert found["dtype"] == LearnerConfig().dtype
    assert "made for 128 positions" in found["note"]
    assert len(notes) == 9


def test_what_does_not_fit_is_a_row_and_larger_steps_are_not_tried(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_free_mib", lambda: 64)
    rows = bench_memory(str(model), [64, 128], lambda sentence: None)["rows"]
    assert rows[0]["failure"] == "only 57 MiB are free"
    assert {row["failure"] for row in rows[1:]} == {
        "not tried: 64 tokens with chunking and recomputation did not fit already"
    }
    assert all(row["peak_mib"] is None and row["tokens_per_s"] is None for row in rows)


def test_fewer_techniques_and_longer_samples_need_more() -> None:
    failed = Setting(4096, chunked=True, recompute=False)
    assert Setting(4096, chunked=False, recompute=False).needs_no_less_than(failed)
    assert Setting(8192, chunked=True, recompute=False).needs_no_less_than(failed)
    assert not Setting(8192, chunked=False, recompute=True).needs_no_less_than(failed)
    assert not Setting(1024, chunked=False, recompute=False).needs_no_less_than(failed)


def test_lengths_are_numbers_with_commas() -> None:
    assert parse_contexts("1024, 64") == [1024, 64]
    with pytest.raises(ConfigError, match="not '1k'"):
        parse_contexts("1k")


@pytest.mark.parametrize("contexts", [[], [64, 1]])
def test_lengths_too_short_to_measure_are_refused(model: Path, contexts: list[int]) -> None:
    with pytest.raises(ConfigError, match="at least 32 tokens"):
        bench_memory(str(model), contexts, lambda sentence: None)
