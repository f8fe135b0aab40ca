"""Reads batches of a topic from the leaders of its partitions, as they are: with all that a consumer does not show.

kafka-python connects and sends; the batches are decoded here, of every format. A fetch names 200 partitions at most
and never waits unless it is asked to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.cli.failures import CommandFailed
from minibroker.console.figures import PARTITIONS_A_REQUEST
from minibroker.console.metadata import TopicRow
from minibroker.protocol.batches import BatchView, iter_all_records, scan_batches
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.message_set import read_message_header
from minibroker.protocol.record_batch import MAGIC_AT, read_header

if TYPE_CHECKING:
    from minibroker.cli.cluster import TopicPartition
    from minibroker.protocol.record import Record

CONSUMER = -1
NEWEST_FETCH = 12  # names topics by their names
ANSWER_BYTES = 4 << 20
PARTITION_BYTES = 512 << 10
DECOMPRESSED_MAX_BYTES = 64 << 20
HEADER_BYTES = 61
HEADER_BYTES_MIN = 26  # of a message before 0.11 with a time
OFFSET_OUT_OF_RANGE = 1


class Found(NamedTuple):
    """A record, and the batch that it is in."""

    partition: int
    record: Record
    batch: BatchView


class Fetched(NamedTuple):
    """What one answer has of a partition: `next` is where reading goes on; -1 before the start, which `start` names."""

    partition: int
    next: int
    end: int
    start: int
    records: list[Found]
    failure: str | None
    data: bytes = b""


def fetch(
    client: Any,
    topic: TopicRow,
    positions: Mapping[int, int],
    *,
    committed: bool,
    max_wait_ms: int = 0,
    partition_bytes: int = PARTITION_BYTES,
) -> list[Fetched]:
    """What the leaders answer for these partitions, one request each. Raises CommandFailed if one does not answer."""
    leaders: dict[int, list[int]] = {}
    for each in topic.partitions:
        if each.partition in positions and each.leader is not None:
            leaders.setdefault(each.leader, []).append(each.partition)
    fetched = []
    for leader, partitions in leaders.items():
        for start in range(0, len(partitions), PARTITIONS_A_REQUEST):
            chosen = {at: positions[at] for at in partitions[start : start + PARTITIONS_A_REQUEST]}
            answer = asked(client, leader, topic.name, chosen, committed, max_wait_ms, partition_bytes)
            fetched += [taken(row, chosen[row.partition_index], committed) for row in rows_of(answer)]
    return fetched


def asked(
    client: Any,
    leader: int,
    topic: str,
    positions: Mapping[int, int],
    committed: bool,
    max_wait_ms: int,
    partition_bytes: int,
) -> Any:
    from minibroker.cli.cluster import FetchRequest, answer_to

    partition = FetchRequest.FetchTopic.FetchPartition
    request = FetchRequest(
        replica_id=CONSUMER,
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


def first_timestamps(
    client: Any, topics: Mapping[str, TopicRow], positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The time of the first record of the batch at each offset, in ms since 1970: from its header.

    What a leader refuses is left out.
    """
    from minibroker.cli.cluster import TopicPartition

    found: dict[TopicPartition, int] = {}
    for at, position in positions.items():
        topic = topics.get(at.topic)
        leader = (
            next((each.leader for each in topic.partitions if each.partition == at.partition), None) if topic else None
        )
        if leader is None:
            continue
        # One request each: of several partitions in one, only the first is sure to bring a batch (KIP-74).
        for row in rows_of(asked(client, leader, at.topic, {at.partition: position}, False, 0, HEADER_BYTES)):
            if not row.error_code and row.records and len(row.records) >= HEADER_BYTES_MIN:
                found[TopicPartition(at.topic, row.partition_index)] = first_timestamp(bytes(row.records))
    return found


def first_timestamp(data: bytes) -> int:
    """Of the batch or message that the data begins with; -1 if its format has none."""
    if data[MAGIC_AT] >= 2:
        return int(read_header(data, 0).base_timestamp)
    return int(read_message_header(data, 0).timestamp)


def rows_of(answer: Any) -> Iterator[Any]:
    if getattr(answer, "error_code", 0):
        raise CommandFailed(refused(answer.error_code))
    for topic in answer.responses:
        yield from topic.partitions


def taken(row: Any, position: int, committed: bool) -> Fetched:
    """The records of a partition's row from the position on."""
    start = row.log_start_offset if row.log_start_offset is not None else -1
    end = row.last_stable_offset if committed and row.last_stable_offset is not None else row.high_watermark
    if row.error_code:
        return Fetched(row.partition_index, position, end, start, [], refused(row.error_code))
    records: list[Found] = []
    reached = position
    try:
        for found, reached in decoded(row, committed):  # noqa: B007  # kept after the loop
            records += [each for each in found if each.record.offset >= position]
    except KafkaError as error:
        failure = f"the batch after offset {reached:,} cannot be read ({error}); go on behind it from a later offset"
        return Fetched(row.partition_index, reached, end, start, records, failure)
    return Fetched(row.partition_index, max(reached, position), end, start, records, None, bytes(row.records or b""))


def decoded(row: Any, committed: bool) -> Iterator[tuple[list[Found], int]]:
    """The records of each batch, without markers and aborted ones, and the offset behind it. Raises KafkaError."""
    data = bytes(row.records or b"")
    aborted = sorted(row.aborted_transactions or (), key=lambda each: int(each.first_offset), reverse=True)
    aborting: set[int] = set()
    for view in scan_batches(data, 0, len(data)):
        while committed and aborted and aborted[-1].first_offset <= view.last_offset:
            aborting.add(aborted.pop().producer_id)
        records: Sequence[Record] = ()
        if view.is_control or not (view.is_transactional and view.producer_id in aborting):
            records = list(iter_all_records(data, view, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES))
        if view.is_control:
            if any(read_control_type(record.key) is ControlType.ABORT for record in records):
                aborting.discard(view.producer_id)
            records = ()
        yield [Found(row.partition_index, record, view) for record in records], view.next_offset


def refused(code: int) -> str:
    from minibroker.cli.cluster import error_name

    if code == OFFSET_OUT_OF_RANGE:
        return "the offset is not in the partition any more; read from another one"
    return f"its leader refused to read it: {error_name(code)}; see the broker's log"
