"""Fetches batches from leaders as they are, and decodes them: control batches and aborted records are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minibroker.client.client import Question
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.batches import BatchView, batch_is_valid, iter_all_records, scan_batches
from minibroker.protocol.compression import corrupt
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID
from minibroker.protocol.record import Record

ANSWER_BYTES = 4 << 20
PARTITION_BYTES = 512 << 10
DECOMPRESSED_MAX_BYTES = 64 << 20


class Decoded(NamedTuple):
    """A batch with the records that a consumer gets; `error` says why none can be read."""

    view: BatchView
    records: list[Record]
    error: KafkaError | None


def fetching(
    broker: int,
    topic: str,
    positions: Mapping[int, int],
    *,
    committed_only: bool,
    max_wait_ms: int = 0,
    partition_bytes: int = PARTITION_BYTES,
    max_bytes: int = ANSWER_BYTES,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> Question:
    """Fetch from these offsets of partitions on, by their numbers, at least one batch if there is any."""
    row = ASKED_TABLE[ApiKey.FETCH].request.row
    partitions = [
        row("topics.partitions")(partition=number, fetch_offset=offset, max_bytes=partition_bytes)
        for number, offset in positions.items()
    ]
    body = {
        "replica_id": replica_id,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": int(committed_only),
        "topics": [row("topics")(topic=topic, partitions=partitions)],
    }
    return Question(ApiKey.FETCH, body, broker)


def batches_in(row: Any, data: bytes, committed_only: bool) -> Iterator[tuple[BatchView, bool]]:
    """Each batch of a partition's row, and whether a consumer gets its records. Raises KafkaError where none begins."""
    aborted = sorted(row.aborted_transactions or (), key=lambda each: int(each.first_offset), reverse=True)
    aborting: set[int] = set()  # producers whose records are aborted at this point
    for view in scan_batches(data, 0, len(data)):
        while committed_only and aborted and aborted[-1].first_offset <= view.last_offset:
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


def decoded(row: Any, data: bytes, committed_only: bool) -> Iterator[Decoded]:
    """Each batch of a partition's row, decoded. Raises KafkaError where none begins."""
    for view, is_shown in batches_in(row, data, committed_only):
        records: list[Record] = []
        error = None
        if is_shown:
            try:
                if not batch_is_valid(data, view):
                    raise corrupt("the CRC of the batch is wrong")
                records = list(iter_all_records(data, view, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES))
            except KafkaError as unreadable:
                error = unreadable
        yield Decoded(view, records, error)
