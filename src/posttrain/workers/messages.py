"""What a parent asks of its worker and what it is answered; both sides import this and nothing else of each other.

An exception crosses as text, because its class may exist on one side only; those of `core/errors.py` exist on both
and keep their class, so that a user's mistake is still one and NaN is still NaN. Nothing here moves a byte.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from posttrain.core import errors
from posttrain.core.errors import PosttrainError, WorkerCallError


@dataclass(frozen=True)
class Build:
    """The first message: make the part that will answer the calls."""

    import_path: tuple[str, ...]
    """The parent's `sys.path`, so that the child finds the same modules."""
    factory: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    method: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Returned:
    value: Any


@dataclass(frozen=True)
class Raised:
    """An exception as text."""

    type_name: str
    message: str
    traceback: str
    family: str | None
    """Its closest class in `core/errors.py`, where it has one."""

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        family = (base.__name__ for base in type(error).__mro__ if base.__module__ == errors.__name__)
        return cls(
            type_name=type(error).__name__,
            message=str(error),
            traceback="".join(traceback.format_exception(error)),
            family=next(family, None),
        )

    def error(self, worker: str, method: str) -> PosttrainError:
        """The exception to raise in the parent; the worker's traceback is its note."""
        if self.family is None:
            error: PosttrainError = WorkerCallError(
                f"worker {worker}: {method} raised {self.type_name}: {self.message}"
            )
        else:
            error = getattr(errors, self.family)(self.message)
        error.add_note(f"In worker {worker}, {method}:\n{self.traceback}")
        return error


Request = Build | Call
Answer = Returned | Raised
