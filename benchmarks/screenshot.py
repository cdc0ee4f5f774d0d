"""A page or drawing of ours → a PNG, where there is a Chromium to draw it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path


def screenshot(page: Path, out: Path, width: int, height: int) -> None:
    """Nothing where no Chromium is installed."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        return
    with tempfile.TemporaryDirectory(prefix="posttrain-screenshot-") as profile:
        # Without its own sandbox, which it does not have as root; the page is ours.
        options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}")
        size = (f"--window-size={width},{height}", f"--screenshot={out.resolve()}")
        subprocess.run(
            [chromium, *options, *size, page.resolve().as_uri()], capture_output=True, timeout=60, check=True
        )
