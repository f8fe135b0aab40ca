"""The reads of a partition, from its leader or a follower: where they end, and which epochs must agree."""

from __future__ import annotations

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import READ_COMMITTED
from minibroker.protocol.record_batch import NO_LEADER_EPOCH
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, EpochEndOffset
from minibroker.storage.log.log import Log


def end_of_reading(log: Log, *, is_committed_only: bool, isolation_level: int) -> LogOffsetMetadata:
    """Return the offset at which the reading of a fetch ends (fetch-path row 29).

    read_committed ends at the first open transaction, or the high watermark.
    """
    if isolation_level != READ_COMMITTED:
        return log.high_watermark_metadata if is_committed_only else log.log_end_offset_metadata
    offset = log.last_stable_offset
    if offset >= log.high_watermark:
        return log.high_watermark_metadata
    return log.convert_to_offset_metadata(offset)


def check_leader_epoch(log: Log, leader_epoch: int, current_leader_epoch: int) -> None:
    """Raises KafkaError: FENCED_LEADER_EPOCH for an epoch older than the leader's that this broker knows,
    UNKNOWN_LEADER_EPOCH for a newer one. -1 is not checked (as kafka 2.1 Partition.checkCurrentLeaderEpoch)."""
    if current_leader_epoch in (NO_LEADER_EPOCH, leader_epoch):
        return
    raise KafkaError(
        ErrorCode.FENCED_LEADER_EPOCH if current_leader_epoch < leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"the leader epoch of {log.topic_partition} is {leader_epoch}, not {current_leader_epoch}",
    )


def diverging_epoch(
    log: Log, fetch_offset: int, last_fetched_epoch: int, *, led_in: int = UNDEFINED_EPOCH
) -> EpochEndOffset | None:
    """Return the epoch and offset where the reader's log diverges, if that is before the fetch offset; else None.

    `led_in` is the epoch of a leader, which it knows without a record. Raises KafkaError(OFFSET_OUT_OF_RANGE) for an
    unknown epoch, or an offset below the log start offset. As kafka 2.7 Partition.readRecords.
    """
    if last_fetched_epoch < 0:
        return None
    end = log.leader_epochs.end_offset_for(last_fetched_epoch, log.log_end_offset, led_in=led_in)
    if end.end_offset == UNDEFINED_EPOCH_OFFSET:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_fetched_epoch} has no known end")
    if fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {fetch_offset} is below the log start")
    is_same = end.epoch == last_fetched_epoch and end.end_offset >= fetch_offset
    return None if is_same else end
