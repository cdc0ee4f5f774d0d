"""A machine on which the fake docker or podman is installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from posttrain.sandbox.bubblewrap import _system, find_host

FAKE = Path(__file__).with_name("fake_docker.py")
IMAGE = "python:3.11-slim"
FOLDERS = ("/sys", "/sys/fs", "/sys/fs/cgroup", "/dev")
"""Which bubblewrap would make for root alone."""


class FakeEngine:
    """In `home`; the program in `home`/bin. `python`: what images have in their PATH, instead of ours."""

    def __init__(self, home: Path, name: str = "docker", python: Path | None = None) -> None:
        host = find_host()
        python = python or host.python
        self.home, self.bin = home, home / "bin"
        self.bin.mkdir()
        (home / "containers").mkdir()
        system = _system(python.parent.parent)
        settings = {
            "bwrap": str(host.bwrap),
            "system": [*system, *(part for path in FOLDERS for part in ("--perms", "0755", "--dir", path))],
            "path": f"{python.parent}:/usr/bin:/bin",
            "images": {IMAGE: None, "with-volumes": {"/data": {}}},
            "podman": name == "podman",
        }
        (home / "settings.json").write_text(json.dumps(settings))
        self.program = self.bin / name
        self.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{FAKE}" "{home}" "$@"\n')
        self.program.chmod(0o755)

    def fail(self, **faults: Any) -> None:
        """By name, with _ for a blank: a value, or a value and how often. None at all: nothing fails any more."""
        named = {name.replace("_", " "): value for name, value in faults.items()}
        (self.home / "faults.json").write_text(json.dumps(named))

    def asked(self, verb: str) -> list[list[str]]:
        """Command lines since the fake was made."""
        lines = (self.home / "asked.jsonl").read_text().splitlines()
        return [argv for argv in map(json.loads, lines) if argv[0] == verb]

    def containers(self) -> list[str]:
        return sorted(os.listdir(self.home / "containers"))  # noqa: PTH208

    def has(self, name: str, file: str) -> bool:
        return (self.home / "containers" / name / file).exists()

    def command(self, *argv: str) -> None:
        subprocess.run([self.program, *argv], check=True)
