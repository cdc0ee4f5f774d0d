"""The documentation builds as it stands, and its reference names every public name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import posttrain

ROOT = Path(__file__).parents[1]
SOURCES = ("docs", "src", "mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_the_site_has_the_repositorys_pages_and_their_pictures(site: Path) -> None:
    start = (site / "index.html").read_text()
    assert "What comes out" in start
    pictures = re.findall(r'<img[^>]* src="([^"]+)"', start)
    assert pictures
    assert all((site / picture).is_file() for picture in pictures)


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert re.findall(r'(?:src=|<link[^>]*href=)"(?:https?:)?//[^"]*"', page.read_text()) == [], page


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    named = {
        anchor.rpartition(".")[2] for anchor in re.findall(r'id="(posttrain[\w.]*)"', (site / "api.html").read_text())
    }
    assert set(posttrain.__all__) <= named


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    for name in SOURCES:
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, tmp_path / name)
    with (tmp_path / "README.md").open("a") as readme:
        readme.write("\n[nowhere](docs/nowhere.md)\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert "nowhere.md" in built.stderr
