"""A folder from which posttrain can be imported with one mistake in it; the checkout is only read."""

from __future__ import annotations

from pathlib import Path

from tests.laws.mutants.mutant import SOURCE, Mutant


def plant(folder: Path, mutant: Mutant | None) -> Path:
    """The folder to put on the path: links to all that is as it was, and the one file that is not."""
    package = folder / "posttrain"
    if mutant is None:
        package.symlink_to(SOURCE)
    else:
        _link_all_but(mutant.file.split("/"), SOURCE, package)
        (package / mutant.file).write_text(mutant.mutated)
    return folder


def _link_all_but(parts: list[str], source: Path, target: Path) -> None:
    target.mkdir()
    for entry in source.iterdir():
        if entry.name != parts[0] and entry.name != "__pycache__":
            (target / entry.name).symlink_to(entry)
    if len(parts) > 1:
        _link_all_but(parts[1:], source / parts[0], target / parts[0])
