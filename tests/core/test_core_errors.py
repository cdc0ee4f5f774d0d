"""The one flat family of errors."""

from __future__ import annotations

import inspect
import pickle

import pytest

from posttrain.core import errors

FAMILY = [value for _, value in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("error", FAMILY)
def test_every_error_is_of_the_family_says_what_it_is_and_crosses_processes(error: type[Exception]) -> None:
    assert issubclass(error, errors.PosttrainError)
    assert error.__doc__
    raised = pickle.loads(pickle.dumps(error("a sentence")))
    assert (type(raised), str(raised)) == (error, "a sentence")


def test_mistakes_of_a_user_are_value_errors_and_failed_boundaries_are_not() -> None:
    assert issubclass(errors.ConfigError, ValueError)
    assert not issubclass(errors.WorkerDiedError, ValueError)
