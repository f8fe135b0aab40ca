"""Fetches batches of partitions as they are, and decodes them here: with all that a client library does not show.

A fetch never waits unless it is asked to. A batch that cannot be read does not hide
those behind it: it is returned as such, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from minibroker.any_cluster.partition_offsets import leaders_of
from minibroker.client.client import Client
from minibroker.client.errors import error_name
from minibroker.client.reading import decoded, fetching
from minibroker.errors import CommandFailed
from minibroker.protocol.batches import BatchView
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import Record


class Found(NamedTuple):
    """A record, and the batch that it is in."""

    partition: int
    record: Record
    batch: BatchView


class Unreadable(NamedTuple):
    """The offsets from `first` on and before `next`, of a batch that cannot be read, and why."""

    partition: int
    first: int
    next: int
    reason: str

    def __str__(self) -> str:
        last = self.next - 1
        offsets = f"offset {self.first:,}" if last <= self.first else f"offsets {self.first:,} to {last:,}"
        return f"{offsets} of partition {self.partition} cannot be read: {self.reason}"


class Fetched(NamedTuple):
    """A partition in an answer: reading goes on at `next`; -1 before the start, which `start` names."""

    partition: int
    next: int
    end: int
    start: int
    records: list[Found]
    failure: str | None
    data: bytes = b""
    unreadable: tuple[Unreadable, ...] = ()


def read_partition(client: Client, topic: str, partition: int, offset: int, *, committed: bool) -> Fetched:
    """Read from the leader, from that offset on: at least one batch if there is any. Raises CommandFailed."""
    leader = leaders_of(client, topic)[partition]
    if leader < 0:
        return Fetched(partition, offset, offset, -1, [], "it has no leader")
    answer = client.answer(fetching(leader, topic, {partition: offset}, committed_only=committed))
    return taken(next(rows_of(answer)), offset, committed)


def rows_of(answer: Any) -> Iterator[Any]:
    if answer.error_code:
        raise CommandFailed(refused(answer.error_code))
    for topic in answer.topics:
        yield from topic.partitions


def taken(row: Any, position: int, committed: bool) -> Fetched:
    """The records of a partition's row from the position on."""
    start = row.log_start_offset
    end = row.last_stable_offset if committed and row.last_stable_offset >= 0 else row.high_watermark
    at = row.partition
    if row.error_code:
        return Fetched(at, position, end, start, [], refused(row.error_code))
    data = bytes(row.records or b"")
    records: list[Found] = []
    unreadable: list[Unreadable] = []
    reached = position
    try:
        for batch in decoded(row, data, committed):
            if unreadable and unreadable[-1].next > batch.view.base_offset:  # its header was wrong too
                unreadable[-1] = unreadable[-1]._replace(next=batch.view.base_offset)
            following = batch.view.next_offset
            if batch.error is not None:
                first = max(position, batch.view.base_offset)
                following = following if first < following <= row.high_watermark else row.high_watermark
                unreadable.append(Unreadable(at, first, following, str(batch.error)))
            records += [Found(at, each, batch.view) for each in batch.records if each.offset >= position]
            reached = following
    except KafkaError as error:  # where a batch should begin: the next one cannot be found from here
        unreadable.append(Unreadable(at, reached, row.high_watermark, f"{error}; read on from a later offset"))
        reached = row.high_watermark
    return Fetched(at, max(reached, position), end, start, records, None, data, tuple(unreadable))


def refused(code: int) -> str:
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return "the offset is not in the partition any more; read from another one"
    return f"its leader refused to read it: {error_name(code)}; see the broker's log"
