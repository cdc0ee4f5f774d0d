from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from posttrain.core.errors import RunLockedError
from posttrain.store.run_lock import RunLock

HOLD = "import sys, time; from pathlib import Path; from posttrain.store.run_lock import RunLock; "
HOLD += "lock = RunLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"


def test_a_second_holder_is_told_who_the_first_is(tmp_path: Path) -> None:
    with RunLock(tmp_path / "lock"), pytest.raises(RunLockedError, match=f"in use by process {os.getpid()} on "):
        RunLock(tmp_path / "lock")


def test_a_released_lock_can_be_taken(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "lock")
    lock.release()
    lock.release()
    with RunLock(tmp_path / "lock"):
        pass


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunLockedError, match=f"process {holder.pid} on "):
            RunLock(path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with RunLock(path), pytest.raises(RunLockedError, match=f"process {os.getpid()} on "):
        RunLock(path)


def test_a_child_started_by_exec_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = RunLock(tmp_path / "lock")
    with subprocess.Popen(["sleep", "600"], close_fds=False) as child:
        lock.release()
        with RunLock(tmp_path / "lock"):
            pass
        child.kill()


def test_a_holder_that_has_not_yet_written_its_name_is_another_process(tmp_path: Path) -> None:
    with RunLock(tmp_path / "lock"):
        os.truncate(tmp_path / "lock", 0)
        with pytest.raises(RunLockedError, match="in use by another process"):
            RunLock(tmp_path / "lock")
