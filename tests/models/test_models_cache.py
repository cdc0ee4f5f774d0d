from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.core.errors import ModelError
from posttrain.models.cache import exclusive, finished_folder, missing_files, models_root


def test_a_folder_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "models" / "name"
    with finished_folder(target) as work:
        (work / "config.json").write_text("{}")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["config.json"]
    assert [path.name for path in target.parent.iterdir()] == ["name"]


def test_an_interrupted_maker_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "name"

    def make() -> None:
        with finished_folder(target) as work:
            (work / "config.json").write_text("{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_maker_left_is_not_taken_over(tmp_path: Path) -> None:
    target = tmp_path / "name"
    (tmp_path / ".name.partial").mkdir()
    (tmp_path / ".name.partial" / "half").write_text("")
    with finished_folder(target) as work:
        (work / "whole").write_text("")
    assert [path.name for path in target.iterdir()] == ["whole"]


def test_a_failing_maker_keeps_the_folder_that_was_there(tmp_path: Path) -> None:
    target = tmp_path / "name"
    target.mkdir()
    (target / "old").write_text("")
    with pytest.raises(ValueError, match="stop"), finished_folder(target):
        raise ValueError("stop")
    assert (target / "old").exists()


def test_the_cache_is_the_argument_else_the_environment_else_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTTRAIN_CACHE", str(tmp_path / "environment"))
    assert models_root(tmp_path / "argument") == tmp_path / "argument" / "models"
    assert models_root() == tmp_path / "environment" / "models"
    monkeypatch.delenv("POSTTRAIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert models_root() == tmp_path / "user" / "posttrain" / "models"


def test_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert missing_files(tmp_path) == ["tokenizer.json", "*.safetensors"]


def test_a_cache_that_cannot_be_written_is_a_sentence_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="POSTTRAIN_CACHE names another place"), exclusive(tmp_path / "file" / "name"):
        pytest.fail("nothing is held")
