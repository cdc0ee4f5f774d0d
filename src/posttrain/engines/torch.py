"""The embedded engine: batched decoding of Llama and Qwen models in this process, on a few CPU threads.

Prompts of a group are computed and stored once, finished rows leave the batch, weights are published in place. Greedy
and sampled rows mix freely. It runs nothing but the families of `architecture.py` and refuses the
rest by name.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from posttrain.core.errors import ConfigError
from posttrain.core.processor import faster_dtype
from posttrain.core.protocols import EngineCapabilities, GenerateRequest, Generation, PauseMode
from posttrain.engines.architecture import LlamaShape, read_shape
from posttrain.engines.decode import Decoding
from posttrain.engines.kernels.build import load_kernels
from posttrain.engines.kernels.operations import KernelOperations, refusal
from posttrain.engines.llama import Llama
from posttrain.engines.operations import Operations
from posttrain.engines.pages import bytes_of_a_page
from posttrain.engines.synchronous import Deadline, SynchronousEngine
from posttrain.engines.torch_operations import TorchOperations
from posttrain.engines.weights import LlamaWeights

_LOG = logging.getLogger(__name__)


class TorchEngine(SynchronousEngine):
    """Implements `core.protocols.RolloutEngine`; blocks while it computes, and drains only.

    No cache outlives a call, so a publish has none to drop.
    """

    def __init__(
        self,
        model: Path,
        dtype: Literal["bfloat16", "float32"] | None = None,
        max_rows: int = 128,
        kernels: Literal["auto", "off"] = "auto",
        cache_mib: int = 0,
    ) -> None:
        """`model` is a Hugging Face folder; its weights are version 0 until the first publish.

        Without `dtype` it computes in what this processor is faster in. `max_rows` sequences decode together.
        `kernels`: compiled ones where they can be built and the type is bfloat16, or none. `cache_mib` bounds the keys
        and values; where rows need more, the last ones wait and go on later; 0 does not bound them. Raises `ModelError`
        for an architecture that it does not know.
        """
        super().__init__()
        if max_rows < 1:
            raise ConfigError(f"an engine needs at least 1 row, not {max_rows}")
        if cache_mib < 0:
            raise ConfigError(f"cache_mib must be at least 0, not {cache_mib}")
        dtype = dtype or faster_dtype()
        shape = read_shape(model)
        operations = _operations(shape, getattr(torch, dtype), kernels)
        self._model = Llama(shape, LlamaWeights(shape, operations), operations)
        self._dtype = dtype
        self._max_rows = max_rows
        page_bytes = bytes_of_a_page(shape.num_layers, shape.num_kv_heads, shape.head_dim, operations.dtype)
        self._max_pages = (cache_mib << 20) // page_bytes if cache_mib else None
        self._load(model)

    async def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            "torch", self._model.shape.max_context, self._dtype, (PauseMode.DRAIN,), shares_prompts=True
        )

    async def fingerprint(self) -> str:
        """Of the packed matrices that sample, unpacked (see `LlamaWeights.fingerprint`)."""
        return self._model.weights.fingerprint()

    @property
    def _vocab_size(self) -> int:
        return self._model.shape.vocab_size

    def _generate(self, requests: Sequence[GenerateRequest], deadline: Deadline) -> list[Generation]:
        return Decoding(self._model, self._version, self._max_rows, requests, self._max_pages).run(deadline)

    def _load(self, folder: Path) -> None:
        self._model.weights.load(folder)


def _operations(shape: LlamaShape, dtype: torch.dtype, kernels: Literal["auto", "off"]) -> Operations:
    if kernels == "off" or dtype != torch.bfloat16:
        return TorchOperations(dtype)
    reason = refusal(shape)
    if reason is not None:
        _LOG.warning("the embedded engine runs without compiled kernels: %s", reason)
        return TorchOperations(dtype)
    library = load_kernels()
    return TorchOperations(dtype) if library is None else KernelOperations(library)
