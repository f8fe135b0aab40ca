"""Figures of partitions: where they begin and end, their bytes on disk, how fast they grow.

If no broker answers for a figure, it is None, and the rest is still useful.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from minibroker.any_cluster.cluster import all_of
from minibroker.any_cluster.partition_offsets import asked, bytes_of
from minibroker.client.topic_partition import TopicPartition
from minibroker.console.metadata import TopicRow
from minibroker.protocol.message_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

REMEMBERED = 20_000
SPAN_SECONDS = 10.0
SHORTEST_SECONDS = 0.5


Offsets = dict[TopicPartition, int]


def led_partitions(topics: Iterable[TopicRow]) -> list[TopicPartition]:
    """The partitions with a leader, which alone answers."""
    return [
        TopicPartition(topic.name, each.partition)
        for topic in topics
        for each in topic.partitions
        if each.leader is not None
    ]


def offsets_of(client: Any, partitions: Sequence[TopicPartition], spec: int, *, committed: bool = False) -> Offsets:
    """Offsets of the partitions whose leader answered; `committed` is the last stable offset."""
    return asked(client, partitions, spec, committed_only=committed)


class Figures(NamedTuple):
    """By partition; `stables` are the last stable offsets. What no broker answered for is not there."""

    starts: Offsets
    ends: Offsets
    bytes: Offsets
    stables: Offsets


def figures_of(client: Any, partitions: Sequence[TopicPartition], *, with_stable: bool = False) -> Figures:
    """Ask for all of them at once."""
    return Figures(
        **all_of(
            {
                "starts": lambda: offsets_of(client, partitions, EARLIEST_TIMESTAMP),
                "ends": lambda: offsets_of(client, partitions, LATEST_TIMESTAMP),
                "bytes": lambda: bytes_of(client, partitions),
                "stables": lambda: offsets_of(
                    client, partitions if with_stable else (), LATEST_TIMESTAMP, committed=True
                ),
            }
        )
    )


class Growth:
    """How fast counters grow, from what was seen of each in the last seconds."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, deque[tuple[float, int]]] = OrderedDict()

    def rate(self, name: str, value: int, now: float | None = None) -> float | None:
        """A second; None until it has been seen twice."""
        now = time.monotonic() if now is None else now
        seen = self._seen.setdefault(name, deque())
        self._seen.move_to_end(name)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        while len(seen) > 1 and now - seen[0][0] > SPAN_SECONDS and now - seen[1][0] >= SHORTEST_SECONDS:
            seen.popleft()
        if not seen or now - seen[-1][0] >= SHORTEST_SECONDS:
            seen.append((now, value))
        then, before = seen[0]
        if now - then < SHORTEST_SECONDS or now - then > 3 * SPAN_SECONDS:
            if now - then > 3 * SPAN_SECONDS:
                seen.clear()
                seen.append((now, value))
            return None
        return max(0.0, (value - before) / (now - then))
