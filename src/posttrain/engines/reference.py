"""The reference engine: transformers' own forward pass, one request at a time, simple enough to be obviously right.

What other engines are tested against, and fit for tiny models. It shares no computation between requests and does not
try to be fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from posttrain.core.errors import ModelError
from posttrain.core.protocols import EngineCapabilities, GenerateRequest, Generation, PauseMode
from posttrain.core.types import StopReason
from posttrain.engines.checkpoint import open_checkpoint, tensors_fingerprint
from posttrain.engines.sampling import sample, uniforms
from posttrain.engines.synchronous import Deadline, SynchronousEngine, token_limit


class ReferenceEngine(SynchronousEngine):
    """Any causal language model that transformers runs."""

    def __init__(self, model: Path, dtype: Literal["float32", "bfloat16", "float64"] = "float32") -> None:
        """`model` is a Hugging Face folder; raises `ModelError` where it has no configuration."""
        from transformers import AutoConfig, AutoModelForCausalLM

        super().__init__()
        if not (model / "config.json").is_file():
            raise ModelError(f"{model} is not a model folder: it has no config.json")
        self._dtype = dtype
        try:
            config = AutoConfig.from_pretrained(model, trust_remote_code=False)
        except ValueError as error:
            raise ModelError(f"{model} cannot be loaded: {error}") from error
        self._model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), trust_remote_code=False)
        self._model.eval()
        self._published_dtypes: dict[str, torch.dtype] = {}
        self._load(model)

    async def capabilities(self) -> EngineCapabilities:
        max_context = int(self._model.config.max_position_embeddings)
        return EngineCapabilities("reference", max_context, self._dtype, (PauseMode.DRAIN,), shares_prompts=False)

    async def fingerprint(self) -> str:
        """Of the model's own parameters, each in the type it was published in: equal to the folder's, unless a
        published type has more bits than the engine's."""
        state = self._model.state_dict()
        return tensors_fingerprint((name, state[name].to(dtype)) for name, dtype in self._published_dtypes.items())

    @property
    def _vocab_size(self) -> int:
        return int(self._model.config.vocab_size)

    def _load(self, folder: Path) -> None:
        state = self._model.state_dict()
        shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
        with open_checkpoint(folder) as checkpoint:
            here = [name for name in self._tied_names(state) if name in checkpoint.names]
            if here:  # tied tensors are one: a folder holds it under one of its names, or more
                shapes = {
                    name: shape for name, shape in shapes.items() if name in here or name not in self._tied_names(state)
                }
            checkpoint.check(shapes)
            with torch.no_grad():
                for name in shapes:
                    state[name].copy_(checkpoint.tensor(name))
            self._published_dtypes = {name: checkpoint.tensor(name).dtype for name in shapes}

    def _tied_names(self, state: Mapping[str, Tensor]) -> list[str]:
        embedding = self._model.get_input_embeddings().weight
        return [name for name, tensor in state.items() if tensor.data_ptr() == embedding.data_ptr()]

    def _generate(self, requests: Sequence[GenerateRequest], deadline: Deadline) -> list[Generation]:
        generations: list[Generation] = []
        for request in requests:
            tokens: list[int] = []
            logprobs: list[float] = []
            stop = StopReason.STOP
            for token, logprob in self._sample(request):
                deadline.check(len(generations), len(requests))
                tokens.append(token)
                logprobs.append(logprob)
            if not (tokens and tokens[-1] in request.stop_tokens):
                stop = token_limit(request, self._model.config.max_position_embeddings)[1]
            generations.append(
                Generation(
                    request.request_id,
                    np.asarray(tokens, dtype=np.int32),
                    np.asarray(logprobs, dtype=np.float32),
                    np.full(len(tokens), self._version, dtype=np.int32),
                    stop,
                )
            )
        return generations

    @torch.inference_mode()
    def _next_logits(self, tokens: Tensor) -> Tensor:
        """[1, V]. The whole sequence is computed anew for every token: there is no cache that could be stale."""
        logits: Tensor = self._model(input_ids=tokens[None], use_cache=False, logits_to_keep=1).logits
        return logits[:, -1].float()

    def _sample(self, request: GenerateRequest) -> Iterator[tuple[int, float]]:
        """Tokens with their log-probs, up to the stop token or the limit."""
        limit, _ = token_limit(request, self._model.config.max_position_embeddings)
        temperature = torch.tensor([request.temperature], dtype=torch.float32)
        tokens = torch.from_numpy(request.prompt.astype(np.int64))
        for _ in range(limit):
            number = torch.from_numpy(uniforms([request.seed], [len(tokens)]))
            token, logprob = sample(self._next_logits(tokens), temperature, number)
            yield int(token), float(logprob)
            if int(token) in request.stop_tokens:
                return
            tokens = torch.cat([tokens, token])
