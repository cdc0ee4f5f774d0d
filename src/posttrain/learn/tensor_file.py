"""Writing tensors as one safetensors file, with the system's refusals as sentences: a full disk is `StorageFullError`.

The file appears whole, or the old one stays. It makes nothing durable (the store does) and reads nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from posttrain.store.files import storing, temporary_name

_UMASK = os.umask(0o077)
os.umask(_UMASK)  # it can only be read by setting it
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raises `StorageFullError`, `StoreError`."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    temporary = temporary_name(path)
    with storing(path):
        try:
            save_file(dict(tensors), temporary, metadata={"format": "pt"})
        except SafetensorError as error:  # the system's number stands in its text and nowhere else
            found = _SYSTEM_ERROR.search(str(error))
            if found is None:
                raise
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error
        temporary.chmod(0o666 & ~_UMASK)  # safetensors gives it to its owner alone, and a server may be another user
        temporary.replace(path)  # whoever has the old file mapped keeps it whole
