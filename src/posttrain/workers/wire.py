"""How an object crosses the socket between a worker and its parent: one frame of length-prefixed parts.

Part 0 is a pickle (protocol 5); the others are the big buffers of its arrays, which travel without being copied
into it. Frames join processes of ours that trust each other: nothing here is safe against a hostile peer.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

Part = bytes | bytearray | memoryview
Frame = Sequence[Part]

MIN_OUT_OF_BAND_BYTES = 16 * 1024
"""Smaller buffers are cheaper to copy into the pickle than to receive one by one."""

_COUNT = struct.Struct("!I")
_LENGTH_BYTES = 8


def encode(value: Any) -> Frame:
    """Raises what pickle raises for a value that cannot be pickled."""
    buffers: list[memoryview] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < MIN_OUT_OF_BAND_BYTES:
            return True
        buffers.append(raw)
        return False

    head = pickle.dumps(value, protocol=5, buffer_callback=keep_in_band)
    return [head, *buffers]


def decode(frame: Frame) -> Any:
    """Arrays are views of the frame's own buffers, and writable where they were writable on the other side."""
    return pickle.loads(frame[0], buffers=frame[1:])


def send(channel: socket.socket, frame: Frame) -> None:
    """On a blocking socket."""
    channel.sendall(_prefix(frame))
    for part in frame:
        channel.sendall(part)


def receive(channel: socket.socket) -> Frame | None:
    """On a blocking socket; None where the peer closed it between two frames, EOFError where within one."""
    prefix = bytearray(_COUNT.size)
    first = channel.recv_into(prefix)
    if first == 0:
        return None
    _fill(channel, memoryview(prefix)[first:])
    lengths = bytearray(_COUNT.unpack(prefix)[0] * _LENGTH_BYTES)
    _fill(channel, memoryview(lengths))
    parts = [bytearray(length) for length in _unpack(lengths)]
    for part in parts:
        _fill(channel, memoryview(part))
    return parts


async def send_async(channel: socket.socket, frame: Frame) -> None:
    """On a non-blocking socket; the event loop goes on while the peer reads."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(channel, _prefix(frame))
    for part in frame:
        await loop.sock_sendall(channel, part)


async def receive_async(channel: socket.socket) -> Frame:
    """On a non-blocking socket. Raises EOFError where the peer closed it."""
    prefix = bytearray(_COUNT.size)
    await _fill_async(channel, memoryview(prefix))
    lengths = bytearray(_COUNT.unpack(prefix)[0] * _LENGTH_BYTES)
    await _fill_async(channel, memoryview(lengths))
    parts = [bytearray(length) for length in _unpack(lengths)]
    for part in parts:
        await _fill_async(channel, memoryview(part))
    return parts


def _prefix(frame: Frame) -> bytes:
    return _COUNT.pack(len(frame)) + struct.pack(f"!{len(frame)}Q", *(len(part) for part in frame))


def _unpack(lengths: bytearray) -> tuple[int, ...]:
    return struct.unpack(f"!{len(lengths) // _LENGTH_BYTES}Q", lengths)


def _fill(channel: socket.socket, view: memoryview) -> None:
    while view:
        received = channel.recv_into(view)
        if received == 0:
            raise EOFError("the channel was closed within a frame")
        view = view[received:]


async def _fill_async(channel: socket.socket, view: memoryview) -> None:
    loop = asyncio.get_running_loop()
    while view:
        received = await loop.sock_recv_into(channel, view)
        if received == 0:
            raise EOFError("the channel was closed")
        view = view[received:]
