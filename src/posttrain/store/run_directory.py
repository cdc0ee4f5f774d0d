"""The layout of a run on disk, and the two ways to get one: `create` and `open`.

    manifest.json   what, when, by which versions and which command; a folder with it is a run
    config.json     the resolved configuration
    lock            the one process that writes
    metrics.jsonl   one line a step            trajectories/   one Parquet file a step
    evals/          NN-label.json              checkpoints/    each whole or absent
    demonstrations/ what SFT stages learn from     reward_weights.jsonl   changes of weights, with causes
    review/         what people said of attempts   reverified/   what a newer verifier says of them
    logs/           of workers and watchdog    result.json     there when the run is finished

It neither reads nor writes what the other files hold; `metrics`, `trajectories`, `reports`, `checkpoints` do.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from posttrain.core.errors import StoreError, UserError
from posttrain.core.registry import unknown
from posttrain.core.types import Json
from posttrain.store.files import read_json, storing, temporary_name, write_json
from posttrain.store.run_lock import RunLock

_PACKAGES = ("posttrain", "torch", "transformers", "peft", "tokenizers", "numpy")


@dataclass(frozen=True)
class Manifest:
    """What a run is, written once."""

    model: str
    seed: int
    command: tuple[str, ...]
    created: str
    """ISO 8601, UTC."""
    versions: Mapping[str, str]
    """Of posttrain, Python and the packages that decide about numbers."""

    @classmethod
    def now(cls, model: str, seed: int, command: Sequence[str]) -> Manifest:
        versions = {name: found for name in _PACKAGES if (found := _installed(name)) is not None}
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(model, seed, tuple(command), created, {**versions, "python": platform.python_version()})


@dataclass(frozen=True)
class RunDirectory:
    """A run's folder; made by `create` or `open`, not by hand."""

    path: Path

    @classmethod
    def create(cls, path: Path, manifest: Manifest, config: Mapping[str, Json]) -> RunDirectory:
        """A new run. Raises `UserError` where the folder holds a run or anything else, `RunLockedError`."""
        run = cls(path)
        run._refuse_foreign()
        with storing(path):
            path.mkdir(parents=True, exist_ok=True)
        with run.lock():
            run._refuse_foreign()  # another process may have come first
            for folder in (run.trajectories, run.evals, run.checkpoints, run.logs):
                with storing(folder):
                    folder.mkdir(exist_ok=True)
            write_json(run._config, config)
            write_json(run._manifest, asdict(manifest))  # last: with it the folder is a run
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run that exists. Raises `UserError` where there is none, with the closest name beside it."""
        run = cls(path)
        if not run._manifest.is_file():
            known = [entry.parent.name for entry in path.parent.glob("*/manifest.json")]
            raise UserError(f"{unknown('run', path.name, known)} in {path.parent}")
        return run

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def reward_weights(self) -> Path:
        return self.path / "reward_weights.jsonl"

    @property
    def trajectories(self) -> Path:
        return self.path / "trajectories"

    @property
    def evals(self) -> Path:
        return self.path / "evals"

    @property
    def demonstrations(self) -> Path:
        return self.path / "demonstrations"

    @property
    def review(self) -> Path:
        return self.path / "review"

    @property
    def reverified(self) -> Path:
        return self.path / "reverified"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def lock(self) -> RunLock:
        """The right to write, until released. Raises `RunLockedError` with the holder's name."""
        return RunLock(self.path / "lock")

    def manifest(self) -> Manifest:
        content = read_json(self._manifest)
        try:
            return Manifest(**{**content, "command": tuple(content["command"])})
        except (TypeError, KeyError) as error:
            raise StoreError(f"{self._manifest} is not a run's manifest: {error}") from None

    def config(self) -> dict[str, Json]:
        """The resolved configuration, plain data."""
        return read_json(self._config)

    def write_result(self, result: Mapping[str, Json]) -> None:
        """The run is finished; a later call replaces the result."""
        write_json(self._result, result)

    def result(self) -> dict[str, Json] | None:
        """None while the run is not finished."""
        return read_json(self._result) if self._result.is_file() else None

    @property
    def _manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def _config(self) -> Path:
        return self.path / "config.json"

    @property
    def _result(self) -> Path:
        return self.path / "result.json"

    def _refuse_foreign(self) -> None:
        if self._manifest.exists():
            raise UserError(f"the run {self.path} exists already: continue it with --resume or choose another name")
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file, not a folder for a run: choose another name")
        if self.path.exists() and (foreign := {entry.name for entry in self.path.iterdir()} - self._unfinished_names()):
            raise UserError(
                f"the folder {self.path} is not empty and is no run (it holds {min(foreign)!r}): choose another name"
            )

    def _unfinished_names(self) -> set[str]:
        """What a `create` that was killed may have left: the next one goes over it."""
        folders = {path.name for path in (self.trajectories, self.evals, self.checkpoints, self.logs)}
        temporary = {temporary_name(path).name for path in (self._config, self._manifest)}
        return {"lock", self._config.name, *folders, *temporary}


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
