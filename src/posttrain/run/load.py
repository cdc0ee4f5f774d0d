"""TOML + overrides → a checked `RunConfig`, with every complaint as one sentence.

`--set a.b=c` sets a key before anything is checked; `c` is read as a TOML value and, failing that, as a string.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from posttrain.core.errors import ConfigError
from posttrain.core.registry import unknown
from posttrain.run.config import RunConfig
from posttrain.run.presets import with_preset

_PLAIN_REWARD = {"parts": {"outcome": {"weight": 1.0}}}
"""What a domain's reward is laid over where the run states none: as `RewardSpec` is by default."""


def load(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read and check a configuration file. Raises `ConfigError`."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"there is no configuration file {path}") from None
    except OSError as error:
        raise ConfigError(f"the configuration file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    for override in overrides:
        _apply(raw, override)
    return parse(raw)


def parse(raw: Mapping[str, Any]) -> RunConfig:
    """Lay presets under their stages, then check. Raises `ConfigError` with a sentence for every complaint."""
    stages = raw.get("stages")
    if isinstance(stages, list):
        raw = {**raw, "stages": [with_preset(stage) if isinstance(stage, dict) else stage for stage in stages]}
    if isinstance(domains := raw.get("domains"), dict):
        raw = {**raw, "domains": {name: _with_reward(domain, raw.get("reward")) for name, domain in domains.items()}}
    try:
        return TypeAdapter(RunConfig).validate_python(raw)
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(dict(complaint)) for complaint in error.errors())) from None


def _with_reward(domain: Any, of_run: Any) -> Any:
    """A domain's table with the run's reward laid under its own; applied to its own result it changes nothing."""
    if not isinstance(domain, dict) or not isinstance(domain.get("reward"), dict):
        return domain
    return {**domain, "reward": _laid(of_run if isinstance(of_run, dict) else _PLAIN_REWARD, domain["reward"])}


def _laid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables inside are laid under one another key by key."""
    tables = {k: _laid(v, over[k]) for k, v in under.items() if isinstance(v, dict) and isinstance(over.get(k), dict)}
    return {**under, **over, **tables}


def dump(config: RunConfig) -> dict[str, Any]:
    """Plain data that `parse` reads back to an equal configuration."""
    data: dict[str, Any] = TypeAdapter(RunConfig).dump_python(config, mode="json")
    return data


def setting_value(text: str) -> Any:
    """What stands behind the equals sign of a `--set`: a TOML value or, failing that, a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def _apply(raw: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"an override is written key.key=value, not {override!r}")
    value = setting_value(text)
    place: Any = raw
    for position, key in enumerate(keys):
        last = position == len(keys) - 1
        if isinstance(place, list):
            index = _stage_index(place, key, override)
            if last:
                place[index] = value
            else:
                place = place[index]
        elif isinstance(place, dict):
            if last:
                place[key] = value
            else:
                place = place.setdefault(key, {})
        else:
            raise ConfigError(f"{override!r} sets a key inside {'.'.join(keys[:position])!r}, which is a plain value")


def _stage_index(stages: list[Any], key: str, override: str) -> int:
    """A list is entered by position or by the `name` (or `kind`) of one of its tables."""
    if re.fullmatch(r"\d+", key) and int(key) < len(stages):
        return int(key)
    names = [table.get("name", table.get("kind")) for table in stages if isinstance(table, dict)]
    if key in names:
        return names.index(key)
    raise ConfigError(f"in {override!r}: " + unknown("entry", key, [str(name) for name in names]))


def _sentence(complaint: dict[str, Any]) -> str:
    location = [part for part in complaint["loc"] if part not in ("sft", "rl") or isinstance(part, int)]
    where = ".".join(str(part) for part in location)
    if complaint["type"] == "unexpected_keyword_argument":
        fields = _fields_at(complaint["loc"][:-1])
        return unknown(f"key {'.'.join(map(str, location[:-1])) or 'of the configuration'}", str(location[-1]), fields)
    if complaint["type"] in ("missing", "missing_argument"):
        return f"the configuration needs {where!r}"
    message = str(complaint["msg"]).removeprefix("Value error, ")
    return f"{where or 'the configuration'}: {message}"


def _fields_at(location: Sequence[Any]) -> list[str]:
    """Names of the fields of the dataclass that stands at a place of the configuration."""
    kind: Any = RunConfig
    for part in location:
        kind = _inside(kind, part)
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _inside(kind: Any, part: Any) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _plain(typing.get_type_hints(kind)[part])
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, dict):
        return _plain(arguments[-1])
    if origin in (typing.Union, types.UnionType):  # the tag of a discriminated union
        return next(one for one in arguments if part in typing.get_args(typing.get_type_hints(one).get("kind")))
    return kind


def _plain(kind: Any) -> Any:
    """Without `Annotated` and without `| None`."""
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    arguments = [one for one in typing.get_args(kind) if one is not type(None)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType) and len(arguments) == 1:
        return arguments[0]
    return kind
