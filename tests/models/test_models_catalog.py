from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from posttrain.core.errors import ModelError, UnknownNameError
from posttrain.models import seedling
from posttrain.models.catalog import BUILT_INS, Origin, built_in, resolve


@pytest.mark.parametrize("name", ["smollm2-135m", "seedling"])
def test_a_built_in_that_is_not_there_names_the_command_that_gets_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"run `posttrain models get {name}` first"):
        resolve(name, cache=tmp_path)


def test_a_built_in_that_is_there_is_its_folder(tmp_path: Path, seedling_folder: Path) -> None:
    folder = _record("seedling").folder(tmp_path)
    shutil.copytree(seedling_folder, folder)
    assert resolve("seedling", cache=tmp_path) == folder


def test_the_cache_may_come_from_the_environment(
    tmp_path: Path, seedling_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _record("seedling").folder(tmp_path)
    shutil.copytree(seedling_folder, folder)
    monkeypatch.setenv("POSTTRAIN_CACHE", str(tmp_path))
    assert resolve("seedling") == folder


def test_a_folder_that_an_earlier_release_made_is_not_taken_for_this_one(tmp_path: Path) -> None:
    folder = _record("seedling-random").folder(tmp_path)
    assert folder.name == f"seedling-random-{seedling.REVISION}"
    earlier = tmp_path / "models" / "seedling-random"
    earlier.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (earlier / name).write_text("of another architecture")
    assert resolve("seedling-random", cache=tmp_path) == folder


def test_untrained_seedling_is_made_on_demand_and_kept(tmp_path: Path, seedling_folder: Path) -> None:
    folder = resolve("seedling-random", cache=tmp_path)
    weights = folder / "model.safetensors"
    assert weights.read_bytes() == (seedling_folder / "model.safetensors").read_bytes()
    made = weights.stat().st_mtime_ns
    assert resolve("seedling-random", cache=tmp_path) == folder
    assert weights.stat().st_mtime_ns == made
    assert weights.stat().st_size / 2**20 < _record("seedling-random").disk_mib + 1


def test_a_local_folder_is_itself_and_is_checked(tmp_path: Path, seedling_folder: Path) -> None:
    assert resolve(str(seedling_folder)) == seedling_folder
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"it lacks tokenizer\.json, \*\.safetensors"):
        resolve(str(tmp_path))
    with pytest.raises(ModelError, match="does not exist"):
        resolve(str(tmp_path / "nowhere"))


def test_an_unknown_word_is_answered_with_the_closest_name() -> None:
    with pytest.raises(
        UnknownNameError, match=r"no model 'smollm-135m'; did you mean 'smollm2-135m'\?.*seedling-random.*hub id"
    ):
        resolve("smollm-135m")


def test_only_safetensors_json_and_templates_come_from_the_hub(
    seedling_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub.utils._paths import filter_repo_objects

    offered = ["model.safetensors", "pytorch_model.bin", "config.json", "modeling_x.py", "onnx/config.json", "a.pkl"]
    taken: list[str] = []

    def snapshot(repo: str, *, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert repo == "owner/name"
        taken.extend(filter_repo_objects(offered, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns))
        return str(seedling_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    assert resolve("owner/name") == seedling_folder
    assert taken == ["model.safetensors", "config.json"]


def test_an_unreachable_hub_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(*_: Any, **__: Any) -> str:
        raise LocalEntryNotFoundError("cannot find the requested files")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    with pytest.raises(ModelError, match=r"the model owner/name is neither .* and the hub could not be reached"):
        resolve("owner/name")


def test_every_built_in_states_its_licence_and_size() -> None:
    assert all(model.licence and model.num_parameters and model.disk_mib for model in BUILT_INS)
    assert (_record("smollm2-135m").origin, _record("seedling").origin) == (Origin.DOWNLOADED, Origin.TRAINED)


def _record(name: str) -> Any:
    record = built_in(name)
    assert record is not None
    return record
