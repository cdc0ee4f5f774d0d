"""Ranks that meet, share memory, and notice one another's end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.learn.parts import run_ranks

from posttrain.core.errors import DeadlineExceededError, StorageFullError, UserError, WorkerDiedError
from posttrain.learn import peers as peers_module
from posttrain.learn.peers import Peers


def test_lone_rank_meets_itself() -> None:
    peers = Peers(0, 1, "", timeout_s=1.0)
    assert peers.gather("anything", [1.5, "x"]) == [[1.5, "x"]]
    assert torch.equal(peers.allocate(3, torch.float32), torch.zeros(3))


def test_everyone_gets_all_values_in_rank_order() -> None:
    outcomes = run_ranks(3, lambda rank, at: Peers(rank, 3, at, 30.0).gather("values", {"rank": rank, "x": 0.1 * rank}))
    assert outcomes == [[{"rank": rank, "x": 0.1 * rank} for rank in range(3)]] * 3


def test_values_that_are_not_finite_travel() -> None:
    outcomes = run_ranks(
        2, lambda rank, at: str(Peers(rank, 2, at, 30.0).gather("values", float("nan" if rank else "inf")))
    )
    assert outcomes == ["[inf, nan]"] * 2


def test_allocated_memory_is_one_and_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers_module, "SHARED_MEMORY", tmp_path)

    def write_own_third(rank: int, rendezvous: str) -> list[float]:
        peers = Peers(rank, 3, rendezvous, 30.0)
        shared = peers.allocate(3, torch.float64)
        assert not shared.any()
        peers.gather("seen empty")
        shared[rank] = rank + 1.0
        peers.gather("written")
        return [float(value) for value in shared]

    assert run_ranks(3, write_own_third) == [[1.0, 2.0, 3.0]] * 3
    assert list(tmp_path.iterdir()) == []


def test_too_much_memory_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    first, second = run_ranks(2, lambda rank, at: Peers(rank, 2, at, 30.0).allocate(1 << 20, torch.float32))
    assert isinstance(first, StorageFullError)
    assert "4 MiB" in str(first)
    assert isinstance(second, WorkerDiedError)


@pytest.mark.parametrize("dying", [0, 1])
def test_peer_that_ends_is_noticed_at_once(dying: int) -> None:
    def leave(rank: int, rendezvous: str) -> Any:
        peers = Peers(rank, 2, rendezvous, timeout_s=600.0)
        if rank == dying:
            os._exit(1)
        return peers.gather("compute")

    outcome = run_ranks(2, leave)[1 - dying]
    assert isinstance(outcome, WorkerDiedError)
    assert str(outcome) == f"learner rank {dying} ended while rank {1 - dying} waited for it to compute"


def test_peer_that_hangs_is_a_sentence_after_the_deadline() -> None:
    def hang(rank: int, rendezvous: str) -> Any:
        peers = Peers(rank, 2, rendezvous, timeout_s=0.2 if rank == 0 else 600.0)
        return peers.gather("compute") if rank == 0 else os.read(os.pipe()[0], 0) or peers._links[0].recv(1)

    outcome = run_ranks(2, hang)[0]
    assert isinstance(outcome, DeadlineExceededError)
    assert "learner rank 1 did not come to 'compute' within 0.2 s" in str(outcome)


def test_peer_that_never_starts_is_a_sentence_after_the_deadline(tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceededError, match=r"learner rank 0 did not come to 'meet' within 0.1 s"):
        Peers(1, 2, str(tmp_path), timeout_s=0.1)


def test_rank_that_failed_alone_leaves_the_others_free() -> None:
    def fail(rank: int, rendezvous: str) -> Any:
        peers = Peers(rank, 2, rendezvous, timeout_s=600.0)
        with peers.together():
            if rank == 1:
                raise MemoryError("only here")
            peers.gather("compute")

    first, second = run_ranks(2, fail)
    assert isinstance(first, WorkerDiedError)
    assert isinstance(second, MemoryError)


def test_rank_that_left_cannot_come_back() -> None:
    def leave(rank: int, rendezvous: str) -> Any:
        peers = Peers(rank, 2, rendezvous, timeout_s=600.0)
        peers.close()
        return peers.gather("compute")

    assert all(isinstance(outcome, WorkerDiedError) for outcome in run_ranks(2, leave))


def test_rendezvous_with_too_long_a_name_is_refused() -> None:
    with pytest.raises(UserError, match="of at most 100"):
        Peers(1, 2, "/tmp/" + "x" * 100, timeout_s=1.0)
