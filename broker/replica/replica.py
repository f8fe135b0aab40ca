"""A follower as its leader knows it: its log end offset, and when it was last caught up.

A follower that fetches at an offset has all records below it. Two comparisons decide when it was caught up, so that a
follower that is always a moment behind a busy leader counts as caught up too:

    the fetch offset is at or beyond             the follower was caught up
    the leader's end now                         now
    the leader's end at the fetch before         at the fetch before
    neither                                      as before

As kafka 2.0.1 Replica.updateLogReadResult. Times are the monotonic clock's.
"""

from __future__ import annotations

from minibroker.protocol.record import NO_OFFSET
from minibroker.storage.index.fetch_data import LogOffsetMetadata

UNKNOWN_END = LogOffsetMetadata(NO_OFFSET)
NEVER_MS = -(2**63)


class Replica:
    """A follower of one partition. Its offsets are unknown until its first fetch."""

    __slots__ = (
        "_last_fetch_ms",
        "_leader_end_offset_at_last_fetch",
        "broker_id",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
    )

    log_end_offset: LogOffsetMetadata
    log_start_offset: int
    _leader_end_offset_at_last_fetch: int
    _last_fetch_ms: int

    def __init__(self, broker_id: int, *, last_caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.last_caught_up_ms = last_caught_up_ms
        self.note_failed_fetch()

    def note_fetch(
        self, end_offset: LogOffsetMetadata, *, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Note a fetch at `end_offset` while the leader's log ended at `leader_end_offset`."""
        offset = end_offset.message_offset
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self._leader_end_offset_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = end_offset
        self.log_start_offset = log_start_offset
        self._leader_end_offset_at_last_fetch = leader_end_offset
        self._last_fetch_ms = now_ms

    def note_failed_fetch(self) -> None:
        """Note a fetch at an offset that the leader does not have: the follower's end is unknown until the next."""
        self.log_end_offset = UNKNOWN_END
        self.log_start_offset = NO_OFFSET
        self._leader_end_offset_at_last_fetch = NO_OFFSET
        self._last_fetch_ms = NEVER_MS

    def note_removal(self) -> None:
        """Count as never caught up, until its next fetch: it is removed from the in-sync replicas."""
        self.last_caught_up_ms = NEVER_MS

    def is_caught_up(self, now_ms: int, max_lag_ms: int) -> bool:
        """Return whether the follower was caught up at most `max_lag_ms` ago."""
        return now_ms - self.last_caught_up_ms <= max_lag_ms
