"""`docs/options.md` lists every option there is, so that a new one shows in review.

After a change: `.venv/bin/python -m tests.test_options_list` writes it again.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from posttrain.core.registry import KINDS, find, names
from posttrain.core.rules import Rule
from posttrain.learn.optimizer import OptimizerOptions
from posttrain.learn.trainer import Trainer
from posttrain.run.config import RunConfig, SftStage
from posttrain.run.rl_stage import RlStage

PAGE = Path(__file__).parents[1] / "docs" / "options.md"
FROM_THE_RUN = {"model", "dtype", "rank", "world_size", "rendezvous", "critic", "lora", "seed"}
"""Of the learner: stated elsewhere in a configuration, or by the launcher."""
HEAD = """# All options

What a configuration can say, with types and defaults: `table.key`, then each component's own options, which stand in
the table that names it. What they mean is in the [reference](api.md#options-of-a-run) and in the components' sources.
"""


def page() -> str:
    sections = {
        "A run": list(of_dataclass(RunConfig, "")),
        'Stages of kind = "sft"': list(of_dataclass(SftStage, "stages.")),
        'Stages of kind = "rl"': list(of_dataclass(RlStage, "stages.")),
        "stages.rules, each": list(of_dataclass(Rule, "")),
        "stages.optimizer": list(of_dataclass(OptimizerOptions, "stages.optimizer.")),
        "learner.options": list(of_signature(Trainer, "learner.options.", FROM_THE_RUN)),
    }
    for kind in KINDS:
        for name in names(kind):
            if name == "scripted":  # the tests' fakes
                continue
            sections[f"The {kind} {name}"] = list(of_signature(find(kind, name), "", {"model", "dtype"}))
    parts = [HEAD, *(section(title, lines) for title, lines in sections.items() if lines)]
    return "\n".join(parts)


def section(title: str, lines: list[str]) -> str:
    return "\n".join([f"## {title}", "", "```text", *lines, "```", ""])


def of_dataclass(component: Any, prefix: str) -> Iterator[str]:
    """One line an option; tables inside are followed, lists of tables are sections of their own."""
    hints = typing.get_type_hints(component)
    for field in dataclasses.fields(component):
        hint = hints[field.name]
        tables = [part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)]
        if tables and field.name != "stages" and typing.get_origin(hint) is not list:
            named_tables = typing.get_origin(hint) is dict
            if type(None) in typing.get_args(hint):
                yield f"{prefix}{field.name}: absent, or a table of"
            yield from of_dataclass(tables[0], f"{prefix}{field.name}.{'NAME.' if named_tables else ''}")
        else:
            yield f"{prefix}{field.name}: {named(hint, field.type)}{default_of(field)}"


def named(hint: Any, written: Any) -> str:
    """An alias of literals is spelled out; any other type stands as it is written."""
    if typing.get_origin(hint) is typing.Literal:
        return " | ".join(map(repr, typing.get_args(hint)))
    return str(written)


def default_of(field: dataclasses.Field[Any]) -> str:
    if field.name == "dtype":
        return " = what this processor is faster in"
    if field.default is not dataclasses.MISSING:
        return f" = {field.default!r}"
    if field.default_factory is not dataclasses.MISSING:
        return f" = {field.default_factory()!r}"
    return ""


def of_signature(component: Any, prefix: str, without: set[str]) -> Iterator[str]:
    init = component.__init__ if inspect.isclass(component) else component
    hints = typing.get_type_hints(init)
    for name, parameter in inspect.signature(component).parameters.items():
        if name not in without:
            default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
            yield f"{prefix}{name}: {named(hints[name], parameter.annotation)}{default}"


def test_the_page_lists_what_there_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: .venv/bin/python -m tests.test_options_list"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
