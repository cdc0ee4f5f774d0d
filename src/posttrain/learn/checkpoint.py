"""A trainer's own state on disk: safetensors under the parameters' names and one JSON file, no pickle.

Nothing in it depends on the number of ranks. The JSON file is written last; making the folder appear whole or not
at all is the store's affair (law L22).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from posttrain.core.errors import StoreError
from posttrain.core.protocols import StageSpec
from posttrain.learn.parameters import FlatParameters
from posttrain.learn.tensor_file import write_tensors
from posttrain.store.files import read_json, storing, write_json

STATE = "trainer.json"


@dataclass(frozen=True)
class TrainerState:
    """All that is not a tensor."""

    dtype: str
    stage: StageSpec | None
    step: int
    """Steps of the stage done, empty ones included."""
    num_updates: int
    """Optimizer updates of the stage done."""
    frozen: str = ""
    """Fingerprint of the weights that an adapter was trained on, which no checkpoint holds; empty without adapter."""


def write(folder: Path, state: TrainerState, parameters: FlatParameters, vectors: Mapping[str, Tensor]) -> None:
    """`vectors` are flat [P] tensors; each becomes one file of that name. Raises `StorageFullError`, `StoreError`."""
    with storing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for name, flat in vectors.items():
        write_tensors(folder / f"{name}.safetensors", parameters.views(flat))
    write_json(folder / STATE, {**asdict(state), "vectors": sorted(vectors)})


def read_state(folder: Path) -> tuple[TrainerState, set[str]]:
    """The state and the names of the vectors beside it. Raises `StoreError` where the folder is not whole."""
    path = folder / STATE
    if not path.is_file():
        raise StoreError(f"{folder} is not a trainer's checkpoint: it has no {STATE}")
    plain = read_json(path)
    vectors = set(plain.pop("vectors"))
    stage = plain.pop("stage")
    return TrainerState(stage=StageSpec(**stage) if stage else None, **plain), vectors


def read_vector(folder: Path, name: str, parameters: FlatParameters, flat: Tensor) -> None:
    """Fill `flat`. Raises `StoreError` where names, shapes or dtype are not the model's."""
    from safetensors.torch import load_file

    path = folder / f"{name}.safetensors"
    stored = load_file(path)
    views = parameters.views(flat)
    if {key: (value.shape, value.dtype) for key, value in stored.items()} != {
        key: (view.shape, view.dtype) for key, view in views.items()
    }:
        raise StoreError(f"{path} is of another model or dtype than this trainer's")
    with torch.no_grad():
        for key, view in views.items():
            view.copy_(stored[key])
