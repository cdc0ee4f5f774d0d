from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from posttrain.core.errors import StoreError
from posttrain.store.append_lines import append_lines, appending, read_lines
from posttrain.store.review import Label, ReviewItem, ReviewLabel, ReviewStore, Why

ITEM = ReviewItem("rl-00000-0000/1", 1, 1, "words", "words/1/correct", Why.RANDOM, second=True)
WRITER = """
import sys
from pathlib import Path
from posttrain.store.review import Label, ReviewLabel, ReviewStore
store = ReviewStore(Path(sys.argv[1]))
for number in range(40):
    store.add(ReviewLabel(f"attempt {number}", sys.argv[2], Label.CORRECT, "note " * 50))
"""


def test_labels_and_items_come_back_as_they_were_given(tmp_path: Path) -> None:
    store = ReviewStore(tmp_path)
    assert (store.items(), store.labels()) == ([], [])
    assert store.extend(lambda known: [ITEM]) == [ITEM]
    assert store.extend(lambda known: [] if known == [ITEM] else [ITEM]) == [ITEM]
    stored = store.add(ReviewLabel(ITEM.trajectory_id, "ann", Label.UNCLEAR, "“ü”\nno idea"))
    assert stored.time > 0
    assert store.labels() == [stored]


def test_reviewers_in_several_processes_and_threads_lose_nothing(tmp_path: Path) -> None:
    others = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), name]) for name in ("ann", "bob")]
    store = ReviewStore(tmp_path)
    threads = [
        threading.Thread(
            target=lambda name=name: [store.add(ReviewLabel("a", name, Label.INCORRECT)) for _ in range(40)]
        )
        for name in ("cam", "dan")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [other.wait() for other in others] == [0, 0]
    labels = store.labels()
    assert {
        name: sum(label.reviewer == name for label in labels) for name in ("ann", "bob", "cam", "dan")
    } == dict.fromkeys(("ann", "bob", "cam", "dan"), 40)


def test_what_a_killed_writer_left_half_written_is_not_read_and_is_cut_off(tmp_path: Path) -> None:
    store = ReviewStore(tmp_path)
    store.add(ReviewLabel("a", "ann", Label.CORRECT))
    whole = store.labels_path.read_bytes()
    for cut in (1, len(whole) // 2, len(whole) - 1):
        store.labels_path.write_bytes(whole + whole[:cut])
        assert len(store.labels()) == 1
        store.add(ReviewLabel("b", "bob", Label.INCORRECT))
        assert [label.trajectory_id for label in store.labels()] == ["a", "b"]
        store.labels_path.write_bytes(whole)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    store = ReviewStore(tmp_path)
    store.add(ReviewLabel("a", "ann", Label.CORRECT))
    with store.labels_path.open("ab") as file:
        file.write(b"{]\n")
    with pytest.raises(StoreError, match="line 2"):
        store.labels()


def test_a_full_disk_leaves_the_lines_that_were_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.jsonl"
    with appending(path):
        append_lines(path, [{"n": 1}])

    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="disk is full"), appending(path):
        append_lines(path, [{"n": 2}])
    assert read_lines(path) == [{"n": 1}]
