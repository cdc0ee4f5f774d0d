"""What a slot has imported before a program comes, and which installed packages it sees, at /site and read-only."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import ConfigError

SITE = "/site"
_STANDARD = (
    *("bisect", "collections", "copy", "dataclasses", "datetime", "enum", "functools", "heapq", "itertools", "json"),
    *("math", "operator", "random", "re", "string", "typing"),
)


@dataclass(frozen=True)
class Profile:
    """Programs may import more than is preloaded: all of the standard library, and of `distributions`."""

    name: str
    preload: tuple[str, ...] = _STANDARD
    """Modules; none may start a thread."""
    distributions: tuple[str, ...] = ()
    """Names as pip knows them, those that they need included."""

    @classmethod
    def read(cls, name: str, settings: Mapping[str, Sequence[str]]) -> Profile:
        """From a configuration. Raises `ConfigError`."""
        if unknown := settings.keys() - {"preload", "distributions"}:
            raise ConfigError(f"the sandbox profile {name!r} has no setting {min(unknown)!r}: preload, distributions")
        preload = tuple(settings.get("preload", ()))
        return cls(name, (*_STANDARD, *preload), tuple(settings.get("distributions", ())))

    @property
    def paths(self) -> tuple[str, ...]:
        return (SITE,) if self.distributions else ()

    def binds(self) -> dict[Path, str]:
        """What of this environment is seen where. Raises `ConfigError` for a package that is not installed."""
        return {
            source: f"{SITE}/{source.name}" for name in self.distributions for source in _top_level(name, self.name)
        }


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("python"),
        Profile("numpy", (*_STANDARD, "numpy", "numpy.random", "numpy.linalg"), ("numpy",)),
        Profile(
            "pytest",
            (*_STANDARD, "pytest", "_pytest.assertion.rewrite", "_pytest.junitxml"),
            ("pytest", "pluggy", "iniconfig", "packaging", "pygments"),
        ),
    )
}


def _top_level(distribution: str, profile: str) -> set[Path]:
    """Folders and modules that it installed beside one another."""
    try:
        installed = importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"the sandbox profile {profile!r} needs the package {distribution}: `pip install {distribution}`"
        ) from None
    names = {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}
    return {Path(str(installed.locate_file(name))) for name in names if not name.endswith((".dist-info", ".pth"))}
