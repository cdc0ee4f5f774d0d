from __future__ import annotations

from pathlib import Path

import pytest

from posttrain.core.errors import RunLockedError, StoreError, UserError
from posttrain.store.run_directory import Manifest, RunDirectory

MANIFEST = Manifest.now("seedling", 7, ["posttrain", "train", "configs/seedling.toml"])


def create(path: Path) -> RunDirectory:
    return RunDirectory.create(path, MANIFEST, {"seed": 7, "domains": {"words": {"level": 1}}})


def test_a_created_run_opens_with_what_it_was_given(tmp_path: Path) -> None:
    create(tmp_path / "runs" / "first")
    run = RunDirectory.open(tmp_path / "runs" / "first")
    assert run.name == "first"
    assert run.manifest() == MANIFEST
    assert run.config() == {"seed": 7, "domains": {"words": {"level": 1}}}
    assert all(folder.is_dir() for folder in (run.trajectories, run.evals, run.checkpoints, run.logs))


def test_the_manifest_knows_the_versions_that_decide_about_numbers() -> None:
    assert {"posttrain", "torch", "python", "numpy"} <= set(MANIFEST.versions)


def test_a_run_is_finished_when_it_has_a_result(tmp_path: Path) -> None:
    run = create(tmp_path / "first")
    assert run.result() is None
    run.write_result({"wall_s": 1.5})
    assert run.result() == {"wall_s": 1.5}


def test_an_existing_run_is_not_begun_again(tmp_path: Path) -> None:
    create(tmp_path / "first")
    with pytest.raises(UserError, match="exists already: continue it with --resume or choose another name"):
        create(tmp_path / "first")


def test_a_folder_with_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UserError, match=r"holds 'thesis\.tex'"):
        create(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"], "nothing was written into it"


def test_a_file_in_the_place_of_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "first").touch()
    with pytest.raises(UserError, match="is a file"):
        create(tmp_path / "first")


def test_an_empty_folder_becomes_a_run(tmp_path: Path) -> None:
    assert create(tmp_path).manifest() == MANIFEST


def test_a_run_that_is_being_created_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "first"
    path.mkdir()
    with RunDirectory(path).lock(), pytest.raises(RunLockedError):
        create(path)


def test_an_unknown_run_is_answered_with_the_closest(tmp_path: Path) -> None:
    create(tmp_path / "quickstart")
    with pytest.raises(UserError, match="no run 'quickstrat'; did you mean 'quickstart'"):
        RunDirectory.open(tmp_path / "quickstrat")


def test_a_manifest_with_missing_fields_is_a_store_error(tmp_path: Path) -> None:
    run = create(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema_version": 1, "command": []}')
    with pytest.raises(StoreError, match="is not a run's manifest"):
        run.manifest()
