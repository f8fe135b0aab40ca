"""The transactional ids in `__transaction_state`: appends each change, and loads the ids of a partition.

As kafka 2.0.1 TransactionStateManager: every append waits for all in-sync replicas, and its errors are mapped to those
of a coordinator.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Sequence

from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import Contents, CoordinatorLog
from minibroker.broker.transaction.transaction import TransactionMetadata, TransactionState
from minibroker.protocol.batches import iter_all_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.transaction_records import (
    TransactionRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 1 << 26  # once decompressed

# The coordinator's answer after an append's error (as kafka 2.0.1 appendTransactionToLog).
COORDINATOR_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class TransactionLog:
    """The only writer of `__transaction_state`; loading reads `load_bytes` at a time."""

    def __init__(self, log: CoordinatorLog, *, load_bytes: int) -> None:
        self.log = log
        self._load_bytes = load_bytes

    def partition_for(self, transactional_id: str) -> int:
        """The partition of an id. Raises KafkaError(NOT_COORDINATOR) until the topic exists."""
        partition = self.log.partition_for(transactional_id)
        if partition is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "the topic __transaction_state does not exist yet")
        return partition

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The leader epoch of the id's partition: greater with every start, so that it fences older markers."""
        return self.log.leader_epoch(self.partition_for(transactional_id))

    def append(self, transactional_id: str, metadata: TransactionMetadata) -> ErrorCode | Pending[ErrorCode]:
        """Append the state of an id."""
        return self._append(transactional_id, [(encode_key(transactional_id), encode_value(record_of(metadata)), ())])

    def append_tombstones(self, transactional_ids: Sequence[str]) -> ErrorCode | Pending[ErrorCode]:
        """Append the tombstones of these ids, which are all of one partition."""
        return self._append(transactional_ids[0], [(encode_key(each), None, ()) for each in transactional_ids])

    def _append(self, transactional_id: str, contents: list[Contents]) -> ErrorCode | Pending[ErrorCode]:
        return then(
            self.log.append(transactional_id, [contents]).error, lambda error: COORDINATOR_ERRORS.get(error, error)
        )

    def load(self, partition: int) -> Generator[None, None, dict[str, TransactionMetadata]]:
        """Return the newest state of every id of a partition, in steps. Log and skip what is unreadable."""
        newest: dict[bytes, bytes | None] = {}
        states: dict[str, TransactionMetadata] = {}
        try:
            yield from self._read(partition, newest)
        except KafkaError as error:
            logger.error("cannot read %s-%d, its transactional ids are lost: %s", self.log.topic, partition, error)
            return states
        for key, value in newest.items():
            try:
                transactional_id = decode_key(key)
                if value is not None:
                    states[transactional_id] = metadata_of(decode_value(value))
            except KafkaError as error:
                logger.error("%s-%d: skipped an unreadable record: %s", self.log.topic, partition, error)
        return states

    def _read(self, partition: int, newest: dict[bytes, bytes | None]) -> Iterator[None]:
        """Read the last value of every key, a buffer in each step. Raises KafkaError."""
        last: object = None
        for data, batch in self.log.read_batches(partition, self._load_bytes):
            if last is not None and data is not last:
                yield
            last = data
            if batch.is_control:
                continue
            for record in iter_all_records(data, batch, max_decompressed_bytes=MAX_BATCH_BYTES):
                if record.key is not None:
                    newest[record.key] = record.value


def record_of(metadata: TransactionMetadata) -> TransactionRecord:
    return TransactionRecord(
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.timeout_ms,
        metadata.state,
        frozenset(metadata.partitions),
        metadata.last_update_ms,
        metadata.start_ms,
        metadata.client_version,
        metadata.last_producer_id,
        metadata.next_producer_id,
    )


def metadata_of(record: TransactionRecord) -> TransactionMetadata:
    """Raises KafkaError(CORRUPT_MESSAGE) for a state that is never stored."""
    try:
        state = TransactionState(record.status)
    except ValueError:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown transaction state {record.status}") from None
    if state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"stored transaction in state {state.title}")
    return TransactionMetadata(
        record.producer_id,
        record.producer_epoch,
        record.timeout_ms,
        state,
        record.partitions,
        record.last_update_ms,
        record.start_ms,
        client_version=record.client_version,
        last_producer_id=record.previous_producer_id,
        next_producer_id=record.next_producer_id,
    )
