"""Fetches batches of partitions as they are, and decodes them here: with all that a client library does not show.

kafka-python connects and sends. A fetch never waits unless it is asked to. A batch that cannot be read does not hide
those behind it: it is returned as such, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minibroker.errors import CommandFailed
from minibroker.protocol.batches import BatchView, batch_is_valid, iter_all_records, scan_batches
from minibroker.protocol.compression import corrupt
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID
from minibroker.protocol.record import Record

NEWEST_FETCH = 12  # names topics by their names
ANSWER_BYTES = 4 << 20
PARTITION_BYTES = 512 << 10
DECOMPRESSED_MAX_BYTES = 64 << 20
OFFSET_OUT_OF_RANGE = 1


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


class Decoded(NamedTuple):
    """A batch with its records, without markers and aborted ones; `error` is why it has none that can be read."""

    view: BatchView
    records: list[Found]
    error: KafkaError | None


def asked(
    client: Any,
    leader: int,
    topic: str,
    positions: Mapping[int, int],
    committed: bool,
    max_wait_ms: int,
    partition_bytes: int,
) -> Any:
    """The leader's answer to a fetch of those partitions."""
    from minibroker.any_cluster.cluster import FetchRequest, answer_to  # slow to import; the console starts without it

    partition = FetchRequest.FetchTopic.FetchPartition
    request = FetchRequest(
        replica_id=CONSUMER_REPLICA_ID,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=ANSWER_BYTES,
        isolation_level=1 if committed else 0,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic=topic,
                partitions=[
                    partition(
                        partition=at,
                        current_leader_epoch=-1,
                        fetch_offset=offset,
                        last_fetched_epoch=-1,
                        partition_max_bytes=partition_bytes,
                    )
                    for at, offset in positions.items()
                ],
            )
        ],
        forgotten_topics_data=[],
        rack_id="",
        max_version=NEWEST_FETCH,
    )
    return answer_to(client, request, broker=leader)


def read_partition(client: Any, topic: str, partition: int, offset: int, *, committed: bool) -> Fetched:
    """Read from the leader, from that offset on: at least one batch if there is any. Raises CommandFailed."""
    from minibroker.any_cluster.partition_offsets import leaders_of

    leader = leaders_of(client, topic)[partition]
    if leader < 0:
        return Fetched(partition, offset, offset, -1, [], "it has no leader")
    answer = asked(client, leader, topic, {partition: offset}, committed, 0, PARTITION_BYTES)
    return taken(next(rows_of(answer)), offset, committed)


def rows_of(answer: Any) -> Iterator[Any]:
    if getattr(answer, "error_code", 0):
        raise CommandFailed(refused(answer.error_code))
    for topic in answer.responses:
        yield from topic.partitions


def taken(row: Any, position: int, committed: bool) -> Fetched:
    """The records of a partition's row from the position on."""
    start = row.log_start_offset if row.log_start_offset is not None else -1
    end = row.last_stable_offset if committed and row.last_stable_offset is not None else row.high_watermark
    at = row.partition_index
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
            records += [each for each in batch.records if each.record.offset >= position]
            reached = following
    except KafkaError as error:  # where a batch should begin: the next one cannot be found from here
        unreadable.append(Unreadable(at, reached, row.high_watermark, f"{error}; read on from a later offset"))
        reached = row.high_watermark
    return Fetched(at, max(reached, position), end, start, records, None, data, tuple(unreadable))


def batches_in(row: Any, data: bytes, committed: bool) -> Iterator[tuple[BatchView, bool]]:
    """Each batch of a partition's row, and whether a consumer gets its records. Raises KafkaError where none begins."""
    aborted = sorted(row.aborted_transactions or (), key=lambda each: int(each.first_offset), reverse=True)
    aborting: set[int] = set()
    for view in scan_batches(data, 0, len(data)):
        while committed and aborted and aborted[-1].first_offset <= view.last_offset:
            aborting.add(aborted.pop().producer_id)
        if view.is_control:
            if any(read_control_type(each.key) is ControlType.ABORT for each in records_in(data, view)):
                aborting.discard(view.producer_id)
            yield view, False
        else:
            yield view, not (view.is_transactional and view.producer_id in aborting)


def records_in(data: bytes, view: BatchView) -> list[Record]:
    """None of a batch that cannot be read."""
    try:
        return list(iter_all_records(data, view, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES))
    except KafkaError:
        return []


def decoded(row: Any, data: bytes, committed: bool) -> Iterator[Decoded]:
    """Each batch of a partition's row, decoded. Raises KafkaError where none begins."""
    for view, is_shown in batches_in(row, data, committed):
        records: list[Record] = []
        error = None
        if is_shown:
            try:
                if not batch_is_valid(data, view):
                    raise corrupt("the CRC of the batch is wrong")
                records = list(iter_all_records(data, view, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES))
            except KafkaError as unreadable:
                error = unreadable
        yield Decoded(view, [Found(row.partition_index, record, view) for record in records], error)


def refused(code: int) -> str:
    from minibroker.any_cluster.cluster import error_name

    if code == OFFSET_OUT_OF_RANGE:
        return "the offset is not in the partition any more; read from another one"
    return f"its leader refused to read it: {error_name(code)}; see the broker's log"
