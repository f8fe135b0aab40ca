"""The memory for requests that are being read (queued.max.request.bytes): one account for all connections.

As kafka 2.0.1 SimpleMemoryPool, which is not strict: a request is read as long as a byte is left, so that one may
overdraw the account. After that every client waits, also one with a small request, until a request is whole, or its
client has left. Tokens of a login are not counted, nor what an append holds while it waits for replicas. A length that
is refused is so without memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from minibroker.broker.pending import Pending
from minibroker.protocol.framing import FIRST_ALLOCATION_BYTES, NEED_DATA, FrameDecoder, NeedData


class MemoryPool:
    """Bytes that are shared; those who find none wait, and get them in the order in which they have asked."""

    def __init__(self, size_bytes: int, now_ms: Callable[[], int]) -> None:
        self.size_bytes = size_bytes
        self.available_bytes = size_bytes  # below 0 if the last request is longer than what was left
        self.depleted_ms = 0  # for so long clients have waited, up to the last time that memory came back
        self._now_ms = now_ms
        self._depleted_since_ms: int | None = None
        self._waiting: dict[PooledFrames, int] = {}

    @property
    def used_bytes(self) -> int:
        return self.size_bytes - self.available_bytes

    def try_take(self, taker: PooledFrames, size_bytes: int) -> bool:
        """Take bytes; else let `taker` wait, whose `on_memory` is called once they are its own."""
        if self.available_bytes > 0:
            self.available_bytes -= size_bytes
            return True
        if self._depleted_since_ms is None:
            self._depleted_since_ms = self._now_ms()
        self._waiting[taker] = size_bytes
        return False

    def give_back(self, size_bytes: int) -> None:
        self.available_bytes += size_bytes
        if self._depleted_since_ms is not None:
            self.depleted_ms += self._now_ms() - self._depleted_since_ms
            self._depleted_since_ms = None
        while self._waiting and self.available_bytes > 0:
            taker = next(iter(self._waiting))
            taken_bytes = self._waiting.pop(taker)
            self.available_bytes -= taken_bytes
            taker.on_memory(taken_bytes)
        if self._waiting:
            self._depleted_since_ms = self._now_ms()

    def leave(self, taker: PooledFrames) -> None:
        """Wait no longer."""
        self._waiting.pop(taker, None)


class PooledFrames(FrameDecoder):
    """Frames whose memory comes from a pool, from their length on until they are whole."""

    __slots__ = ("_is_counted", "_pool", "_taken_bytes")

    def __init__(self, max_frame_bytes: int, pool: MemoryPool) -> None:
        super().__init__(max_frame_bytes)
        self._pool = pool
        self._taken_bytes = 0

    def limit(self, max_frame_bytes: int, first_allocation_bytes: int = FIRST_ALLOCATION_BYTES) -> None:
        super().limit(max_frame_bytes, first_allocation_bytes)
        self._is_counted = first_allocation_bytes == FIRST_ALLOCATION_BYTES  # else these are tokens of a login

    def next_frame(self) -> bytearray | Literal[NeedData.NEED_DATA]:
        if self._is_counted and not self._taken_bytes:
            length = self.next_length()
            if length and not self._pool.try_take(self, length):
                self.memory = Pending(self)
                return NEED_DATA
            self._taken_bytes = length
        frame = super().next_frame()
        if frame is not NEED_DATA:
            self._give_back()
        return frame

    def on_memory(self, size_bytes: int) -> None:
        """The next frame has its memory."""
        self._taken_bytes = size_bytes
        memory: Pending[None] = self.memory
        self.memory = None
        memory.resolve(None)

    def abandon(self) -> None:
        self._pool.leave(self)

    def end(self) -> None:
        super().end()
        self._give_back()

    def _give_back(self) -> None:
        size_bytes, self._taken_bytes = self._taken_bytes, 0
        if size_bytes:
            self._pool.give_back(size_bytes)
