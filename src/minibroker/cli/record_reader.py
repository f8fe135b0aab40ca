"""Reads a topic from a position to its end, or follows it: by partitions, or as a member of a group.

The end is where each partition ended when reading started, so that a topic under writes has an end too. A member
commits only what has been printed, within a second of it and at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from minibroker.cli.address import Address
from minibroker.cli.cluster import OffsetAndMetadata, TopicPartition, connected, consuming
from minibroker.cli.failures import CommandFailed
from minibroker.cli.partition_offsets import no_such_partition, offsets_at, partitions_of, ranges_of
from minibroker.cli.positions import Position

POLL_MS = 200
RECORDS_PER_POLL = 500
COMMIT_SECONDS = 0.5
JOIN_SECONDS = 60.0


class Reader:
    """Partitions of a topic, from a position."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        topic: str,
        partition: int | None,
        position: Position,
        *,
        committed_only: bool,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partition = partition
        self._position = position
        self._committed_only = committed_only
        self._consumer: Any = None
        self._starts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Raises CommandFailed, also for failures inside."""
        with connected(self._bootstrap) as admin:
            partitions = self._chosen(partitions_of(admin, [self._topic]))
            ranges = ranges_of(admin, partitions, committed_only=self._committed_only)
            self._starts = offsets_at(admin, self._position, ranges)
        self._ends = {partition: inside.latest for partition, inside in ranges.items()}
        with consuming(self._bootstrap, **isolation(self._committed_only)) as self._consumer:
            self._consumer.assign(partitions)
            for partition, offset in self._starts.items():
                self._consumer.seek(partition, offset)
            yield

    def _chosen(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        if self._partition is None:
            return partitions
        if self._partition >= len(partitions):
            raise no_such_partition(self._topic, self._partition, len(partitions), "correct --partition")
        return [partition for partition in partitions if partition.partition == self._partition]

    def expected(self, count: int | None) -> int | None:
        """The most records there can be to read."""
        there = sum(end - self._starts[partition] for partition, end in self._ends.items())
        return there if count is None else min(count, there)

    def batches(self, count: int | None, *, follow: bool) -> Iterator[list[Any]]:
        """Records as they come, `count` at most; an empty list for each poll that found none."""
        left = count
        while follow or not self._is_at_end():
            wanted = RECORDS_PER_POLL if left is None else min(left, RECORDS_PER_POLL)
            polled = self._consumer.poll(POLL_MS, max_records=wanted)
            records = [record for batch in polled.values() for record in batch]
            yield records
            if left is not None:
                left -= len(records)
                if left <= 0:
                    return

    def printed(self, records: Sequence[Any]) -> None:
        """Note that these records are printed, after every poll; only a group commits them."""

    def _is_at_end(self) -> bool:
        return all(self._consumer.position(partition) >= end for partition, end in self._ends.items())


class GroupReader(Reader):
    """A topic as a member of a group: from the committed offsets, else from the position."""

    def __init__(
        self, bootstrap: Sequence[Address], topic: str, group: str, position: Position, *, committed_only: bool
    ) -> None:
        super().__init__(bootstrap, topic, None, position, committed_only=committed_only)
        self._group = group
        self._printed: dict[TopicPartition, int] = {}
        self._committed_at = time.monotonic()
        self._join_deadline = time.monotonic() + JOIN_SECONDS

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Raises CommandFailed, also for failures inside."""
        with connected(self._bootstrap) as admin:
            partitions_of(admin, [self._topic])  # fails for a missing topic; subscribing might create it
        settings = {
            "group_id": self._group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest" if self._position.kind == "beginning" else "latest",
        }
        with consuming(self._bootstrap, **settings, **isolation(self._committed_only)) as self._consumer:
            self._consumer.subscribe([self._topic])
            try:
                yield
            finally:
                self._commit()

    def expected(self, count: int | None) -> int | None:
        """Unknown until the group has assigned its partitions."""
        return count

    def printed(self, records: Sequence[Any]) -> None:
        for record in records:
            self._printed[TopicPartition(record.topic, record.partition)] = record.offset + 1
        if time.monotonic() - self._committed_at >= COMMIT_SECONDS:
            self._commit()

    def _commit(self) -> None:
        mine = self._consumer.assignment()
        offsets = {at: OffsetAndMetadata(offset, "", -1) for at, offset in self._printed.items() if at in mine}
        self._printed.clear()
        self._committed_at = time.monotonic()
        if offsets:
            self._consumer.commit(offsets)

    def _is_at_end(self) -> bool:
        mine: set[TopicPartition] = self._consumer.assignment()
        if not mine:
            if time.monotonic() > self._join_deadline:
                raise CommandFailed(
                    f"group {self._group} assigned no partition to this member within {JOIN_SECONDS:.0f} s; it may "
                    f"have more members than partitions, see `minibroker groups describe {self._group}`"
                )
            return False
        if mine != self._ends.keys():
            self._ends = self._ends_of(mine)
        return super()._is_at_end()

    def _ends_of(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of these partitions; of newly assigned ones, where they end now."""
        new: Mapping[TopicPartition, int] = self._consumer.end_offsets(list(partitions - self._ends.keys()))
        return {partition: self._ends.get(partition, new.get(partition, 0)) for partition in partitions}


def isolation(committed_only: bool) -> dict[str, Any]:
    return {"isolation_level": "read_committed"} if committed_only else {}
