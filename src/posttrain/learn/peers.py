"""The ranks of one learner on one machine: memory that all of them see, and a meeting point.

Big tensors live in shared memory (one copy of weights and optimizer state, one gradient buffer for each rank);
small values travel over a Unix socket in the rendezvous folder, which doubles as barrier. A peer that ends is noticed
at once, one that hangs after `timeout_s`. It does no arithmetic and does not cross machines.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from posttrain.core.errors import (
    DeadlineExceededError,
    NonFiniteError,
    StorageFullError,
    UserError,
    WorkerDiedError,
)
from posttrain.core.types import Json

SHARED_MEMORY = Path("/dev/shm")
MAX_SOCKET_PATH = 100
"""Bytes; the kernel allows 107."""


class Peers:
    """Every method is called by all ranks, in the same order; a lone rank needs no rendezvous."""

    def __init__(self, rank: int, world_size: int, rendezvous: str, timeout_s: float) -> None:
        """Blocks until all ranks are there. Raises `DeadlineExceededError`, `UserError` for an unusable folder."""
        assert 0 <= rank < world_size, f"rank {rank} of {world_size}"
        self.rank = rank
        self.world_size = world_size
        self._timeout_s = timeout_s
        self._folder = Path(rendezvous)
        self._num_allocations = 0
        self._links: dict[int, socket.socket] = {}
        """Rank 0 has one to each other rank, the others one to rank 0."""
        self._closed = False
        if world_size > 1:
            self._meet(str(self._folder / "learners.sock"))

    def gather(self, label: str, value: Json = None) -> list[Json]:
        """Everyone's `value` in rank order; nobody goes on before all have come to the same `label`.

        Raises `WorkerDiedError` or `DeadlineExceededError`, after which these ranks cannot meet again.
        """
        if self.world_size == 1:
            return [value]
        if self._closed:
            raise WorkerDiedError(f"learner rank {self.rank} left its peers after an error and cannot {label}")
        if self.rank == 0:
            everyone = [[label, value]] + [self._receive(rank, label) for rank in range(1, self.world_size)]
            for rank in range(1, self.world_size):
                self._send(rank, everyone, label)
        else:
            self._send(0, [label, value], label)
            everyone = self._receive(0, label)
        labels = [each[0] for each in everyone]
        assert set(labels) == {label}, f"learner ranks met at different places: {labels}"
        return [each[1] for each in everyone]

    def allocate(self, num_elements: int, dtype: torch.dtype) -> Tensor:
        """Zeros, the same memory in every rank. Raises `StorageFullError`."""
        if self.world_size == 1:
            return torch.zeros(num_elements, dtype=dtype)
        num_bytes = max(1, num_elements) * dtype.itemsize
        name = f"{self._folder.name}-{self._num_allocations}"
        self._num_allocations += 1
        path = Path(self.gather("allocate", str(_create(name, num_bytes, self._folder)) if self.rank == 0 else "")[0])
        with path.open("r+b") as file:
            memory = mmap.mmap(file.fileno(), num_bytes)
        self.gather("map")
        if self.rank == 0:
            path.unlink()  # the mappings keep it: nothing is left behind, however the processes end
        return torch.frombuffer(memory, dtype=dtype)[:num_elements]

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """An error that only this rank can know of makes it leave, so that the others do not wait for it."""
        try:
            yield
        except (UserError, NonFiniteError):  # raised by all ranks alike
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()

    def _meet(self, address: str) -> None:
        if len(address.encode()) > MAX_SOCKET_PATH:
            raise UserError(
                f"the rendezvous {address} is {len(address.encode())} bytes long, of at most {MAX_SOCKET_PATH}"
            )
        deadline = time.monotonic() + self._timeout_s
        if self.rank > 0:
            self._links[0] = self._connect(address, deadline)
            self._send(0, self.rank, "meet")
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(address)
            listener.listen(self.world_size)
            while len(self._links) < self.world_size - 1:
                listener.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    link, _ = listener.accept()
                except TimeoutError:
                    raise self._late("meet", len(self._links) + 1) from None
                link.settimeout(self._timeout_s)
                self._links[-1] = link
                rank = self._receive(-1, "meet")
                self._links[rank] = self._links.pop(-1)
        Path(address).unlink()

    def _connect(self, address: str, deadline: float) -> socket.socket:
        while True:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                link.connect(address)
            except (FileNotFoundError, ConnectionRefusedError):  # rank 0 is not there yet
                link.close()
                if time.monotonic() > deadline:
                    raise self._late("meet", 0) from None
                time.sleep(0.02)
            else:
                link.settimeout(self._timeout_s)
                return link

    def _send(self, rank: int, value: Json, label: str) -> None:
        body = json.dumps(value).encode()
        try:
            self._links[rank].sendall(struct.pack("<Q", len(body)) + body)
        except TimeoutError:
            raise self._late(label, rank) from None
        except OSError:
            raise self._gone(label, rank) from None

    def _receive(self, rank: int, label: str) -> Json:
        (length,) = struct.unpack("<Q", self._read(rank, 8, label))
        return json.loads(self._read(rank, length, label))

    def _read(self, rank: int, num_bytes: int, label: str) -> bytes:
        parts = bytearray()
        while len(parts) < num_bytes:
            try:
                part = self._links[rank].recv(num_bytes - len(parts))
            except TimeoutError:
                raise self._late(label, rank) from None
            except OSError:
                raise self._gone(label, rank) from None
            if not part:
                raise self._gone(label, rank)
            parts += part
        return bytes(parts)

    def _late(self, label: str, rank: int) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"learner rank {rank} did not come to {label!r} within {self._timeout_s:g} s (rank {self.rank} waited)"
        )

    def _gone(self, label: str, rank: int) -> WorkerDiedError:
        return WorkerDiedError(f"learner rank {rank} ended while rank {self.rank} waited for it to {label}")


def _create(name: str, num_bytes: int, folder: Path) -> Path:
    """A file of zeros in shared memory, or in `folder` where there is not enough of it.

    Space is taken now: a mapping over a hole that cannot be filled would end the process without a word.
    """
    places = [place for place in (SHARED_MEMORY, folder) if place.is_dir()]
    for place in places:
        path = place / f"posttrain-{name}"
        with path.open("xb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            except OSError:
                path.unlink()
                continue
        return path
    raise StorageFullError(f"learners need {num_bytes / 2**20:.0f} MiB more shared memory than {places} have room for")
