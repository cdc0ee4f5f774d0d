"""Models on disk for the engine tests, and one thread: these tests may run beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engines.parts import LLAMA3, save_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """bfloat16, tied head."""
    return save_model(tmp_path_factory.mktemp("tied"), dtype=torch.bfloat16)


@pytest.fixture(scope="session")
def updated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same architecture as `tied`, other weights."""
    return save_model(tmp_path_factory.mktemp("updated"), seed=1, dtype=torch.bfloat16)


@pytest.fixture(scope="session")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float32, a head of its own, one key-value head for each query head, another rotation, sharded."""
    options: dict[str, Any] = {
        "tie_word_embeddings": False,
        "head_dim": 32,
        "num_key_value_heads": 6,
        "rope_parameters": {"rope_theta": 500.0, "rope_type": "default"},
    }
    return save_model(tmp_path_factory.mktemp("untied"), seed=2, **options)


@pytest.fixture(scope="session")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Biases of queries, keys and values."""
    return save_model(tmp_path_factory.mktemp("qwen2"), "qwen2", seed=3)


@pytest.fixture(scope="session")
def qwen3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Norms of each head, and heads that are wider together than the hidden state."""
    return save_model(tmp_path_factory.mktemp("qwen3"), "qwen3", seed=4, head_dim=32, tie_word_embeddings=False)


@pytest.fixture(scope="session")
def stretched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rotation of Llama 3.1."""
    return save_model(tmp_path_factory.mktemp("stretched"), seed=5, rope_parameters=LLAMA3)


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Frequencies that are stretched, and cosines and sines that are scaled."""
    rope = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 24}
    return save_model(tmp_path_factory.mktemp("yarn"), "qwen2", seed=6, rope_parameters=rope)
