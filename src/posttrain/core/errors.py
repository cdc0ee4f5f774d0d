"""Every error a caller may want to catch, one flat family; each name is the boundary that was crossed.

`UserError` and its children are mistakes a user can mend: the command line prints their sentence alone and
exits with 2. Everything else under `PosttrainError` is a boundary that failed while we were working (exit 1).
A message is a sentence with the boundary, the amount and the place. Assertions, not these, guard our own mistakes.
"""

from __future__ import annotations


class PosttrainError(Exception):
    """Base of the family."""


class UserError(PosttrainError, ValueError):
    """The input cannot be used as it is; the message says what to do next."""


class ConfigError(UserError):
    """A configuration, an override or an option does not hold together."""


class UnknownNameError(UserError):
    """A name that no registry knows; the message lists the known ones and the closest."""


class ModelError(UserError):
    """A model folder, download or chat template that training cannot use."""


class OverlapError(UserError):
    """Training and evaluation tasks share content (law L30)."""


class RunLockedError(UserError):
    """Another process holds the run directory."""


class IsolationUnavailableError(UserError):
    """The required isolation tier is not available here (law L27)."""


class WorkerDiedError(PosttrainError):
    """A worker process ended while it owed an answer; carries the tail of its log."""


class WorkerCallError(PosttrainError):
    """A worker answered a call with an exception; carries its type, message and traceback as text."""


class DeadlineExceededError(PosttrainError):
    """Work was ended because its time was up."""


class EngineError(PosttrainError):
    """A rollout engine could not do what it was asked."""


class SandboxError(PosttrainError):
    """The sandbox itself failed (never: the program in it)."""


class StoreError(PosttrainError):
    """A record could not be written or read back whole."""


class StorageFullError(StoreError):
    """The disk is full; what was finished before stays whole."""


class StoppedByRuleError(PosttrainError):
    """A rule over the run's own metrics ended it; the last checkpoint stands."""


class NonFiniteError(PosttrainError):
    """A loss, gradient or score was NaN or infinite."""
