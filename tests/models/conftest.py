"""Model folders for the tests of this room: the untrained seedling, with another template where a test asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from posttrain.core.errors import ModelError
from posttrain.models import seedling
from posttrain.models.catalog import resolve


@pytest.fixture(scope="session")
def seedling_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seedling")
    seedling.create(folder, seed=0)
    return folder


@pytest.fixture(scope="session")
def smollm2_folder() -> Path:
    """The converted SmolLM2 of this machine's cache, or of the folder POSTTRAIN_TEST_SMOLLM2."""
    given = os.environ.get("POSTTRAIN_TEST_SMOLLM2")
    try:
        return Path(given) if given else resolve("smollm2-135m")
    except ModelError as error:
        pytest.skip(str(error))
