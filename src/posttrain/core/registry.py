"""Name → component, through entry points; built-ins come in by the same door as anybody's package.

A component is a frozen dataclass (its fields are its options). It is found by its registered name, or as
`path/to/file.py:Object` or `package.module:Object`. Nothing is imported until it is asked for.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from posttrain.core.errors import ConfigError, UnknownNameError, UserError

KINDS = ("domain", "verifier", "engine", "loss", "advantage", "sandbox")


def names(kind: str) -> list[str]:
    """Registered names of one kind, sorted."""
    return sorted(point.name for point in entry_points(group=f"posttrain.{kind}"))


def find(kind: str, name: str) -> type[Any]:
    """The class behind a name. Raises `UnknownNameError` with the closest known name."""
    assert kind in KINDS, kind
    if ":" in name:
        return _from_reference(kind, name)
    for point in entry_points(group=f"posttrain.{kind}"):
        if point.name == name:
            return point.load()  # type: ignore[no-any-return]
    raise UnknownNameError(unknown(kind, name, names(kind)))


def build(kind: str, spec: Mapping[str, Any] | str) -> Any:
    """A component from its name, or from `{"name": …, option: value …}`.

    Raises `UnknownNameError` for the name and `ConfigError` for an option that it lacks or cannot take.
    """
    component, options, where = _located(kind, spec)
    return fill(component, options, where=where)


def check(kind: str, spec: Mapping[str, Any] | str) -> None:
    """Raises what `build` would for the name and the options, and builds nothing."""
    component, options, where = _located(kind, spec)
    _checked(component, options, where)


def accepts(kind: str, name: str, option: str) -> bool:
    """Whether the component has this option. Raises `UnknownNameError` for the name."""
    return option in inspect.signature(find(kind, name)).parameters


def fill(component: Callable[..., Any], options: Mapping[str, Any], *, where: str) -> Any:
    """Call `component` with plain data, each option checked against its annotation.

    An unknown, missing or ill-typed option, and a ValueError of the component's own, are one sentence each
    (`ConfigError`).
    """
    values = _checked(component, options, where)
    try:
        return component(**values)
    except UserError:
        raise  # it says itself what is wrong
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that nobody knows."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"there is no {what} {name!r}{hint} (known: {', '.join(known) or 'none'})"


def _located(kind: str, spec: Mapping[str, Any] | str) -> tuple[type[Any], dict[str, Any], str]:
    """The component of a spec, its options, and what it is called in a sentence."""
    options = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f"a {kind} is named by a string: name = …")
    return find(kind, name), options, f"{kind} {name}"


def _checked(component: Callable[..., Any], options: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options as the component's annotations want them."""
    parameters = inspect.signature(component).parameters
    init = component.__init__ if inspect.isclass(component) else component
    hints = typing.get_type_hints(init, include_extras=True)
    sentences = [unknown(f"option of {where}", name, parameters) for name in options if name not in parameters]
    values: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name in options:
            try:
                values[name] = TypeAdapter(hints[name]).validate_python(options[name])
            except ValidationError as error:
                sentences += [f"{where}: {'.'.join([name, *map(str, e['loc'])])}: {e['msg']}" for e in error.errors()]
        elif parameter.default is parameter.empty:
            sentences.append(f"{where} needs the option {name!r}")
    if sentences:
        raise ConfigError("; ".join(sentences))
    return values


def _from_reference(kind: str, reference: str) -> type[Any]:
    location, _, attribute = reference.rpartition(":")
    if location.endswith(".py"):
        path = Path(location)
        if not path.is_file():
            raise UnknownNameError(f"there is no file {location!r} for the {kind} {reference!r}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(location)
        except ModuleNotFoundError as error:
            raise UnknownNameError(f"the {kind} {reference!r} cannot be imported: {error}") from None
    if not hasattr(module, attribute):
        raise UnknownNameError(unknown(f"object of {location}", attribute, vars(module)))
    return getattr(module, attribute)  # type: ignore[no-any-return]
