"""Reading a segment from its first byte: what a crash may have left is found out, and the indexes come anew.

A batch counts if it is all there and its CRC is right; the first that does not ends the segment. The valid
ones are indexed as they would have been when they were appended, and retold to the producer state and the
leader epochs, which were not written with each batch.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from minibroker.protocol.batches import BatchView, batch_is_valid, scan_batches
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.files.records_file import RecordsFile
from minibroker.storage.index.indexes import NO_TIMESTAMP, OffsetIndex, TimeIndex
from minibroker.storage.index.leader_epochs import LeaderEpochCache
from minibroker.storage.index.transaction_index import TransactionIndex
from minibroker.storage.producers.producer_state import ProducerStateManager

_RELEASE_EVERY_BYTES = 16 * 1024 * 1024

logger = logging.getLogger(__name__)


class SegmentOffsetOverflowError(Exception):
    """An offset too far from the segment's base for its indexes."""


class RecoveredRecords(NamedTuple):
    valid_bytes: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int


class SegmentIndexes(NamedTuple):
    """What goes with a `.log`."""

    offset_index: OffsetIndex
    time_index: TimeIndex
    transaction_index: TransactionIndex


def rebuild(
    records: RecordsFile,
    indexes: SegmentIndexes,
    index_interval_bytes: int,
    producer_state: ProducerStateManager,
    leader_epochs: LeaderEpochCache | None,
) -> RecoveredRecords:
    """Fill the indexes from the records; return how far these are valid. Truncates nothing.

    Raises SegmentOffsetOverflowError, OSError.
    """
    offset_index, time_index, transaction_index = indexes
    offset_index.reset()
    time_index.reset()
    transaction_index.reset()
    position = last_indexed = last_released = 0
    next_offset = offset_index.base_offset
    max_timestamp_ms, offset_of_max_timestamp = NO_TIMESTAMP, offset_index.base_offset
    buffer, _ = records.scan_buffer(0, records.size_bytes)
    try:
        for view in scan_batches(buffer, 0, records.size_bytes):
            if not batch_is_valid(buffer, view):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the CRC is wrong at offset {view.base_offset}")
            if view.base_offset < next_offset:  # the CRC does not cover it
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"offset {view.base_offset} after {next_offset - 1}")
            if not offset_index.can_append_offset(view.last_offset):
                raise SegmentOffsetOverflowError(f"{records.path}: offset {view.last_offset}")
            if view.max_timestamp_ms > max_timestamp_ms:
                max_timestamp_ms, offset_of_max_timestamp = view.max_timestamp_ms, view.last_offset
            if position - last_indexed > index_interval_bytes:
                offset_index.append(view.last_offset, position)
                time_index.maybe_append(max_timestamp_ms, offset_of_max_timestamp)
                last_indexed = position
            if view.magic >= 2:
                if leader_epochs is not None and view.partition_leader_epoch > leader_epochs.latest_epoch:
                    leader_epochs.assign(view.partition_leader_epoch, view.base_offset)
                replay_batch(producer_state, view, buffer, transaction_index)
            position += view.size_bytes
            next_offset = view.last_offset + 1
            if position - last_released > _RELEASE_EVERY_BYTES:
                records.release_pages()
                last_released = position
    except KafkaError as error:
        if error.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        logger.warning("%s: no valid batch at byte %d: %s", records.path, position, error)
    return RecoveredRecords(position, max_timestamp_ms, offset_of_max_timestamp)


def replay_batch(
    producer_state: ProducerStateManager,
    view: BatchView,
    buffer: bytes | memoryview,
    transaction_index: TransactionIndex | None = None,
) -> None:
    """Tell the producer state of a batch that is in the log, and the transaction index what it aborts."""
    if view.producer_id >= 0:
        append_info = producer_state.prepare_update(view.producer_id, is_from_client=False)
        completed = append_info.append(view, buffer)
        producer_state.update(append_info)
        if completed is not None:
            last_stable_offset = producer_state.complete_txn(completed)
            if transaction_index is not None:
                transaction_index.note(completed, last_stable_offset)
    producer_state.update_map_end_offset(view.last_offset + 1)
