"""What our own code inside answers to a session: records, each a line of JSON and the bytes that it announces.

It comes out of a sandbox, so it is checked like anything that does; a record that is not whole is no record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    path: str = ""
    deleted: bool = False
    hash: str = ""
    refused: str = ""
    """Why the verb did nothing."""
    body: bytes = b""


class Records:
    """A `Talk` that only listens."""

    def __init__(self, max_bytes: int) -> None:
        self.data = bytearray()
        self.violation = ""
        self._max_bytes = max_bytes

    def next_message(self) -> bytes | None:
        return None

    def feed(self, data: bytes) -> bool:
        self.data += data
        if len(self.data) > self._max_bytes:
            self.violation = f"an answer of more than {self._max_bytes} bytes"
        return False

    def parse(self) -> list[Record]:
        """Raises `ValueError` for what is no series of whole records."""
        return list(self._each())

    def _each(self) -> Iterator[Record]:
        at = 0
        while at < len(self.data):
            end = self.data.index(b"\n", at)
            head = json.loads(self.data[at:end])
            size = head.pop("size")
            at = end + 1 + size
            if not isinstance(size, int) or size < 0 or at > len(self.data):
                raise ValueError("a record that is not whole")
            yield _record(head, bytes(self.data[end + 1 : at]))


def _record(head: dict[str, object], body: bytes) -> Record:
    path, hashed, refused = (head.pop(name, "") for name in ("path", "hash", "refused"))
    deleted = head.pop("deleted", False)
    if head or not isinstance(deleted, bool):
        raise ValueError("a record with unknown fields")
    if not isinstance(path, str) or not isinstance(hashed, str) or not isinstance(refused, str):
        raise ValueError("a record with fields of the wrong kind")
    return Record(path, deleted, hashed, refused, body)
