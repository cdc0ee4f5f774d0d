"""A tiny model on disk, and one thread: these tests may run beside others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.learn.parts import norm_in_its_own_dtype, write_tiny_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def exact_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.models.llama.modeling_llama.LlamaRMSNorm.forward", norm_in_its_own_dtype)
