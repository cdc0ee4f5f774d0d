"""The tensors of a Hugging Face folder: one safetensors file or several, checked as a whole before one is used.

A tensor read here is a view of the file's memory map: whoever keeps it copies it, for the learner writes the next
version over the same file. It knows no architecture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from posttrain.core.errors import EngineError
from posttrain.core.fingerprint import fingerprint

_RAW = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


class Checkpoint:
    """An open folder: names, and a tensor by name."""

    def __init__(self, folder: Path, files: Mapping[str, Any]) -> None:
        self._folder = folder
        self._files = files

    @property
    def names(self) -> set[str]:
        return set(self._files)

    def tensor(self, name: str) -> Tensor:
        tensor: Tensor = self._files[name].get_tensor(name)
        return tensor

    def check(self, shapes: Mapping[str, tuple[int, ...]], ignored: Sequence[str] = ()) -> None:
        """Raises `EngineError` unless every tensor of `shapes` is here in its shape and none is unknown."""
        missing = sorted(shapes.keys() - self.names)
        unknown = sorted(self.names - shapes.keys() - set(ignored))
        if missing or unknown:
            raise EngineError(
                f"{self._folder} does not fit the model: {_listed('lacks', missing, 'has also', unknown)}"
            )
        for name, shape in shapes.items():
            found = tuple(self._files[name].get_slice(name).get_shape())
            if found != shape:
                raise EngineError(f"{self._folder} does not fit the model: {name} is {found}, not {shape}")


@contextmanager
def open_checkpoint(folder: Path) -> Iterator[Checkpoint]:
    """Raises `EngineError` where the folder has no readable safetensors file."""
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise EngineError(f"{folder} holds no weights: it has no safetensors file")
    with ExitStack() as stack:
        files = {}
        for path in paths:
            try:
                file = stack.enter_context(safe_open(path, framework="pt"))
            except SafetensorError as error:
                raise EngineError(f"{path} cannot be read: {error}") from None
            files.update(dict.fromkeys(file.keys(), file))
        yield Checkpoint(folder, files)


def tensors_fingerprint(tensors: Iterable[tuple[str, Tensor]]) -> str:
    """`core.fingerprint` of torch tensors, through the unsigned view of their bits."""
    return fingerprint((name, _raw(tensor)) for name, tensor in tensors)


def _raw(tensor: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[np.unsignedinteger[Any]] = tensor.detach().contiguous().view(_RAW[tensor.itemsize]).numpy()
    return array


def _listed(*parts: str | list[str]) -> str:
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return "; ".join(
        f"it {what} {', '.join(names[:4])}" + (" …" if len(names) > 4 else "") for what, names in pairs if names
    )
