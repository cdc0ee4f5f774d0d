"""What an import costs: torch is loaded in models, engines, losses and learn only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import posttrain

ROOMS_WITH_TORCH = {"models", "engines", "losses", "learn"}
ROOT = Path(posttrain.__path__[0])
PROGRAM = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
    assert "torch" not in sys.modules, f"{name} imports torch"
"""


def rooms() -> dict[str, list[str]]:
    """Modules by room, from the files that are there; modules beside the rooms are a room of their own name."""
    found: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        if path.name == "__main__.py":  # to import it is to run it
            continue
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(["posttrain", *parts]).removesuffix(".__init__")
        found.setdefault(parts[0], []).append(name)
    return {room: names for room, names in found.items() if room not in ROOMS_WITH_TORCH}


def import_in_a_new_process(*names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("room", sorted(rooms()))
def test_room_imports_without_torch(room: str) -> None:
    finished = import_in_a_new_process(*rooms()[room])
    assert finished.returncode == 0, finished.stderr


def test_the_check_notices_torch() -> None:
    finished = import_in_a_new_process("posttrain", "torch")
    assert "torch imports torch" in finished.stderr


def test_worker_process_brings_neither_torch_nor_numpy_of_its_own() -> None:
    program = "import sys, posttrain.workers.child; sys.exit(bool({'torch', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
