"""Writing a policy as a Hugging Face folder, fast enough to do it at every step.

The weights file is replaced whole by a rename; what stands beside it (configuration, tokenizer) is copied from the
source folder the first time. It converts no names: a model whose parameters are not named as in its own checkpoint
is refused at load.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from posttrain.core.errors import ModelError
from posttrain.core.fingerprint import fingerprint
from posttrain.learn.tensor_file import write_tensors
from posttrain.store.files import storing

WEIGHTS = "model.safetensors"
WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}


def export(folder: Path, source: Path, tensors: Mapping[str, Tensor]) -> str:
    """`tensors` as they are, and the files of `source` that are no weights; returns the fingerprint (law L17).

    Raises `StorageFullError`, `StoreError`.
    """
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "config.json").exists():
            _copy_companions(folder, source, next(iter(tensors.values())).dtype)
    write_tensors(folder / WEIGHTS, tensors)
    return weights_fingerprint(tensors)


def weights_fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """`core.fingerprint` of a learner's tensors."""
    return fingerprint((name, _bits(tensor)) for name, tensor in tensors.items())


def refuse_renamed(source: Path, names: Iterable[str]) -> None:
    """Raises `ModelError` where the model's names are not those of the weights in `source`."""
    from safetensors import safe_open

    stored: set[str] = set()
    for path in source.glob("*.safetensors"):
        with safe_open(path, framework="numpy") as file:
            stored.update(file.keys())
    unknown = sorted(set(names) - stored)
    if stored and unknown:
        raise ModelError(
            f"{len(unknown)} parameters, {unknown[0]!r} the first, have other names in the weights of {source}: "
            "they could not be exported as they were"
        )


def _copy_companions(folder: Path, source: Path, dtype: torch.dtype) -> None:
    for path in source.iterdir():
        is_weights = path.suffix in WEIGHT_SUFFIXES or path.name.endswith(".index.json")
        if path.is_file() and not is_weights and path.name != "config.json":
            shutil.copyfile(path, folder / path.name)
    config = json.loads((source / "config.json").read_text())
    config.pop("torch_dtype", None)
    config["dtype"] = str(dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def _bits(tensor: Tensor) -> npt.NDArray[Any]:
    """As numpy sees it; bfloat16, which numpy lacks, as the 16 bits it is made of."""
    return tensor.view(torch.int16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
