"""The parameters of a Fetch, its rows, and the read of one partition.

Consumers, and the debugging replica, read to the high watermark or the last stable offset; followers, and the future
replica, to the log end offset (fetch-path row 57).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from minibroker.broker.replica.fetched_partition import NO_PREFERRED_REPLICA, NO_RECORDS, FetchedPartition
from minibroker.broker.replica.follower import Follower
from minibroker.broker.replica.leading import ZSTD, Leading
from minibroker.broker.replica.reading import check_leader_epoch, diverging_epoch
from minibroker.broker.replica.replica_selector import RackAwareSelector
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import READ_COMMITTED
from minibroker.protocol.primitives import TopicPartition, new
from minibroker.protocol.record import NO_OFFSET
from minibroker.protocol.record_batch import NO_LEADER_EPOCH
from minibroker.storage.index.transaction_index import AbortedTxn

FUTURE_REPLICA_ID = -3


class FetchParams(NamedTuple):
    """The parameters of a Fetch request that hold for all its partitions."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    is_hard_limit: bool  # v0-v2: send part of a batch instead of an oversize first batch
    isolation_level: int
    knows_zstd: bool = True  # from v10
    reads_followers: bool = False  # consumers from v11 on
    selector: RackAwareSelector | None = None  # sends consumers to the replica in their rack
    holds_back: Callable[[Leading], bool] | None = None  # records of a partition from a follower; None for none
    shows_last_stable_offset: bool = False  # for read_uncommitted too, and no aborted ones that have no records

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def is_committed_only(self) -> bool:
        return self.replica_id < 0 and self.replica_id != FUTURE_REPLICA_ID


class FetchRow(NamedTuple):
    """One partition of a Fetch request; `log_start_offset` is that of a follower.

    The epochs are those that the client knows, of the leader and of its own last record; -1 is not checked.
    """

    topic_partition: TopicPartition
    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_LEADER_EPOCH
    last_fetched_epoch: int = NO_LEADER_EPOCH


def read_partition(
    partition: Leading | Follower, params: FetchParams, row: FetchRow, bytes_left: int, min_one_message: bool
) -> FetchedPartition:
    """Read from the fetch offset on, at most `bytes_left` and the row's own limit.

    A follower's high watermark is behind the leader's. With `min_one_message` the first batch comes whole. As kafka
    2.0.1 ReplicaManager.readFromLocalLog; as kafka 2.1 for a topic compressed with zstd: UNSUPPORTED_COMPRESSION_TYPE
    for a client that does not know it.
    """
    topic_partition, fetch_offset, _, max_bytes, current_leader_epoch, last_fetched_epoch = row
    log = partition.log
    if log.config.compression_type == ZSTD and not params.knows_zstd:
        return failed_fetch(topic_partition, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    high_watermark = log.high_watermark
    is_committed_read = params.isolation_level == READ_COMMITTED
    last_stable_offset = log.last_stable_offset if is_committed_read or params.shows_last_stable_offset else NO_OFFSET
    max_offset = None
    if params.is_committed_only:
        max_offset = last_stable_offset if is_committed_read else high_watermark
    limit = min(max_bytes, bytes_left)
    try:
        if current_leader_epoch != NO_LEADER_EPOCH:
            check_leader_epoch(log, partition.leader_epoch, current_leader_epoch)
        if last_fetched_epoch >= 0:
            led_in = partition.leader_epoch if isinstance(partition, Leading) else NO_LEADER_EPOCH
            diverging = diverging_epoch(log, fetch_offset, last_fetched_epoch, led_in=led_in)
            if diverging is not None:
                return FetchedPartition(
                    topic_partition,
                    ErrorCode.NONE,
                    high_watermark,
                    last_stable_offset,
                    log.log_start_offset,
                    None,
                    NO_RECORDS,
                    None,
                    diverging,
                )
        data = log.read(
            fetch_offset,
            max(0, limit),
            max_offset=max_offset,
            min_one_message=min_one_message,
            include_aborted_txns=is_committed_read,
        )
    except KafkaError as error:
        return failed_fetch(topic_partition, error.code)
    if limit < 0 and fetch_offset != log.log_end_offset:
        return failed_fetch(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
    records, aborted_transactions = data.records, data.aborted_transactions
    if params.holds_back is not None and isinstance(partition, Leading) and params.holds_back(partition):
        records = NO_RECORDS
    if data.first_entry_incomplete and not params.is_hard_limit:
        records, aborted_transactions = NO_RECORDS, None
    if is_committed_read and params.shows_last_stable_offset:
        if fetch_offset >= last_stable_offset:
            aborted_transactions = []
        elif aborted_transactions:
            aborted_transactions = [each for each in aborted_transactions if has_records(each)]
    return new(
        FetchedPartition,
        (
            topic_partition,
            ErrorCode.NONE,
            high_watermark,
            last_stable_offset,
            log.log_start_offset,
            aborted_transactions,
            records,
            data.offset_metadata,
            None,
            NO_PREFERRED_REPLICA,
        ),
    )


def has_records(aborted: AbortedTxn) -> bool:
    """Whether a transaction has more than its marker."""
    return aborted.first_offset < aborted.last_offset


def read_elsewhere(partition: Leading, row: FetchRow, replica_id: int) -> FetchedPartition:
    """Send a consumer to another replica, without records."""
    log = partition.log
    try:
        check_leader_epoch(log, partition.leader_epoch, row.current_leader_epoch)
    except KafkaError as error:
        return failed_fetch(row.topic_partition, error.code)
    return FetchedPartition(
        row.topic_partition,
        ErrorCode.NONE,
        log.high_watermark,
        log.last_stable_offset,
        log.log_start_offset,
        None,
        NO_RECORDS,
        None,
        None,
        replica_id,
    )


def failed_fetch(topic_partition: TopicPartition, error: ErrorCode) -> FetchedPartition:
    """The row of an error: all offsets -1, no aborted list, no records (fetch-path row 12)."""
    return FetchedPartition(topic_partition, error, NO_OFFSET, NO_OFFSET, NO_OFFSET, None, NO_RECORDS, None)
