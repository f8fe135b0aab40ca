"""Committed offsets, lags and resets of groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minibroker.admin.groups import Group
from minibroker.admin.partitions import OffsetRange, clamped
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed


class GroupSummary(NamedTuple):
    """`members` is None where the broker does not describe them."""

    group: str
    state: str
    members: int | None
    type: str
    protocol_type: str


class GroupPartition(NamedTuple):
    """`committed` and what depends on it is None without a commit; so is `end` of a deleted topic.

    Of a share group, `committed` is where its part of the partition starts: it has acknowledged everything before.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    client_id: str | None  # of the member that reads it; of a share group of all that do, with commas between


class GroupDescription(NamedTuple):
    """A group, with the partitions that it has committed offsets of or that its members have."""

    group: Group
    partitions: list[GroupPartition]


class Move(NamedTuple):
    """A partition's committed offset, before and after a reset; `asked` is the plan's, if the partition lacks it."""

    topic: str
    partition: int
    before: int | None
    after: int
    error: str | None = None
    asked: int | None = None


class Scope(NamedTuple):
    """Which partitions a reset moves: empty for all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()

    def of(self, partitions: Sequence[TopicPartition], source: str) -> list[TopicPartition]:
        """Choose among partitions. Raises CommandFailed for a topic, or a number, that none of them has."""
        for topic in self.topics:
            if all(each.topic != topic for each in partitions):
                raise CommandFailed(f"{source} has no offsets of topic {topic}; choose another topic")
        chosen = [each for each in partitions if not self.topics or each.topic in self.topics]
        for number in self.partitions:
            if all(each.partition != number for each in chosen):
                raise CommandFailed(f"{source} has no partition {number} in these topics; choose another")
        return [each for each in chosen if not self.partitions or each.partition in self.partitions]


def move_to(at: TopicPartition, before: int | None, asked: int, inside: OffsetRange) -> Move:
    """The move to that offset, or to the nearest in the partition."""
    after = clamped(asked, inside)
    return Move(at.topic, at.partition, before, after, asked=None if after == asked else asked)


class Start(int):
    """The offset where a share group starts in a partition, with its lag as the coordinator counts it; None if it does
    not: records behind the start may be done."""

    lag: int | None = None

    @classmethod
    def of(cls, offset: int, lag: int) -> Start:
        """The start at this offset; a lag of -1 is not known."""
        start = cls(offset)
        start.lag = lag if lag >= 0 else None
        return start


def lag_of(committed: int | None, end: int | None) -> int | None:
    """How many offsets are left to read; 0 if the partition now ends below the committed offset."""
    if isinstance(committed, Start) and committed.lag is not None:
        return committed.lag
    return None if committed is None or end is None else max(0, end - committed)


def whole_lag(lags: Sequence[int | None]) -> int | None:
    """The lag of all partitions whose lag is known; None if there are partitions, and that of none is known."""
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known or not lags else None
