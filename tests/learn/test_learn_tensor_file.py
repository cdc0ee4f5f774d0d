from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from posttrain.core.errors import StorageFullError, StoreError
from posttrain.learn.tensor_file import write_tensors

ONE, TWO = {"a": torch.ones(3)}, {"a": torch.full((3,), 2.0)}


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t.safetensors", ONE)
    write_tensors(tmp_path / "t.safetensors", TWO)
    assert torch.equal(load_file(tmp_path / "t.safetensors")["a"], TWO["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["t.safetensors"]


def test_a_full_disk_is_a_sentence_and_the_old_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    path = tmp_path / "t.safetensors"
    write_tensors(path, ONE)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(StorageFullError, match=r"the disk is full: .*t\.safetensors could not be written"):
        write_tensors(path, TWO)
    assert torch.equal(load_file(path)["a"], ONE["a"])


def test_any_other_refusal_is_a_sentence_too(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"could not be written: No such file or directory"):
        write_tensors(tmp_path / "nowhere" / "t.safetensors", ONE)


def test_the_file_may_be_read_by_whoever_may_read_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    write_tensors(tmp_path / "model.safetensors", {"weight": torch.ones(1)})
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
