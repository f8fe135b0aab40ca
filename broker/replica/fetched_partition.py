"""The answer of one partition to a Fetch, as the broker passes it on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.leader_epochs import EpochEndOffset
from minibroker.storage.index.transaction_index import AbortedTxn

NO_RECORDS = b""
NO_PREFERRED_REPLICA = -1  # go on reading here

FetchedRecords = FileSlice | ConvertedSlice | bytes | None


class FetchedPartition(NamedTuple):
    """One partition's answer; with an error it has -1 and None as on the wire."""

    topic_partition: TopicPartition
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: Sequence[AbortedTxn] | None
    records: FetchedRecords
    start: LogOffsetMetadata | None  # of the fetch offset; None with an error or a diverging epoch
    diverging_epoch: EpochEndOffset | None = None
    preferred_read_replica: int = NO_PREFERRED_REPLICA  # where a consumer should read instead

    @property
    def size_bytes(self) -> int:
        return self.records.size_bytes if isinstance(self.records, FileSlice) else 0
