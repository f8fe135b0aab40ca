"""Cuts a stream of bytes into frames: a 4-byte length, then that many bytes. No socket: bytes in, frames out.

A length is refused by its four bytes alone, before anything is allocated for it; the buffer of a large frame grows as
its bytes arrive, so that four bytes cannot take a hundred megabytes. A frame is a bytearray of its
own, because an append stamps offsets into it. A frame that arrives in pieces is received straight into its buffer:
`pending_view()` is the part to fill next, and `advance(n)` notes that `n` bytes of it are filled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal

from minibroker.protocol.errors import KafkaProtocolError

LENGTH = struct.Struct(">i")
_unpack_length: Callable[..., tuple[int]] = LENGTH.unpack_from
LENGTH_BYTES = 4
# What a length alone may allocate; a frame beyond it doubles its buffer whenever that is full. A produce request
# of default size fits, and is never copied.
FIRST_ALLOCATION_BYTES = 1024 * 1024


class NeedData(Enum):
    """The one value of NEED_DATA."""

    NEED_DATA = 0


NEED_DATA: Final = NeedData.NEED_DATA


class FrameDecoder:
    """Frames of at most `max_frame_bytes`. After a KafkaProtocolError it stays dead.

    A length alone allocates `first_allocation_bytes`. Only the answers of SASL may be empty: tokens without a header.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_first_allocation_bytes",
        "_frame",
        "_is_dead",
        "_length",
        "_max_frame_bytes",
        "_min_frame_bytes",
        "left_bytes",
        "memory",
    )

    def __init__(self, max_frame_bytes: int, min_frame_bytes: int = 1) -> None:
        self.limit(max_frame_bytes)
        self._min_frame_bytes = min_frame_bytes
        self._buffer = b""  # the last `left_bytes` of it are not yet cut into frames
        self.left_bytes = 0  # that were fed and belong to no frame yet
        self._frame: bytearray | None = None  # an incomplete frame
        self._filled = 0
        self._length = 0  # of the whole `_frame`, which may still have to grow
        self._is_dead = False
        self.memory: Any = None  # where a pool has the memory: what is awaited before more may be received

    def limit(self, max_frame_bytes: int, first_allocation_bytes: int = FIRST_ALLOCATION_BYTES) -> None:
        """Let these limits hold from the next frame on."""
        self._max_frame_bytes = max_frame_bytes
        self._first_allocation_bytes = first_allocation_bytes

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take received bytes. They fill a pending frame first; receiving into `pending_view()` saves this copy."""
        # Most often no frame is incomplete, and nothing is to be called.
        while self._frame is not None and data and (pending := self.pending_view()) is not None:
            taken = min(len(data), len(pending))
            pending[:taken] = data[:taken]
            self.advance(taken)
            data = data[taken:]
        if self.left_bytes:
            self._buffer = self._buffer[-self.left_bytes :] + bytes(data)
        else:
            self._buffer = bytes(data)
        self.left_bytes = len(self._buffer)

    def pending_view(self) -> memoryview | None:
        """The buffer for the next bytes of an incomplete frame, or None."""
        frame = self._frame
        return None if frame is None or self._filled == len(frame) else memoryview(frame)[self._filled :]

    def advance(self, received: int) -> None:
        """Note that `received` bytes were written to the start of `pending_view()`."""
        self._filled += received
        frame = self._frame
        if frame is not None and self._filled == len(frame) < self._length:
            self._frame = bytearray(min(self._length, 2 * len(frame)))
            self._frame[: self._filled] = frame

    def next_length(self) -> int:
        """Return the length of the next frame; 0 if it is unknown or invalid, or the frame has been begun."""
        if self._frame is not None or self._is_dead or self.left_bytes < LENGTH_BYTES:
            return 0
        (length,) = _unpack_length(self._buffer, len(self._buffer) - self.left_bytes)
        return length if self._min_frame_bytes <= length <= self._max_frame_bytes else 0

    def end(self) -> None:
        """Drop what has arrived: no more bytes come."""
        self._frame, self._buffer, self.left_bytes = None, b"", 0

    def next_frame(self) -> bytearray | Literal[NeedData.NEED_DATA]:
        """The next whole frame, or NEED_DATA. Raises KafkaProtocolError for an invalid length."""
        if self._is_dead:
            raise KafkaProtocolError("the stream of frames is broken")
        frame = self._frame
        if frame is not None:
            if self._filled < self._length:
                return NEED_DATA
            self._frame = None
            return frame
        available = self.left_bytes - LENGTH_BYTES
        if available < 0:
            return NEED_DATA
        buffer = self._buffer
        start = len(buffer) - self.left_bytes
        (length,) = _unpack_length(buffer, start)
        least, most = self._min_frame_bytes, self._max_frame_bytes
        if not least <= length <= most:
            self._is_dead = True
            raise KafkaProtocolError(f"frame length {length} is not between {least} and {most}")
        start += LENGTH_BYTES
        if length <= available:
            self.left_bytes = available - length
            return bytearray(buffer[start : start + length])
        self._length = length
        self._frame = bytearray(min(length, max(available + 1, self._first_allocation_bytes)))
        self._frame[:available] = buffer[start:]
        self._filled = available
        self._buffer, self.left_bytes = b"", 0
        return NEED_DATA
