"""Checks an append against what its producer wrote before, and collects the changes it would make.

A client's batch is checked before it is appended. A sequence among the producer's last five batches is a duplicate,
and is answered with its offsets of the first time. Any other must follow the last one, 0 after 2^31 - 1, and begin at
0 with a new epoch. An older epoch is fenced. A producer without a known sequence is UNKNOWN_PRODUCER_ID, except to a
client of a release that has no use for that error: there it may begin anywhere (as kafka 2.5 ProducerAppendInfo).
A coordinator's batch is fenced by its producer's epoch, a marker by that of its coordinator too (as kafka 2.5). What a
leader or this log has accepted is not checked.
Nothing here changes a producer's entry: `ProducerStateManager.update` applies the changes once the records are written.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from minibroker.protocol.batches import BatchView, iter_all_records
from minibroker.protocol.control_records import ControlType, EndTxnMarker, read_end_txn_marker
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import INT32_MAX, NO_OFFSET, NO_SEQUENCE, NO_TIMESTAMP
from minibroker.protocol.record_batch import CONTROL_FLAG, NO_PRODUCER_EPOCH, TRANSACTIONAL_FLAG
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.transaction_index import CompletedTxn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_BATCHES_KEPT = 5


class BatchMetadata(NamedTuple):
    """The sequences and offsets of a batch that a producer wrote."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & INT32_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """A producer's last batches, all of one epoch, and the start of its open transaction.

    `last_timestamp_ms` is that of its last batch, or of the marker after it.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.batches: deque[BatchMetadata] = deque(maxlen=_BATCHES_KEPT)
        self.epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_PRODUCER_EPOCH
        self.current_txn_first_offset: int | None = None
        self.last_timestamp_ms = NO_TIMESTAMP

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def without_batches(self) -> ProducerStateEntry:
        """Return a new entry of the producer, with neither batches nor their epoch."""
        entry = ProducerStateEntry(self.producer_id)
        entry.note_marker_of(self)
        return entry

    def note_marker_of(self, other: ProducerStateEntry) -> None:
        """Note the marker that the producer's other entry has seen last."""
        self.coordinator_epoch = other.coordinator_epoch
        self.last_timestamp_ms = other.last_timestamp_ms

    def note_append(self, info: ProducerAppendInfo) -> None:
        """Apply the changes of an append: its records are written."""
        if self.epoch != info.epoch:
            self.batches.clear()
            self.epoch = info.epoch
        self.batches.extend(info.batches)
        self.coordinator_epoch = info.coordinator_epoch
        self.last_timestamp_ms = info.last_timestamp_ms
        self.current_txn_first_offset = info.current_txn_first_offset

    def note_time(self, time_ms: int) -> None:
        self.last_timestamp_ms = time_ms

    def forget_transaction(self) -> None:
        """Forget the open transaction: its records are deleted."""
        self.current_txn_first_offset = None

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the batch with these sequence numbers, if it is among the last five."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == first_sequence:
                return batch
        return None


class Transaction:
    """An open or completed transaction of one partition."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: LogOffsetMetadata) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset: int | None = None  # of the marker

    def complete(self, last_offset: int) -> None:
        """Note the offset of its marker."""
        self.last_offset = last_offset


class ProducerAppendInfo:
    """The changes that an append would make to one producer."""

    __slots__ = (
        "_checks_epoch",
        "_checks_sequence",
        "_earliest_sequence",
        "_least_epoch",
        "_may_begin_anywhere",
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "entry",
        "epoch",
        "last_timestamp_ms",
        "started",
    )

    def __init__(
        self,
        entry: ProducerStateEntry,
        *,
        least_epoch: int,
        checks_epoch: bool,
        checks_sequence: bool,
        may_begin_anywhere: bool = False,
        earliest_sequence: int = INT32_MAX,
    ) -> None:
        """Collect changes to the entry. `least_epoch` is newer than its own for a producer that is only remembered.

        `earliest_sequence` is the least that was seen since its transaction was verified, until it appends.
        """
        self.entry = entry
        self.epoch = entry.epoch
        self.current_txn_first_offset = entry.current_txn_first_offset
        self.coordinator_epoch = entry.coordinator_epoch
        self.last_timestamp_ms = entry.last_timestamp_ms
        self.batches: list[BatchMetadata] = []
        self.started: list[Transaction] = []
        self._least_epoch = least_epoch
        self._checks_epoch = checks_epoch
        self._checks_sequence = checks_sequence
        self._may_begin_anywhere = may_begin_anywhere
        self._earliest_sequence = earliest_sequence

    def append(self, view: BatchView, buffer: ReadableBuffer) -> CompletedTxn | None:
        """Take in a batch of the buffer; return the transaction that it ends, if it is a marker.

        Raises KafkaError as the two methods below.
        """
        if view.attributes & CONTROL_FLAG:
            for record in iter_all_records(buffer, view, max_decompressed_bytes=view.size_bytes):
                marker = read_end_txn_marker(record)
                return self.append_marker(
                    marker, epoch=view.producer_epoch, offset=view.base_offset, timestamp_ms=view.max_timestamp_ms
                )
            return None  # compaction removed the record: the marker ends nothing any more
        self.append_data(
            view.producer_epoch,
            view.base_sequence,
            view.last_sequence,
            view.max_timestamp_ms,
            view.base_offset,
            view.last_offset,
            bool(view.attributes & TRANSACTIONAL_FLAG),
        )
        return None

    def append_data(
        self,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        timestamp_ms: int,
        first_offset: int,
        last_offset: int,
        is_transactional: bool,
    ) -> None:
        """Take in a batch of records.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID or
        INVALID_TXN_STATE.
        """
        if self._checks_epoch and epoch < self._least_epoch:
            raise self._fenced(epoch)
        if self._checks_sequence:
            self._check_sequence(epoch, first_sequence)
        if is_transactional:
            if self.current_txn_first_offset is None:
                self.current_txn_first_offset = first_offset
                self.started.append(Transaction(self.entry.producer_id, LogOffsetMetadata(first_offset)))
        elif self.current_txn_first_offset is not None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {self.entry.producer_id}"
            )
        self._take_epoch(epoch)
        self.last_timestamp_ms = timestamp_ms
        self.batches.append(BatchMetadata(last_sequence, last_offset, last_offset - first_offset, timestamp_ms))

    def append_marker(self, marker: EndTxnMarker, *, epoch: int, offset: int, timestamp_ms: int) -> CompletedTxn:
        """Take in a marker; return the transaction that it ends. One without records ends where it begins.

        Raises KafkaError(INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED).
        """
        if self._checks_epoch:
            if epoch < self._least_epoch:
                raise self._fenced(epoch)
            if marker.coordinator_epoch < self.coordinator_epoch:
                raise KafkaError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"Invalid coordinator epoch: {marker.coordinator_epoch} (zombie), "
                    f"{self.coordinator_epoch} (current)",
                )
        self._take_epoch(epoch)
        self.last_timestamp_ms = max(self.last_timestamp_ms, timestamp_ms)
        first_offset = self.current_txn_first_offset
        if first_offset is None:
            first_offset = offset
            self.started.append(Transaction(self.entry.producer_id, LogOffsetMetadata(offset)))
        self.current_txn_first_offset = None
        self.coordinator_epoch = marker.coordinator_epoch
        is_aborted = marker.control_type is ControlType.ABORT
        return CompletedTxn(self.entry.producer_id, first_offset, offset, is_aborted)

    def _take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
        self._least_epoch = epoch

    def _fenced(self, epoch: int) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            "Producer's epoch is no longer valid. There is probably another producer with a newer epoch. "
            f"{epoch} (request epoch), {self._least_epoch} (server epoch)",
        )

    def _check_sequence(self, epoch: int, first_sequence: int) -> None:
        if first_sequence > self._earliest_sequence:  # an earlier batch was refused
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producerId {self.entry.producer_id}: {first_sequence} "
                f"(incoming seq. number), {self._earliest_sequence} (earliest seen sequence)",
            )
        if epoch != self.epoch:
            if first_sequence != 0 and not (self.epoch == NO_PRODUCER_EPOCH and self._may_begin_anywhere):
                raise self._wrong_first_sequence(epoch, first_sequence)
            return
        if self.batches:
            last_sequence = self.batches[-1].last_sequence
        elif self.entry.epoch == epoch:
            last_sequence = self.entry.last_sequence
        else:
            last_sequence = NO_SEQUENCE
        if first_sequence == last_sequence + 1 or (first_sequence == 0 and last_sequence == INT32_MAX):
            return
        if last_sequence == NO_SEQUENCE and not self._may_begin_anywhere:
            # Only a marker is left of this producer, which has an epoch but no sequence.
            raise KafkaError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"Local producer state matches expected epoch {epoch} for producerId={self.entry.producer_id}, "
                "but next expected sequence number is not known.",
            )
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producerId {self.entry.producer_id}: {first_sequence} "
            f"(incoming seq. number), {last_sequence} (current end sequence number)",
        )

    def _wrong_first_sequence(self, epoch: int, first_sequence: int) -> KafkaError:
        if self.epoch != NO_PRODUCER_EPOCH:
            return KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch: {epoch} (request epoch), {first_sequence} (seq. number)",
            )
        return KafkaError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"Found no record of producerId={self.entry.producer_id} on the broker. It is possible that the last "
            f"message with the producerId={self.entry.producer_id} has been removed due to hitting the retention "
            "limit.",
        )

    def note_first_offset(self, appended_at: LogOffsetMetadata) -> None:
        """Note the position of the append, so that a transaction that began with it need not be searched for."""
        if self.started and self.started[0].first_offset.message_offset == appended_at.message_offset:
            self.started[0].first_offset = appended_at
