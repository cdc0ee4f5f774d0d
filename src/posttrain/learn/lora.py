"""Low-rank adapters on a policy's model, through peft: W is frozen, W + alpha / rank · B · A computes, A and B learn.

LoRA: Hu et al., arXiv:2106.09685. B begins at zero, so an adapter that is not trained changes nothing. A and B are at
least float32, whatever the model computes in. Unlike peft's layers these compute with the merged matrix, rounded as it
is published: with x · Wᵀ and the adapter's share apart, a bfloat16 engine would sample from another policy than the
one that learns. It trains nothing, and has no dropout.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from posttrain.core.errors import ConfigError
from posttrain.core.registry import unknown
from posttrain.core.seeding import stable_hash
from posttrain.learn.lora_config import LoraConfig, require_peft
from posttrain.learn.tensor_file import write_tensors
from posttrain.store.files import storing, write_bytes

NAME = "default"
"""What peft calls the one adapter; it stands in its parameters' names."""


class Adapter:
    """Made on a model that has no adapter yet; its layers are the model's from then on."""

    def __init__(self, model: Any, config: LoraConfig, folder: Path, dtype: torch.dtype, seed: int) -> None:
        """Freezes `model`, which was loaded from `folder`, and adds A and B of `dtype`; A is drawn from `seed`.

        Raises `ConfigError` for a target that the model lacks and where peft is missing.
        """
        require_peft()
        targets = _targets(model, config.targets, folder)
        import peft
        from peft.tuners.lora import LoraLayer

        self._model = model
        self._config = peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,  # type: ignore[arg-type]  # peft divides it by the rank and does nothing else
            target_modules=targets,
            task_type="CAUSAL_LM",
            base_model_name_or_path=str(folder),
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(stable_hash("lora", seed))
            peft.inject_adapter_in_model(self._config, model, NAME)
        model.eval()
        for parameter in self._parameters().values():
            parameter.data = parameter.data.to(dtype)
        self._layers: dict[str, Any] = {name: m for name, m in model.named_modules() if isinstance(m, LoraLayer)}
        for layer in self._layers.values():
            layer.forward = partial(_merged_linear, layer)

    @torch.no_grad()
    def merged(self) -> dict[str, Tensor]:
        """The adapted matrices, new ones, under the names that they have without adapters."""
        return {f"{name}.weight": _merge(*_factors(layer)) for name, layer in self._layers.items()}

    def export(self, folder: Path) -> None:
        """Write what `peft.PeftModel.from_pretrained(base, folder)` reads. Raises `StorageFullError`, `StoreError`."""
        with storing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        tensors = {_name_in_file(name): parameter.detach() for name, parameter in self._parameters().items()}
        write_tensors(folder / "adapter_model.safetensors", tensors)
        fields = {**self._config.to_dict(), "inference_mode": True}
        plain = {name: sorted(value) if isinstance(value, set) else value for name, value in fields.items()}
        write_bytes(folder / "adapter_config.json", f"{json.dumps(plain, indent=2, sort_keys=True)}\n".encode())

    def _parameters(self) -> dict[str, nn.Parameter]:
        return {name: parameter for name, parameter in self._model.named_parameters() if is_adapter(name)}


class _MergedLinear(torch.autograd.Function):
    """`[*, in]` → `[*, out]`. The rounding of the merged matrix counts as none for the gradients of A and B."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, bias: Tensor | None, weight: Tensor, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(inputs, weight, a, b)
        ctx.scale = scale
        return nn.functional.linear(inputs, _merge(weight, a, b, scale), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight, a, b = ctx.saved_tensors
        # Merged again: to keep every layer's matrix until here would be a second model.
        of_inputs = gradient @ _merge(weight, a, b, ctx.scale) if ctx.needs_input_grad[0] else None
        outer, inner = gradient.flatten(0, -2).to(a.dtype), inputs.flatten(0, -2).to(a.dtype)
        of_a = (outer @ b).t() @ inner * ctx.scale
        of_b = outer.t() @ (inner @ a.t()) * ctx.scale
        return of_inputs, None, None, of_a, of_b, None


def _merged_linear(layer: Any, inputs: Tensor) -> Tensor:
    output: Tensor = _MergedLinear.apply(inputs, layer.get_base_layer().bias, *_factors(layer))  # type: ignore[no-untyped-call]
    return output


def _factors(layer: Any) -> tuple[Tensor, Tensor, Tensor, float]:
    """W `[out, in]`, A `[rank, in]`, B `[out, rank]` and the scale of their product."""
    return layer.get_base_layer().weight, layer.lora_A[NAME].weight, layer.lora_B[NAME].weight, layer.scaling[NAME]


def _merge(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale · B · A, summed in the adapter's dtype and rounded once, to that of W."""
    return (b @ a).mul_(scale).add_(weight).to(weight.dtype)


def is_adapter(name: str) -> bool:
    """Whether a parameter of this name is an adapter's A or B."""
    return ".lora_A." in name or ".lora_B." in name


def plain_name(name: str) -> str:
    """The name that a frozen parameter has in the model without adapters."""
    return name.replace(".base_layer.", ".")


def _targets(model: Any, wanted: Sequence[str], folder: Path) -> list[str]:
    head = model.get_output_embeddings()
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head]
    known = sorted({last for name in linear if not (last := name.rpartition(".")[2]).isdigit()})
    if not known:
        raise ConfigError(f"learner.lora: {model.config.model_type} in {folder} has no linear layer beside its head")
    for name in wanted:
        if name not in known:
            raise ConfigError(f"learner.lora: {unknown('target', name, known)}")
    return sorted(set(wanted)) or known


def _name_in_file(name: str) -> str:
    return "base_model.model." + name.replace(f".{NAME}.", ".")
