"""Python as a user who is not root and whom nothing else here uses, since limits count by user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

USER = 65531
needs_ordinary_user = pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="as root this needs setpriv"
)


def run_as_ordinary_user(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python *arguments`, in a process namespace that ends with it: what is outside counts and is not seen. The
    interpreter may lie where only root may look, so that user gets it bound to a folder."""
    return subprocess.run(
        [*_python(), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/tmp", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _python() -> list[str]:
    if os.geteuid() != 0:
        return [sys.executable]
    user = f"setpriv --reuid={USER} --regid={USER} --clear-groups --inh-caps=-all --bounding-set=-all"
    python = f"/mnt/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    lay = 'mount -t tmpfs none /mnt && mkdir /mnt/python && mount --bind "$0" /mnt/python'
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*unshare, "sh", "-c", f'{lay} && exec {user} {python} "$@"', sys.base_prefix]
