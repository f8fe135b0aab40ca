"""Tracks the transactions of a log that is being compacted, and decides which of their markers are removed.

As kafka 2.0.1 CleanedTransactionMetadata: aborted records are removed at once, whatever their keys. A marker stays as
long as the log had a batch of its transaction when it was compacted; so does the entry of an aborted transaction in
the transaction index. One instance covers the whole log, so that the records and the marker of a transaction may be in
different segments (2.0.1 begins anew with every segment).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from minibroker.protocol.batches import BatchView, iter_all_records
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.storage.index.transaction_index import AbortedTxn, TransactionIndex

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class CleanedTransactions:
    """Gets every batch in the order of the log, from `start_offset` on."""

    __slots__ = ("_aborted", "_committed", "_index", "_to_come", "_with_batches")

    def __init__(self, aborted: Iterable[AbortedTxn], start_offset: int) -> None:
        """Take the aborted transactions of the log that ended at the start or later."""
        self._index: TransactionIndex | None = None  # of the segment that is being written
        reached = [txn for txn in aborted if txn.last_offset >= start_offset]
        self._to_come = deque(sorted(reached, key=lambda txn: txn.first_offset))
        self._aborted: dict[int, AbortedTxn] = {}  # those that have begun, by producer
        self._with_batches: set[int] = set()  # producers of aborted ones with a batch in the log
        self._committed: set[int] = set()  # producers of other ones with a batch in the log

    def note_in(self, index: TransactionIndex) -> None:
        """Note aborted transactions in the index of this segment from now on."""
        self._index = index

    def on_batch(self, view: BatchView) -> bool:
        """Take in a batch of records; return whether it was aborted."""
        self._begin_up_to(view.last_offset)
        if not view.is_transactional:
            return False
        aborted = self._aborted.get(view.producer_id)
        if aborted is None:
            self._committed.add(view.producer_id)
            return False
        self._with_batches.add(view.producer_id)
        return True

    def on_marker(self, view: BatchView, buffer: ReadableBuffer) -> bool:
        """Take in a control batch; return whether nothing is left of the transaction that it ended.

        Raises KafkaError(CORRUPT_MESSAGE), and OSError from writing the index.
        """
        self._begin_up_to(view.last_offset)
        control_type = _control_type(view, buffer)
        if control_type is ControlType.ABORT:
            aborted = self._aborted.pop(view.producer_id, None)
            if aborted is None or view.producer_id not in self._with_batches:
                return True
            self._with_batches.remove(view.producer_id)
            if self._index is not None:
                self._index.append(aborted)
            return False
        if control_type is ControlType.COMMIT:
            has_batches = view.producer_id in self._committed
            self._committed.discard(view.producer_id)
            return not has_batches
        return control_type is None

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0].first_offset <= offset:
            aborted = self._to_come.popleft()
            self._aborted[aborted.producer_id] = aborted


def _control_type(view: BatchView, buffer: ReadableBuffer) -> ControlType | None:
    """Return the type of the marker; None if an earlier compaction removed its record."""
    for record in iter_all_records(buffer, view, max_decompressed_bytes=view.size_bytes):
        return read_control_type(record.key)
    return None
