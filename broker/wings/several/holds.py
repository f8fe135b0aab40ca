"""Which partitions this broker is to follow late, or not at all: tests make a follower lag.

    a hold by       the follower has
    nothing         what it had
    records         all but the newest that many of the leader's
    seconds         what the leader had that long ago, as far as the follower has seen it

Only whole batches are taken. The leader's end is what it answers to a follower.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from minibroker.protocol.batches import scan_batches
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log_validator import Buffer


class Place(NamedTuple):
    """A partition, all partitions of a topic, or all that there are."""

    topic: str | None = None
    partition: int | None = None

    def has(self, topic_partition: TopicPartition) -> bool:
        return self.topic in (None, topic_partition.topic) and self.partition in (None, topic_partition.partition)


class Hold:
    """A follower holds back: without `records` and `seconds`, all that is new."""

    def __init__(self, place: Place, *, records: int | None = None, seconds: float | None = None) -> None:
        self.place = place
        self.records = records
        self.seconds = seconds
        self._seen: dict[TopicPartition, deque[tuple[int, int]]] = {}  # times, and the leader's ends at them
        self._allowed: dict[TopicPartition, int] = {}

    @property
    def is_whole(self) -> bool:
        return self.records is None and self.seconds is None

    def end_of(self, topic_partition: TopicPartition, leader_end_offset: int, now_ms: int) -> int:
        """Return the offset up to which the follower may have the log, once it has seen where the leader's ends."""
        if self.records is not None:
            return leader_end_offset - self.records
        seen = self._seen.setdefault(topic_partition, deque())
        seen.append((now_ms, leader_end_offset))
        while seen and seen[0][0] <= now_ms - (self.seconds or 0) * 1000:
            self._allowed[topic_partition] = seen.popleft()[1]
        return self._allowed.get(topic_partition, 0)

    def __str__(self) -> str:
        if self.is_whole:
            return "held"
        behind = f"{self.records} records" if self.records is not None else f"{self.seconds:g} s"
        return f"{behind} behind"


class Holds:
    """The holds of this broker; of two for a partition the one that was made last counts."""

    def __init__(self) -> None:
        self._holds: dict[Place, Hold] = {}

    def add(self, hold: Hold) -> None:
        self._holds.pop(hold.place, None)
        self._holds[hold.place] = hold

    def release(self, place: Place) -> None:
        """End the holds of partitions that are all in a place."""
        for each in list(self._holds):
            if place.topic in (None, each.topic) and place.partition in (None, each.partition):
                del self._holds[each]

    @property
    def are_any(self) -> bool:
        return bool(self._holds)

    def of(self, topic_partition: TopicPartition) -> Hold | None:
        if not self._holds:
            return None
        return next((each for each in reversed(self._holds.values()) if each.place.has(topic_partition)), None)


def cut(records: Buffer, end_offset: int) -> Buffer:
    """Return the first whole batches that end at the offset or before it."""
    size = 0
    for view in scan_batches(records, 0, len(records)):
        if view.next_offset > end_offset:
            break
        size = view.end_position
    return memoryview(records)[:size]
