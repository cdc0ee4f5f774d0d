"""What a task says is right, read into typed records: an unknown key or an ill-typed value is an error, never ignored.

A record is a frozen dataclass under `@gold_record`; its `__post_init__` may raise ValueError. Values are taken as JSON
has them (true is no number, "3" is no number), lists become tuples. Nothing here judges a reply.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from posttrain.core.types import Json

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def gold_record(record: type[T]) -> type[T]:
    """Makes `record` a frozen dataclass that refuses keys that it does not have."""
    return with_config(ConfigDict(extra="forbid", strict=True))(dataclass(frozen=True)(record))


def gold_reader(record: Any, what: str) -> Callable[[Json], Any]:
    """A function from plain data to `record` that raises ValueError, in one sentence that begins with `what`."""
    adapter = TypeAdapter(record)

    def read(gold: Json) -> Any:
        try:
            return adapter.validate_json(json.dumps(gold, allow_nan=False))
        except ValidationError as error:
            faults = (
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".removeprefix(": ") for fault in error.errors()
            )
            raise ValueError(f"{what}: {'; '.join(faults)}") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{what} is no plain data: {error}") from None

    return read
