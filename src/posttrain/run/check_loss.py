"""`posttrain check loss NAME`, without the parsing: a loss by its name and options → what each law says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from posttrain.core.errors import ConfigError
from posttrain.core.law_result import LawResult
from posttrain.core.registry import build
from posttrain.run.load import setting_value


@dataclass(frozen=True)
class Checked:
    name: str
    laws: tuple[LawResult, ...]

    @property
    def holds(self) -> bool:
        return all(self.laws)

    def plain(self) -> dict[str, Any]:
        """As JSON; `smallest_input` is null where there is none."""
        laws = [{**asdict(law), "smallest_input": law.smallest_input or None} for law in self.laws]
        return {"name": self.name, "laws": laws}


def check_loss(name: str, settings: Sequence[str], progress: Callable[[str], None]) -> Checked:
    """`name` is registered or `path/to/file.py:Object`; settings are `key=value`; `progress` gets a
    sentence for each law.

    Raises `UnknownNameError` for the name, `ConfigError` for an option.
    """
    loss = build("loss", {"name": name, **options(settings)})
    from posttrain.losses.laws.check import check

    return Checked(name, tuple(check(loss, progress)))


def options(settings: Sequence[str]) -> Mapping[str, Any]:
    """Options of one component; a value is read as TOML and, failing that, as a string. Raises `ConfigError`."""
    found = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"an option is written key=value, not {setting!r}")
        found[key.strip()] = setting_value(text)
    return found
