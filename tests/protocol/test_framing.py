"""Frames come out as they went in, however the stream was cut; a length nobody may send is refused by itself."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.framing import FIRST_ALLOCATION_BYTES, NEED_DATA, FrameDecoder
from tests.protocol.memory import no_more_memory_than

MAX_FRAME_BYTES = 1000
GIBIBYTE = 1 << 30


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def receive(decoder: FrameDecoder, data: bytes) -> list[bytearray]:
    """Hand over what one read brought, as a connection does: into the pending frame first, the rest by feed."""
    frames = []
    while data:
        pending = decoder.pending_view()
        if pending is None:
            decoder.feed(data)
            data = b""
        else:
            part = data[: len(pending)]
            pending[: len(part)] = part
            decoder.advance(len(part))
            data = data[len(part) :]
        while (frame := decoder.next_frame()) is not NEED_DATA:
            frames.append(frame)
    return frames


def receive_all(pieces: Iterable[bytes]) -> list[bytearray]:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    return [frame for piece in pieces for frame in receive(decoder, piece)]


def taken(decoder: FrameDecoder) -> bytearray:
    """The next frame, which is there."""
    frame = decoder.next_frame()
    assert frame is not NEED_DATA
    return frame


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    payloads=st.lists(st.binary(min_size=1, max_size=30), max_size=8),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30),
)
def test_frames_do_not_depend_on_how_the_stream_was_cut(payloads: list[bytes], sizes: list[int]) -> None:
    stream = framed(*payloads)
    pieces: list[bytes] = []
    at = 0
    while at < len(stream):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[at : at + size])
        at += size

    assert receive_all(pieces) == payloads


def test_frame_is_a_bytearray_of_its_own() -> None:
    stream = bytearray(framed(b"one", b"two"))
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    decoder.feed(memoryview(stream))
    stream[:] = bytes(len(stream))  # the receive buffer is used again

    first, second = taken(decoder), taken(decoder)
    assert isinstance(first, bytearray)
    first[0:3] = b"xxx"

    assert [bytes(first), bytes(second)] == [b"xxx", b"two"]


def test_nothing_is_there_before_a_frame_is_whole() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)

    assert decoder.next_frame() is NEED_DATA
    decoder.feed(framed(b"abc")[:3])
    assert decoder.next_frame() is NEED_DATA
    assert decoder.pending_view() is None, "its length is not known yet"
    assert receive(decoder, framed(b"abc")[3:-1]) == []
    assert decoder.next_frame() is NEED_DATA
    assert receive(decoder, b"c") == [b"abc"]
    assert decoder.next_frame() is NEED_DATA


def test_rest_of_a_large_frame_is_received_in_place() -> None:
    payload = bytes(range(200))
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    decoder.feed(framed(payload)[:24])

    assert decoder.next_frame() is NEED_DATA
    pending = decoder.pending_view()
    assert pending is not None
    assert len(pending) == 180
    pending[:100] = payload[20:120]
    decoder.advance(100)
    assert decoder.next_frame() is NEED_DATA
    pending = decoder.pending_view()
    assert pending is not None
    pending[:] = payload[120:]
    decoder.advance(80)

    assert decoder.pending_view() is None
    assert bytes(taken(decoder)) == payload


@pytest.mark.parametrize(
    "sent",
    [struct.pack(">i", length) for length in (0, -1, -(2**31), MAX_FRAME_BYTES + 1, 2**31 - 1)]
    + [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00"],
)
def test_an_impossible_length_is_refused_by_its_four_bytes_as_are_other_protocols(sent: bytes) -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    decoder.feed(sent)

    with pytest.raises(KafkaProtocolError, match=str(int.from_bytes(sent[:4], "big", signed=True))):
        decoder.next_frame()


def test_largest_frame_allowed_is_taken() -> None:
    payloads = [b"a", b"x" * MAX_FRAME_BYTES]

    assert receive_all([framed(*payloads)]) == payloads


def test_frames_in_front_of_a_bad_length_still_come_out_and_nothing_after_it() -> None:
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    decoder.feed(framed(b"good") + b"\xff\xff\xff\xff")

    assert bytes(taken(decoder)) == b"good"
    with pytest.raises(KafkaProtocolError):
        decoder.next_frame()
    decoder.feed(framed(b"good"))
    with pytest.raises(KafkaProtocolError, match="broken"):
        decoder.next_frame()


@pytest.mark.parametrize(
    ("max_frame_bytes", "most_bytes"),
    [
        pytest.param(MAX_FRAME_BYTES, 64 * 1024, id="nothing for a refused length"),
        pytest.param(GIBIBYTE, 2 * FIRST_ALLOCATION_BYTES, id="as its bytes arrive for an allowed one"),
    ],
)
def test_a_length_alone_allocates_little(max_frame_bytes: int, most_bytes: int) -> None:
    decoder = FrameDecoder(max_frame_bytes)

    with no_more_memory_than(most_bytes), contextlib.suppress(KafkaProtocolError):
        receive(decoder, struct.pack(">i", GIBIBYTE) + b"x")


@pytest.mark.parametrize("size", [64 * 1024, 3 * FIRST_ALLOCATION_BYTES + 2])
def test_frame_beyond_the_first_allocation_comes_out_whole(size: int) -> None:
    payloads = [bytes(range(256)) * (5 * FIRST_ALLOCATION_BYTES // 256), b"after"]
    stream = framed(*payloads)
    decoder = FrameDecoder(GIBIBYTE)

    frames = [frame for at in range(0, len(stream), size) for frame in receive(decoder, stream[at : at + size])]

    assert frames == payloads


def test_feeding_while_a_frame_is_pending_fills_it_first() -> None:
    payloads = [b"a" * 100, b"b", b"c" * 50]
    stream = framed(*payloads)
    decoder = FrameDecoder(MAX_FRAME_BYTES)
    frames = []
    for at in range(0, len(stream), 7):
        decoder.feed(stream[at : at + 7])
        while (frame := decoder.next_frame()) is not NEED_DATA:
            frames.append(frame)

    assert frames == payloads
