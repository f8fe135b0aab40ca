"""The offset of a position: of a time, or a number of records from the beginning or the end of a partition.

Offsets are not enough: markers of transactions and compaction leave offsets without a record, and read_committed leaves
out aborted ones. Batches are counted by their headers; only the one that the offset is in is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from minibroker.admin.partitions import OffsetRange, clamped, named
from minibroker.admin.positions import Position
from minibroker.any_cluster.batch_fetching import refused, rows_of
from minibroker.any_cluster.cluster import lacks_answer
from minibroker.any_cluster.partition_offsets import asked, leaders_of
from minibroker.client.client import Client
from minibroker.client.errors import NoAnswer
from minibroker.client.offsets import Offsets
from minibroker.client.reading import ANSWER_BYTES, batches_in, fetching, records_in
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed
from minibroker.protocol.errors import KafkaError

WINDOW_MIN = 100


def offsets_at(
    client: Client, position: Position, ranges: dict[TopicPartition, OffsetRange], *, committed_only: bool = False
) -> Offsets:
    """The offset of that position in each partition, never outside it.

    A distance is one of records, with `committed_only` of those that read_committed returns.
    """
    if position.kind == "time":
        found = asked(client, ranges, position.value)
        wanted = {partition: found[partition] for partition in ranges if partition in found}
    else:
        wanted = {}
        for at, inside in ranges.items():
            try:
                wanted[at] = offset_of(client, position, at, inside, committed_only=committed_only)
            except NoAnswer as error:
                lacks_answer(error, named([at]))
    return {partition: clamped(offset, ranges[partition]) for partition, offset in wanted.items()}


def offset_of(
    client: Client, position: Position, at: TopicPartition, inside: OffsetRange, *, committed_only: bool
) -> int:
    """The offset of a position that is not a time."""
    if position.kind == "offset":
        return position.value
    if position.value == 0 or inside.earliest == inside.latest:
        return inside.earliest if position.kind == "beginning" else inside.latest
    counting = Counting(client, at.topic, at.partition, inside, committed_only=committed_only)
    if position.kind == "beginning":
        return counting.behind_first(position.value)
    return counting.before_last(-position.value)


class Counted(NamedTuple):
    """A batch, and how many of its records a consumer gets."""

    base_offset: int
    next_offset: int
    records: int


class Counting:
    """Counts the records of one partition. Raises CommandFailed, and errors of the client."""

    def __init__(
        self, client: Client, topic: str, partition: int, inside: OffsetRange, *, committed_only: bool
    ) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._inside = inside
        self._committed_only = committed_only
        self._leader = leaders_of(client, topic)[partition]

    def behind_first(self, count: int) -> int:
        """The offset behind the first `count` records, at most the end."""
        for batch in self._batches(self._inside.earliest):
            if batch.base_offset >= self._inside.latest:
                break
            if batch.base_offset < self._inside.earliest or batch.records > count:
                offsets = self._offsets_in(batch)
                if count < len(offsets):
                    return min(offsets[count], self._inside.latest)
                count -= len(offsets)
            else:
                count -= batch.records
            if count == 0:
                return min(batch.next_offset, self._inside.latest)
        return self._inside.latest

    def before_last(self, count: int) -> int:
        """The offset of the first of the last `count` records; the beginning, if there are no more."""
        earliest, upper = self._inside
        window = max(count, WINDOW_MIN)
        while upper > earliest and count < upper - earliest:
            lower = max(earliest, upper - window)
            batches = []
            for batch in self._batches(lower):
                if batch.base_offset >= upper:
                    break
                batches.append(batch)
            for batch in reversed(batches):
                if batch.records >= count:
                    offsets = self._offsets_in(batch)
                    if len(offsets) >= count:
                        return offsets[-count]
                count -= batch.records
            upper = min([lower, *(batch.base_offset for batch in batches)])
            window *= 2
        return earliest

    def _batches(self, position: int) -> Iterator[Counted]:
        """The batches from that offset to the end."""
        while position < self._inside.latest:
            row, data = self._fetched(position)
            reached = position
            with suppress(KafkaError):  # where a batch should begin; none behind it can be found from here
                for view, is_shown in batches_in(row, data, self._committed_only):
                    reached = max(reached, view.next_offset)
                    count = 0
                    if is_shown:
                        count = view.records_count if view.magic >= 2 else len(records_in(data, view))
                    yield Counted(view.base_offset, view.next_offset, count)
            if reached == position:
                return
            position = reached

    def _offsets_in(self, batch: Counted) -> list[int]:
        """Return the offsets of the batch's records that are in the partition; none of a batch that cannot be read."""
        row, data = self._fetched(max(batch.base_offset, self._inside.earliest))
        view = next(view for view, _ in batches_in(row, data, False))
        return [each.offset for each in records_in(data, view) if each.offset >= self._inside.earliest]

    def _fetched(self, position: int) -> tuple[Any, bytes]:
        if self._leader < 0:
            raise CommandFailed(f"partition {self._topic}-{self._partition} has no leader; check its brokers")
        asked = fetching(
            self._leader,
            self._topic,
            {self._partition: position},
            committed_only=self._committed_only,
            partition_bytes=ANSWER_BYTES,
        )
        row = next(rows_of(self._client.answer(asked)))
        if row.error_code:
            raise CommandFailed(f"cannot read partition {self._topic}-{self._partition}: {refused(row.error_code)}")
        return row, bytes(row.records or b"")
