"""The last batches of each idempotent or transactional producer of a log, and its open transactions.

An append is prepared separately (`prepare_update`) and applied once the records are written (`update`); a refused or
failed one changes nothing. Control markers end transactions; a transaction's records are unstable until the high
watermark has passed its marker. The state can be rebuilt from the newest `.snapshot` and the batches after it.

A producer whose last batch is before the log's start, or of which only a marker is left, is gone after a while as in
kafka 2.0.1, and yet remembered until it expires, as by kafka 2.5: its epoch fences every client (KAFKA-9144), its
sequence is for clients of kafka 2.4 and later, whose brokers keep it (KIP-360).
"""

from __future__ import annotations

import logging
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from minibroker.protocol.batches import BatchView
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import INT32_MAX, NO_SEQUENCE, NO_TIMESTAMP
from minibroker.storage.files import disk
from minibroker.storage.files.file_names import SNAPSHOT_SUFFIX, parse_segment_file, segment_file
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.transaction_index import CompletedTxn, TransactionIndex
from minibroker.storage.producers.producer_append import (
    BatchMetadata,
    ProducerAppendInfo,
    ProducerStateEntry,
    Transaction,
)
from minibroker.storage.producers.producer_snapshot import SnapshotEntry, flush_snapshot, read_snapshot, write_snapshot

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


logger = logging.getLogger(__name__)


class Verified(NamedTuple):
    """A producer whose transaction is verified: its epoch, and the earliest sequence that it has sent since."""

    epoch: int
    earliest_sequence: int
    verified_ms: int


class ProducerStateManager:
    """The producers of one log. All batches before `map_end_offset` have been taken in."""

    __slots__ = (
        "_checks_sequences",
        "_completed",
        "_directory",
        "_expiration_ms",
        "_last_snapshot_offset",
        "_ongoing",
        "_producers",
        "_remembered",
        "_verified",
        "map_end_offset",
        "topic_partition",
        "transactions_ended",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        *,
        expiration_ms: int = 7 * 24 * 60 * 60 * 1000,
    ) -> None:
        self.topic_partition = topic_partition
        self.map_end_offset = 0
        self.transactions_ended = 0  # since it was loaded
        self._directory = directory
        self._expiration_ms = expiration_ms
        # The coordinator's batches of offsets committed in a transaction have no sequence.
        self._checks_sequences = topic_partition.topic != GROUP_METADATA_TOPIC
        self._producers: dict[int, ProducerStateEntry] = {}
        self._remembered: dict[int, ProducerStateEntry] = {}  # those without a batch in the log
        self._verified: dict[int, Verified] = {}  # producers that have appended nothing since
        self._ongoing = _Transactions()
        self._completed = _Transactions()  # with a marker that the high watermark has not passed
        self._last_snapshot_offset = 0

    @property
    def producers(self) -> Mapping[int, ProducerStateEntry]:
        return self._producers

    @property
    def producers_and_remembered(self) -> Mapping[int, ProducerStateEntry]:
        if not self._remembered:
            return self._producers
        known = self._producers
        return {each: self._with_remembered(each, known.get(each)) for each in (*known, *self._remembered)}

    def is_in_transaction(self, producer_id: int, epoch: int | None) -> bool:
        """Return whether a producer has records here in a transaction that is open, of this epoch, or of any."""
        entry = self._producers.get(producer_id)
        if entry is None or entry.current_txn_first_offset is None:
            return False
        return epoch is None or entry.epoch == epoch

    def note_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> None:
        """Note the first sequence of a batch whose transaction is verified, refused or not.

        As Apache Kafka 3.9 VerificationStateEntry: until the producer appends, no later sequence overtakes it.
        """
        known = self._verified.get(producer_id)
        if known is None or epoch > known.epoch:
            self._verified[producer_id] = Verified(epoch, sequence, now_ms)
        elif epoch == known.epoch and sequence < known.earliest_sequence:
            self._verified[producer_id] = known._replace(earliest_sequence=sequence)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._remembered and not self._completed

    @property
    def first_unstable_offset(self) -> LogOffsetMetadata | None:
        """The start of the first transaction that is open, or whose marker may still be lost; None for none."""
        if not self._ongoing and not self._completed:
            return None
        firsts = [transactions.first for transactions in (self._ongoing, self._completed) if transactions]
        return min((txn.first_offset for txn in firsts), key=lambda metadata: metadata.message_offset)

    @property
    def first_undecided_offset(self) -> int | None:
        """The start of the first open transaction; None for none."""
        return self._ongoing.first.first_offset.message_offset if self._ongoing else None

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Count the transactions with a marker before it as stable."""
        if self._completed:
            self._completed.remove_where(lambda txn: txn.last_offset is not None and txn.last_offset < high_watermark)

    def _with_remembered(self, producer_id: int, known: ProducerStateEntry | None) -> ProducerStateEntry:
        """Return the producer's entry, also without a batch in the log; a new one for an unknown producer."""
        if known is not None and known.batches:
            return known
        remembered = self._remembered.get(producer_id)
        if known is None or remembered is None or remembered.epoch != known.epoch:
            return known or remembered or ProducerStateEntry(producer_id)
        remembered.note_marker_of(known)  # one came meanwhile
        return remembered

    def prepare_update(
        self, producer_id: int, *, is_from_client: bool, remembers: bool = False, is_replicated: bool = False
    ) -> ProducerAppendInfo:
        """Return where an append collects its changes; sequences are checked for a client's append, epochs for any.

        With `remembers`, they are checked as by a broker that keeps a producer when its records are deleted. Nothing
        is checked that `is_replicated`, from a leader or from the log itself.
        """
        known = self._producers.get(producer_id)
        entry = newest = self._with_remembered(producer_id, known)
        if not remembers and producer_id in self._remembered:
            entry = known or newest.without_batches()
        verified = self._verified.get(producer_id)
        return ProducerAppendInfo(
            entry,
            least_epoch=newest.epoch,
            checks_epoch=not is_replicated,
            checks_sequence=is_from_client and self._checks_sequences,
            may_begin_anywhere=remembers,
            earliest_sequence=INT32_MAX if verified is None else verified.earliest_sequence,
        )

    def update(self, info: ProducerAppendInfo) -> None:
        """Apply the changes of an append: its records are written."""
        entry = info.entry
        self._producers[entry.producer_id] = entry
        if self._remembered and info.batches:
            self._remembered.pop(entry.producer_id, None)
        if self._verified and (info.current_txn_first_offset is not None or not info.batches):
            self._verified.pop(entry.producer_id, None)
        entry.note_append(info)
        for transaction in info.started:
            self._ongoing.add(transaction)

    def update_map_end_offset(self, offset: int) -> None:
        self.map_end_offset = offset

    def replay(
        self, view: BatchView, buffer: ReadableBuffer, transaction_index: TransactionIndex | None = None
    ) -> None:
        """Take in a batch that is in the log, unchecked, and have the transaction index note what it aborts."""
        if view.producer_id >= 0:
            append_info = self.prepare_update(view.producer_id, is_from_client=False, is_replicated=True)
            completed = append_info.append(view, buffer)
            self.update(append_info)
            if completed is not None:
                last_stable_offset = self.complete_txn(completed)
                if transaction_index is not None:
                    transaction_index.note(completed, last_stable_offset)
        self.update_map_end_offset(view.last_offset + 1)

    def complete_txn(self, completed: CompletedTxn) -> int:
        """Note that the marker is written; return the last stable offset after it, without the high watermark."""
        self.transactions_ended += 1
        transaction = self._ongoing.remove(completed.first_offset)
        transaction.complete(completed.last_offset)
        self._completed.add(transaction)
        undecided = self.first_undecided_offset
        return completed.last_offset + 1 if undecided is None else undecided

    def remove_expired(self, now_ms: int) -> None:
        """Forget the producers that neither wrote nor ended a transaction within the expiration."""
        for producers in (self._producers, self._remembered):
            for producer_id in [key for key, entry in producers.items() if self._is_expired(entry, now_ms)]:
                del producers[producer_id]
        for producer_id in [key for key, entry in self._producers.items() if not entry.batches]:
            self._remember(self._producers.pop(producer_id))
        latest_ms = now_ms - self._expiration_ms
        self._verified = {key: each for key, each in self._verified.items() if each.verified_ms > latest_ms}

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.current_txn_first_offset is None and now_ms - entry.last_timestamp_ms >= self._expiration_ms

    def take_snapshot(self) -> None:
        """Write a snapshot, unless the newest one has this state. Raises OSError."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return
        path = segment_file(self._directory, self.map_end_offset, SNAPSHOT_SUFFIX)
        write_snapshot(path, map(_to_snapshot, self.producers_and_remembered.values()))
        self._last_snapshot_offset = self.map_end_offset

    def flush_snapshots(self, start: int, end: int) -> None:
        """Force the snapshots from an offset to another to disk; may run in another thread. Raises OSError."""
        for offset, path in self._snapshots().items():
            if start <= offset <= end:
                flush_snapshot(path)

    @property
    def latest_snapshot_offset(self) -> int | None:
        return max(self._snapshots(), default=None)

    def _snapshots(self) -> dict[int, Path]:
        directory = self._directory
        parsed = [
            (name, parse_segment_file(name)) for name in disk.listdir(directory) if name.endswith(SNAPSHOT_SUFFIX)
        ]
        return {
            name.base_offset: directory / text
            for text, name in parsed
            if name is not None and name.suffix == SNAPSHOT_SUFFIX and not name.extra
        }

    def delete_snapshots_before(self, offset: int) -> None:
        self._delete_snapshots(lambda snapshot_offset: snapshot_offset < offset)

    def _delete_snapshots(self, is_due: Callable[[int], bool]) -> None:
        for offset, path in self._snapshots().items():
            if is_due(offset):
                disk.unlink(path)

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, *, now_ms: int) -> None:
        """Return to the newest snapshot in the log's range; the caller replays the batches from `map_end_offset` on."""
        self._delete_snapshots(lambda offset: not log_start_offset <= offset <= log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.truncate_head(log_start_offset)
            return
        self._clear()
        self._load_from_snapshot(log_start_offset, now_ms)

    def _load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        for offset, path in sorted(self._snapshots().items(), reverse=True):
            try:
                entries = [_from_snapshot(fields) for fields in read_snapshot(path)]
            except CorruptFileError as error:
                logger.warning("removing a corrupt snapshot: %s", error)
                disk.unlink(path)
                continue
            for entry in entries:
                if entry.last_timestamp_ms == NO_TIMESTAMP and not entry.batches:
                    entry.note_time(now_ms)  # kafka 2.0.1 keeps no time of a marker
                if self._is_expired(entry, now_ms):
                    continue
                if entry.last_offset < log_start_offset:
                    self._remember(entry)
                else:
                    self._load(entry)
            self.map_end_offset = self._last_snapshot_offset = offset
            return
        self.map_end_offset = self._last_snapshot_offset = log_start_offset

    def _load(self, entry: ProducerStateEntry) -> None:
        self._producers[entry.producer_id] = entry
        if entry.current_txn_first_offset is not None:
            first_offset = LogOffsetMetadata(entry.current_txn_first_offset)
            self._ongoing.add(Transaction(entry.producer_id, first_offset))

    def _remember(self, entry: ProducerStateEntry) -> None:
        entry.forget_transaction()
        self._remembered[entry.producer_id] = self._with_remembered(entry.producer_id, entry)

    def truncate_head(self, log_start_offset: int) -> None:
        """Remove the producers whose last batch is before the log's new start.

        Raises OSError from the snapshot of those that are remembered: soon no batch has them any more.
        """
        gone = {key for key, entry in self._producers.items() if entry.last_offset < log_start_offset}
        for producer_id in gone:
            self._remember(self._producers.pop(producer_id))
        self._ongoing.remove_where(lambda txn: txn.producer_id in gone)
        self.on_high_watermark_updated(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        if self._remembered:
            self.take_snapshot()
        latest = self.latest_snapshot_offset
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def truncate(self) -> None:
        """Forget everything, and remove all snapshots."""
        self._clear()
        self._delete_snapshots(lambda _: True)
        self.map_end_offset = self._last_snapshot_offset = 0

    def _clear(self) -> None:
        self._producers.clear()
        self._remembered.clear()
        self._ongoing = _Transactions()
        self._completed = _Transactions()

    def update_directory(self, directory: Path) -> None:
        """Follow the directory, which was renamed."""
        self._directory = directory


class _Transactions:
    """Transactions by their first offset; the earliest is found at once."""

    __slots__ = ("_by_first_offset", "_first_offsets")

    def __init__(self) -> None:
        self._by_first_offset: dict[int, Transaction] = {}
        self._first_offsets: list[int] = []  # sorted

    def __len__(self) -> int:
        return len(self._first_offsets)

    @property
    def first(self) -> Transaction:
        return self._by_first_offset[self._first_offsets[0]]

    def add(self, transaction: Transaction) -> None:
        offset = transaction.first_offset.message_offset
        if offset not in self._by_first_offset:
            insort(self._first_offsets, offset)
        self._by_first_offset[offset] = transaction

    def remove(self, first_offset: int) -> Transaction:
        """Raises ValueError for one that is not here."""
        transaction = self._by_first_offset.pop(first_offset, None)
        if transaction is None:
            raise ValueError(f"no transaction began at offset {first_offset}")
        del self._first_offsets[bisect_left(self._first_offsets, first_offset)]
        return transaction

    def remove_where(self, is_due: Callable[[Transaction], bool]) -> None:
        for offset in [offset for offset, txn in self._by_first_offset.items() if is_due(txn)]:
            self.remove(offset)


def _to_snapshot(entry: ProducerStateEntry) -> SnapshotEntry:
    last = entry.batches[-1] if entry.batches else _NO_BATCH
    first_offset = entry.current_txn_first_offset
    return SnapshotEntry(
        entry.producer_id,
        entry.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        -1 if first_offset is None else first_offset,
    )


def _from_snapshot(fields: SnapshotEntry) -> ProducerStateEntry:
    entry = ProducerStateEntry(fields.producer_id)
    entry.epoch = fields.epoch
    entry.coordinator_epoch = fields.coordinator_epoch
    entry.last_timestamp_ms = fields.timestamp_ms
    if fields.last_offset >= 0:
        entry.batches.append(
            BatchMetadata(fields.last_sequence, fields.last_offset, fields.offset_delta, fields.timestamp_ms)
        )
    if fields.current_txn_first_offset >= 0:
        entry.current_txn_first_offset = fields.current_txn_first_offset
    return entry


_NO_BATCH = BatchMetadata(NO_SEQUENCE, -1, 0, NO_TIMESTAMP)
