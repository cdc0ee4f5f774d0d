"""Frames: what goes in comes out, big arrays without a copy into the pickle."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from posttrain.workers import wire

BIG = wire.MIN_OUT_OF_BAND_BYTES
DTYPES = st.sampled_from([np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_, np.uint8])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats(allow_nan=False),
    lambda children: st.lists(children) | st.tuples(children, children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


def through_sockets(frame: wire.Frame) -> wire.Frame:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender = threading.Thread(target=wire.send, args=(ours, frame))
        sender.start()
        received = wire.receive(theirs)
        sender.join()
        assert received is not None
        return received


def round_trip(value: Any) -> Any:
    return wire.decode(through_sockets(wire.encode(value)))


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_plain_values_come_out_as_they_went_in(value: Any) -> None:
    assert round_trip(value) == value


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(DTYPES, hnp.array_shapes(max_dims=4, min_side=0)), st.booleans(), st.sampled_from([0, BIG]))
def test_arrays_keep_bytes_shape_and_dtype(array: Any, transposed: bool, out_of_band_from: int) -> None:
    array = array.T if transposed else array
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "MIN_OUT_OF_BAND_BYTES", out_of_band_from)
        received = round_trip(array)
    assert (received.dtype, received.shape) == (array.dtype, array.shape)
    assert received.tobytes() == array.tobytes()


@pytest.mark.parametrize("nbytes", [BIG - 1, BIG, BIG + 1])
def test_only_big_buffers_travel_beside_the_pickle(nbytes: int) -> None:
    frame = wire.encode([np.zeros(nbytes, np.uint8), np.ones(nbytes, np.uint8)])
    assert len(frame) == (3 if nbytes >= BIG else 1)
    assert [int(array.sum()) for array in wire.decode(through_sockets(frame))] == [0, nbytes]


@pytest.mark.parametrize("size", [10, BIG])
def test_arrays_stay_writable_or_read_only(size: int) -> None:
    writable, fixed = np.zeros(size), np.zeros(size)
    fixed.flags.writeable = False
    assert [array.flags.writeable for array in round_trip([writable, fixed])] == [True, False]


def test_close_between_frames_is_the_end_and_within_one_an_error() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        assert wire.receive(theirs) is None
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(b"\0\0")
        ours.close()
        with pytest.raises(EOFError):
            wire.receive(theirs)


def test_event_loop_goes_on_while_a_big_frame_travels() -> None:
    payload = np.arange(4 * 2**20, dtype=np.int32)  # 16 MiB: many times what a socket holds

    async def main() -> tuple[Any, int]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for channel in (ours, theirs):
                channel.setblocking(False)
            sending = asyncio.create_task(wire.send_async(ours, wire.encode(payload)))
            receiving = asyncio.create_task(wire.receive_async(theirs))
            turns = 0
            while not receiving.done():
                turns += 1
                await asyncio.sleep(0)
            await sending
            return wire.decode(await receiving), turns

    received, turns = asyncio.run(main())
    np.testing.assert_array_equal(received, payload)
    assert turns > 20
