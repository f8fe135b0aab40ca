"""The result of a read: its position in the log, and the records as a slice of their file."""

from __future__ import annotations

from typing import NamedTuple

from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.transaction_index import AbortedTxn


class LogOffsetMetadata(NamedTuple):
    """An offset, its segment and its position in that; -1 where only the offset is known."""

    message_offset: int
    segment_base_offset: int = -1
    relative_position: int = -1


class FetchDataInfo:
    """The result of a read. `records` is b"" if there is nothing to return; the metadata is right even then."""

    __slots__ = ("aborted_transactions", "first_entry_incomplete", "offset_metadata", "records")

    def __init__(
        self,
        offset_metadata: LogOffsetMetadata,
        records: FileSlice | bytes = b"",
        *,
        first_entry_incomplete: bool = False,
        aborted_transactions: list[AbortedTxn] | None = None,
    ) -> None:
        self.offset_metadata = offset_metadata
        self.records = records
        self.first_entry_incomplete = first_entry_incomplete
        self.aborted_transactions = aborted_transactions

    def note_aborted(self, transactions: list[AbortedTxn]) -> None:
        """Add the aborted transactions that may have records in it."""
        self.aborted_transactions = transactions

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes if isinstance(self.records, FileSlice) else 0
