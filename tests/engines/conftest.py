"""Models on disk for the engine tests, and one thread: these tests may run beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines.parts import save_llama

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bfloat16, tied head."""
    return save_llama(tmp_path_factory.mktemp("tied"), dtype=torch.bfloat16)


@pytest.fixture(scope="session")
def updated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same architecture as `tied`, other weights."""
    return save_llama(tmp_path_factory.mktemp("updated"), seed=1, dtype=torch.bfloat16)


@pytest.fixture(scope="session")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float32, a head of its own, one key-value head for each query head, another rotation, sharded."""
    options: dict[str, Any] = {
        "tie_word_embeddings": False,
        "head_dim": 32,
        "num_key_value_heads": 6,
        "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
    }
    return save_llama(tmp_path_factory.mktemp("untied"), seed=2, **options)
