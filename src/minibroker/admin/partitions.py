"""Ranges of offsets, and how partitions are chosen and named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed
from minibroker.protocol.text import counted

DEFAULT_MAX_MESSAGE_BYTES = 1_000_000


class OffsetRange(NamedTuple):
    earliest: int
    latest: int


def chosen(partitions: Sequence[TopicPartition], numbers: Collection[int]) -> list[TopicPartition]:
    """Choose by number, all without numbers. Raises CommandFailed for a number that a topic does not have."""
    counts = Counter(each.topic for each in partitions)
    for topic, count in sorted(counts.items()):
        for number in sorted(numbers):
            if number >= count:
                raise no_such_partition(topic, number, count, "choose one of them")
    return [each for each in partitions if not numbers or each.partition in numbers]


def no_such_partition(topic: str, partition: int, partitions: int, advice: str) -> CommandFailed:
    has = f"it has {counted(partitions, 'partition')}, numbered from 0"
    return CommandFailed(f"topic {topic} has no partition {partition}: {has}; {advice}")


def clamped(offset: int, inside: OffsetRange) -> int:
    """The nearest offset in the partition; a negative one stands for a time after its last record."""
    return inside.latest if offset < 0 else min(max(offset, inside.earliest), inside.latest)


def named(partitions: Collection[tuple[str, int]]) -> str:
    """Partitions such as `orders-0, orders-1 and 7 more`."""
    return first_of([f"{topic}-{number}" for topic, number in sorted(partitions)])


def first_of(names: Sequence[str], *, at_most: int = 5) -> str:
    """The first of these names, and how many more there are."""
    more = len(names) - at_most
    return ", ".join(names[:at_most]) + (f" and {more} more" if more > 0 else "")
