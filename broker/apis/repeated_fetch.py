"""A fetch that is asked again, byte for byte, by a client that has read everything and does not wait.

While none of its partitions has moved the answer is the same too, but for the correlation id: neither need be
decoded, looked up or encoded a second time. Only fetches without a session, of any version, come here.
"""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.broker.replica.partition import FetchResponseRow, Partition

CORRELATION_ID = slice(4, 8)  # in a request without its size, and in a response with it
BEHIND_CORRELATION_ID = 8

# A partition, the offset that was asked of it, and what it answered.
RowAtEnd = tuple[Partition, int, FetchResponseRow]


class RepeatedFetch:
    """The latest such fetch of one connection: the request's frame, and the response's with its size in front."""

    __slots__ = ("_head", "_response", "_rows", "_tail")

    def __init__(self, request_frame: bytes | bytearray, rows: Sequence[RowAtEnd], response_frame: bytes) -> None:
        self._head = bytes(request_frame[: CORRELATION_ID.start])
        self._tail = bytes(request_frame[BEHIND_CORRELATION_ID:])
        self._rows = rows
        self._response = bytearray(response_frame)

    def answer(self, request_frame: bytes | bytearray) -> bytes | None:
        """The response's frame; None if something else is asked, or something has moved."""
        if request_frame[BEHIND_CORRELATION_ID:] != self._tail or request_frame[: CORRELATION_ID.start] != self._head:
            return None
        for partition, fetch_offset, row in self._rows:
            if partition.row_at_end(fetch_offset) is not row:
                return None
        self._response[CORRELATION_ID] = request_frame[CORRELATION_ID]
        return bytes(self._response)
