"""The log of one partition: owns its segments, its offsets, its producers and its leader epochs.

    log start offset <= last stable offset <= high watermark <= log end offset
    everything below the recovery point has been fsynced

A log belongs to one thread, except `flush` and `delete_snapshots_before`, which may run in another at the same time.
A failed operation changes nothing: whatever refuses an append (the checks of `log_validator`, a producer's sequence
and epoch, the sizes) comes before the first byte is written. Then, in this order: a new segment if one is due, the
leader epoch, the batches in one write, and the producers' state.
"""

from __future__ import annotations

import logging
import os
import time
from bisect import bisect_right
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import NO_SEQUENCE, NO_TIMESTAMP
from minibroker.protocol.record_batch import (
    NO_PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    pack_place,
    unpack_header,
)
from minibroker.storage.files.storage_errors import LogFlushError, map_flush_errors
from minibroker.storage.index.fetch_data import FetchDataInfo, LogOffsetMetadata
from minibroker.storage.index.indexes import TimestampOffset
from minibroker.storage.log.log_retention import Retention
from minibroker.storage.log.log_validator import (
    NO_OFFSET,
    PLAIN_ATTRIBUTES,
    UNBOUNDED_MS,
    UNCOMPRESSED_ATTRIBUTES,
    AssignedRecords,
    Buffer,
    analyze_records,
    assign_offsets,
    is_plain_batch,
)
from minibroker.storage.log.producer_recovery import rebuild_producer_state
from minibroker.storage.segment.log_segments import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from minibroker.protocol.primitives import TopicPartition
    from minibroker.protocol.record_batch import PlainHeader
    from minibroker.storage.config import LogConfig
    from minibroker.storage.index.leader_epochs import LeaderEpochCache
    from minibroker.storage.index.transaction_index import AbortedTxn, CompletedTxn
    from minibroker.storage.log.flush_times import FlushTimes
    from minibroker.storage.producers.producer_append import BatchMetadata, ProducerAppendInfo
    from minibroker.storage.producers.producer_state import ProducerStateManager
    from minibroker.storage.segment.log_segment import LogSegment
    from minibroker.storage.segment.log_segments import LogSegments

logger = logging.getLogger(__name__)

# In place of an offset or a timestamp, as Kafka's protocol has them.
DELETE_TO_HIGH_WATERMARK = -1
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
LEAST_TIMESTAMP = -(2**63)

_SEQUENCE_MASK = 0x7FFFFFFF  # 0 follows 2^31 - 1


class LogAppendInfo(NamedTuple):
    """The result of an append; offsets are -1 if nothing was appended."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int  # -1 with CreateTime
    log_start_offset: int
    shallow_count: int  # batches; messages of the old formats
    valid_bytes: int
    is_duplicate: bool  # the offsets are those of the first time
    needs_flush: bool  # flush.messages asks for an fsync before the append is acknowledged


class Log:
    """Opened by `log_loader.load_log`. After `close` and `refuse`, appends and reads raise KafkaError."""

    __slots__ = (
        "_cutting",
        "_end_metadata",
        "_high_watermark",
        "_max_batch_bytes",
        "_plain_attributes",
        "_refusal",
        "_takes_clients_batches_as_sent",
        "_takes_own_batches_as_sent",
        "appended_bytes",
        "appends",
        "cleaned_offset",
        "config",
        "converted_records",
        "flush_times",
        "is_being_cleaned",
        "last_flush_ms",
        "leader_epochs",
        "log_end_offset",
        "log_start_offset",
        "opened_at_offset",
        "producer_state",
        "recovery_point",
        "segments",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: LogSegments,
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        now_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.config = config
        self.segments = segments
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self._high_watermark = LogOffsetMetadata(log_start_offset)
        self.recovery_point = recovery_point
        self.last_flush_ms = now_ms
        self.cleaned_offset: int | None = None  # the log has been compacted up to here
        self.is_being_cleaned = False  # retention waits meanwhile
        # For metrics, since the log was opened here:
        self.opened_at_offset = log_end_offset
        self.appends = 0
        self.appended_bytes = 0
        self.converted_records = 0  # between message formats
        self.flush_times: FlushTimes | None = None  # of all logs of a directory
        self.truncations = 0  # how often records were cut off at the end
        self._cutting = Lock()  # a flush, in its thread, must not count what is being cut off
        self._end_metadata: LogOffsetMetadata | None = None
        self._refusal: tuple[ErrorCode, str] | None = None
        self._derive_append_rules()

    @property
    def directory(self) -> Path:
        return self.segments.directory

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        metadata = self._end_metadata
        if metadata is None:
            active = self.segments.active
            metadata = LogOffsetMetadata(self.log_end_offset, active.base_offset, active.size_bytes)
            self._end_metadata = metadata
        return metadata

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - self.recovery_point

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether a segment that is no longer written waits for its fsync."""
        return self.recovery_point < self.segments.active.base_offset

    # -- settings, refusing -----------------------------------------------------------------------------------

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings: to appends and retention at once, to segments with the next one."""
        self.config = config
        self._derive_append_rules()

    @property
    def is_refusing(self) -> bool:
        """Whether the log was closed or deleted, or its disk failed."""
        return self._refusal is not None

    def refuse(self, code: ErrorCode, message: str) -> None:
        """Answer appends and reads with this error from now on: the disk failed, or the log is gone."""
        self._refusal = (code, message)
        self._derive_append_rules()

    def check_usable(self) -> None:
        """Raise the KafkaError of a log that refuses."""
        if self._refusal is not None:
            raise KafkaError(*self._refusal)

    @property
    def takes_clients_batches_as_sent(self) -> bool:
        """Whether a client's batch of magic 2 is appended without a look at its records."""
        return self._takes_clients_batches_as_sent

    def _derive_append_rules(self) -> None:
        config = self.config
        is_plain = (
            config.magic == 2
            and config.compression_type in ("producer", "uncompressed")
            and not config.is_log_append_time
            and self._refusal is None
        )
        keeps_codec = config.compression_type == "producer"
        is_unbounded = config.message_timestamp_difference_max_ms >= UNBOUNDED_MS
        self._takes_own_batches_as_sent = is_plain
        self._takes_clients_batches_as_sent = is_plain and keeps_codec and not config.is_compacted and is_unbounded
        self._plain_attributes = PLAIN_ATTRIBUTES if keeps_codec else UNCOMPRESSED_ATTRIBUTES
        self._max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)

    # -- reading ----------------------------------------------------------------------------------------------

    def read(
        self,
        start_offset: int,
        max_length: int,
        *,
        max_offset: int | None = None,
        min_one_message: bool = False,
        include_aborted_txns: bool = False,
    ) -> FetchDataInfo:
        """Return at most `max_length` bytes from the batch that holds the offset on, and nothing from `max_offset` on.

        With `min_one_message` the first batch is returned whole. At the log's end there is nothing, and no error.
        Raises KafkaError: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        end_offset = self.log_end_offset
        if start_offset == end_offset and self._refusal is None:
            return FetchDataInfo(
                self.log_end_offset_metadata, aborted_transactions=[] if include_aborted_txns else None
            )
        self.check_usable()
        segments = self.segments
        slot = bisect_right(segments.bases, start_offset) - 1
        if not self.log_start_offset <= start_offset <= end_offset or slot < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Received request for offset {start_offset} for partition {self.topic_partition}, but we only "
                f"have log segments in the range {self.log_start_offset} to {end_offset}.",
            )
        if max_offset is not None and max_offset >= end_offset:
            max_offset = None  # the end of the log needs no search for its position
        while slot < len(segments.segments):
            segment = segments.segments[slot]
            fetched = segment.read(
                start_offset, max_size=max_length, max_offset=max_offset, min_one_message=min_one_message
            )
            if fetched is not None:
                if include_aborted_txns:
                    fetched.aborted_transactions = self._aborted_in(start_offset, slot, fetched)
                return fetched
            slot += 1
        # All batches from the start offset on were compacted away.
        return FetchDataInfo(self.log_end_offset_metadata, aborted_transactions=[] if include_aborted_txns else None)

    def _aborted_in(self, start_offset: int, slot: int, fetched: FetchDataInfo) -> list[AbortedTxn]:
        """Return the aborted transactions that may have records in the fetch (as kafka 2.0.1)."""
        segments = self.segments
        segment = segments.segments[slot]
        is_active = slot + 1 == len(segments.segments)
        if is_active and segment.transaction_index.size_bytes == 0:  # the usual answer to a tailing reader
            return []
        upper_bound = segment.fetch_upper_bound_offset(fetched.offset_metadata.relative_position, fetched.size_bytes)
        if upper_bound is None:
            upper_bound = self.log_end_offset if is_active else segments.bases[slot + 1]
        return segments.collect_aborted_txns(start_offset, upper_bound, slot)

    def convert_to_offset_metadata(self, offset: int) -> LogOffsetMetadata:
        """Return where the offset lies. Raises KafkaError(OFFSET_OUT_OF_RANGE)."""
        return self.read(offset, 0).offset_metadata

    # -- offsets by time --------------------------------------------------------------------------------------

    def fetch_offset_by_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record at the timestamp or younger, None if all are older; -1 is the end, -2 the start.

        Raises KafkaError: UNSUPPORTED_FOR_MESSAGE_FORMAT, KAFKA_STORAGE_ERROR.
        """
        self.check_usable()
        if timestamp_ms == EARLIEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, self.log_start_offset)
        if timestamp_ms == LATEST_TIMESTAMP:
            return TimestampOffset(NO_TIMESTAMP, self.log_end_offset)
        self._check_has_timestamps()
        # Kafka 2.0.1 searches a segment below the log start offset too, and then no other one.
        for segment in self.segments.between(self.log_start_offset, self.log_end_offset):
            if segment.largest_timestamp_ms >= timestamp_ms:
                return segment.find_offset_by_timestamp(timestamp_ms, self.log_start_offset)
        return None

    def fetch_offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first of the youngest records that are left, or the first record if none has a time.

        None without records. Raises as `fetch_offset_by_timestamp`.
        """
        self.check_usable()
        self._check_has_timestamps()
        first, *others = self.segments.between(self.log_start_offset, self.log_end_offset + 1)
        largest_ms = max(segment.max_timestamp_so_far for segment in (first, *others))
        found = self._first_at(largest_ms, first, *others)
        if found is None:  # the youngest lies below the log start offset
            left_ms = first.max_timestamp_from(self.log_start_offset)
            largest_ms = max([left_ms, *(segment.max_timestamp_so_far for segment in others)])
            found = self._first_at(largest_ms, first, *others)
        return found

    def _first_at(self, timestamp_ms: int, *segments: LogSegment) -> TimestampOffset | None:
        """Return the first record of these segments at the timestamp or younger, of any time for a negative one."""
        sought_ms = timestamp_ms if timestamp_ms >= 0 else LEAST_TIMESTAMP
        for segment in segments:
            found = segment.find_offset_by_timestamp(sought_ms, self.log_start_offset)
            if found is not None:
                return found
        return None

    def _check_has_timestamps(self) -> None:
        if self.config.magic == 0:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"Cannot search offsets based on timestamp because message format version is "
                f"{self.config.message_format_version} which is earlier than the minimum required version 0.10.0-IV0",
            )

    def legacy_fetch_offsets_before(self, timestamp_ms: int, max_offsets: int, *, now_ms: int) -> list[int]:
        """Return the base offsets of segments last written at or before the time, newest first (ListOffsets v0)."""
        self.check_usable()
        segments, start_offset = self.segments, self.log_start_offset
        known = [(max(segment.base_offset, start_offset), segment.last_modified_ms) for segment in segments.segments]
        if segments.active.size_bytes > 0:
            known.append((self.log_end_offset, now_ms))
        if timestamp_ms == LATEST_TIMESTAMP:
            end = len(known)
        elif timestamp_ms == EARLIEST_TIMESTAMP:
            end = 1
        else:
            end = max((slot + 1 for slot, (_, time_ms) in enumerate(known) if time_ms <= timestamp_ms), default=0)
        newest_first = [offset for offset, _ in known[:end][::-1]]
        return sorted(newest_first[:max_offsets], reverse=True)

    # -- appending --------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        is_from_client: bool = True,
        remembers_producers: bool = False,
    ) -> LogAppendInfo:
        """Append batches and assign their offsets, in place: the buffer must be writable.

        The usual append, one batch of magic 2 that is stored as sent, needs only its header, and no work per record.
        With `remembers_producers` a producer is known after its records were deleted, as its client expects.
        Raises KafkaError (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, and those of `log_validator` and
        `producer_append`) or OSError.
        """
        if (
            self._takes_clients_batches_as_sent if is_from_client else self._takes_own_batches_as_sent
        ) and RECORD_BATCH_OVERHEAD < len(records) <= self._max_batch_bytes:
            header = unpack_header(records)
            if is_plain_batch(header, records, self._plain_attributes):
                return self._append_plain_batch(
                    records, header, leader_epoch, now_ms, is_from_client, remembers_producers
                )
        self.check_usable()
        config = self.config
        analysis = analyze_records(records, max_message_bytes=config.max_message_bytes, is_from_client=is_from_client)
        if not analysis.batches:
            return self._nothing_appended()
        assigned = assign_offsets(
            records,
            analysis,
            config=config,
            first_offset=self.log_end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            is_from_client=is_from_client,
        )
        append_time_ms = now_ms if config.is_log_append_time else NO_TIMESTAMP
        appended = self._append_batches(assigned, append_time_ms, now_ms, is_from_client, remembers_producers)
        if analysis.batches[0].magic != config.magic and not appended.is_duplicate:
            self.converted_records += appended.last_offset - appended.first_offset + 1
        return appended

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> LogAppendInfo:
        """Append batches as the leader has them, offsets and epochs included.

        Raises KafkaError, CORRUPT_MESSAGE also for offsets that do not rise from the log's end on; or OSError.
        """
        self.check_usable()
        analysis = analyze_records(records, max_message_bytes=self.config.max_message_bytes, is_from_client=False)
        if not analysis.batches:
            return self._nothing_appended()
        if not analysis.are_offsets_rising or analysis.first_known_offset < self.log_end_offset:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self.topic_partition}: offsets {analysis.first_known_offset} to {analysis.last_offset} "
                f"cannot follow {self.log_end_offset - 1}",
            )
        return self._append_batches(
            analysis.as_they_are(records), NO_TIMESTAMP, now_ms, False, False, is_replicated=True
        )

    def _append_plain_batch(
        self,
        records: Buffer,
        header: PlainHeader,
        leader_epoch: int,
        now_ms: int,
        is_from_client: bool,
        remembers_producers: bool,
    ) -> LogAppendInfo:
        _, length, _, _, _, attributes, delta, _, max_timestamp_ms, producer_id, epoch, sequence, _ = header
        first_offset = self.log_end_offset
        last_offset = first_offset + delta
        producer = None
        if producer_id != NO_PRODUCER_ID:
            last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + delta) & _SEQUENCE_MASK
            if is_from_client:
                duplicate = self._find_duplicate(producer_id, epoch, sequence, last_sequence, remembers_producers)
                if duplicate is not None:
                    return self._duplicate_info(duplicate, len(records))
            producer = self.producer_state.prepare_update(
                producer_id, is_from_client=is_from_client, remembers=remembers_producers
            )
            is_transactional = attributes & TRANSACTIONAL_FLAG != 0
            producer.append_data(
                epoch, sequence, last_sequence, max_timestamp_ms, first_offset, last_offset, is_transactional
            )
        size = len(records)
        if self.segments.active.should_roll(size, max_timestamp_ms, last_offset, now_ms=now_ms):
            self.roll(now_ms)
        if leader_epoch != self.leader_epochs.latest_epoch:
            self.leader_epochs.assign(leader_epoch, first_offset)
        pack_place(records, 0, first_offset, length, leader_epoch)
        if producer is None:
            self._append_to_active(records, last_offset, max_timestamp_ms, last_offset)
        else:
            start = self.log_end_offset_metadata
            self._append_to_active(records, last_offset, max_timestamp_ms, last_offset)
            producer.note_first_offset(start)
            self.producer_state.update(producer)
        needs_flush = last_offset - self.recovery_point >= self.config.flush_messages - 1
        return LogAppendInfo(
            first_offset,
            last_offset,
            max_timestamp_ms,
            NO_TIMESTAMP,
            self.log_start_offset,
            1,
            size,
            False,
            needs_flush,
        )

    def _append_batches(
        self,
        assigned: AssignedRecords,
        append_time_ms: int,
        now_ms: int,
        is_from_client: bool,
        remembers_producers: bool,
        *,
        is_replicated: bool = False,
    ) -> LogAppendInfo:
        size = len(assigned.buffer)
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self.topic_partition}, which "
                f"exceeds the maximum configured segment size of {self.config.segment_bytes}.",
            )
        producers: dict[int, ProducerAppendInfo] = {}
        completed: list[CompletedTxn] = []
        for batch in assigned.batches:
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            if is_from_client:
                duplicate = self._find_duplicate(
                    producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence, remembers_producers
                )
                if duplicate is not None:
                    return self._duplicate_info(duplicate, size)
            if producer_id not in producers:
                producers[producer_id] = self.producer_state.prepare_update(
                    producer_id,
                    is_from_client=is_from_client,
                    remembers=remembers_producers,
                    is_replicated=is_replicated,
                )
            ended = producers[producer_id].append(batch, assigned.buffer)
            if ended is not None:
                completed.append(ended)
        self._write(assigned, producers.values(), completed, now_ms)
        return LogAppendInfo(
            assigned.first_offset,
            assigned.last_offset,
            assigned.max_timestamp_ms,
            append_time_ms,
            self.log_start_offset,
            len(assigned.batches),
            size,
            False,
            self.unflushed_messages >= self.config.flush_messages,
        )

    def _write(
        self,
        assigned: AssignedRecords,
        producers: Iterable[ProducerAppendInfo],
        completed: Iterable[CompletedTxn],
        now_ms: int,
    ) -> None:
        size, last_offset = len(assigned.buffer), assigned.last_offset
        if self.segments.active.should_roll(size, assigned.max_timestamp_ms, last_offset, now_ms=now_ms):
            self.roll(now_ms, assigned.lowest_offset)
        for batch in assigned.batches:
            if batch.magic >= 2 and batch.partition_leader_epoch > self.leader_epochs.latest_epoch:
                self.leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        segment, end_offset = self.segments.active, self.log_end_offset
        start = LogOffsetMetadata(assigned.lowest_offset, segment.base_offset, segment.size_bytes)
        self._append_to_active(
            assigned.buffer, last_offset, assigned.max_timestamp_ms, assigned.offset_of_max_timestamp
        )
        try:
            for producer in producers:
                producer.note_first_offset(start)
                self.producer_state.update(producer)
            for txn in completed:
                segment.update_txn_index(txn, self.producer_state.complete_txn(txn))
        except OSError:
            # Without its index entry the marker must not stay: readers would see what was aborted.
            self.truncate_to(end_offset, now_ms=now_ms)
            raise

    def _append_to_active(
        self, buffer: Buffer, last_offset: int, max_timestamp_ms: int, offset_of_max_timestamp: int
    ) -> None:
        self.segments.active.append(last_offset, max_timestamp_ms, offset_of_max_timestamp, buffer)
        self.appends += 1
        self.appended_bytes += len(buffer)
        self.log_end_offset = last_offset + 1
        self._end_metadata = None

    def _find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int, remembers_producers: bool
    ) -> BatchMetadata | None:
        known = self.producer_state.last_entry(producer_id, remembers=remembers_producers)
        return None if known is None else known.find_duplicate(epoch, first_sequence, last_sequence)

    def _duplicate_info(self, first_time: BatchMetadata, size_bytes: int) -> LogAppendInfo:
        return LogAppendInfo(
            first_offset=first_time.first_offset,
            last_offset=first_time.last_offset,
            max_timestamp_ms=first_time.timestamp_ms,
            log_append_time_ms=first_time.timestamp_ms,  # as kafka 2.0.1, with CreateTime too
            log_start_offset=self.log_start_offset,
            shallow_count=1,
            valid_bytes=size_bytes,
            is_duplicate=True,
            needs_flush=self.unflushed_messages >= self.config.flush_messages,
        )

    def _nothing_appended(self) -> LogAppendInfo:
        return LogAppendInfo(
            first_offset=NO_OFFSET,
            last_offset=NO_OFFSET,
            max_timestamp_ms=NO_TIMESTAMP,
            log_append_time_ms=NO_TIMESTAMP,
            log_start_offset=self.log_start_offset,
            shallow_count=0,
            valid_bytes=0,
            is_duplicate=False,
            needs_flush=False,
        )

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Note that a new leader epoch begins at the log's end. Raises OSError."""
        self.leader_epochs.assign(leader_epoch, self.log_end_offset)

    # -- committing -------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.message_offset

    @property
    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark with its segment and position, with which bytes are counted without reading.

        Raises KafkaError of a log that refuses, if the position has not been needed before.
        """
        metadata = self._high_watermark
        if metadata.segment_base_offset < 0:
            metadata = self._high_watermark = self.convert_to_offset_metadata(metadata.message_offset)
        return metadata

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark up to the offset, not beyond the log's end; return whether it moved."""
        if offset >= self.log_end_offset:
            return self.move_high_watermark(self.log_end_offset_metadata)
        return self.move_high_watermark(LogOffsetMetadata(offset))

    def move_high_watermark(self, offset: LogOffsetMetadata) -> bool:
        """Move the high watermark up to the offset, or to a newer segment after a roll; return whether it moved."""
        before = self._high_watermark
        if offset.message_offset > before.message_offset:
            self._high_watermark = offset
            self.producer_state.on_high_watermark_updated(offset.message_offset)
            return True
        if offset.message_offset < before.message_offset or offset.segment_base_offset <= before.segment_base_offset:
            return False
        self._high_watermark = offset
        return True

    @property
    def first_unstable_offset(self) -> int | None:
        """The start of the first transaction that is open, or whose end is not committed; None for none."""
        unstable = self.producer_state.first_unstable_offset
        return None if unstable is None else max(unstable.message_offset, self.log_start_offset)

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed: the first unstable offset, or the high watermark."""
        unstable = self.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    # -- rolling, flushing ------------------------------------------------------------------------------------

    def roll(self, now_ms: int, new_offset: int = NO_OFFSET) -> None:
        """Begin a new segment at the log's end or beyond, unless the active one is empty.

        Raises OSError; the old segment is still active then.
        """
        new_offset = max(new_offset, self.log_end_offset)
        if new_offset == self.segments.active.base_offset:
            return
        # With a snapshot at its start, recovery of the new segment needs none of the old ones.
        self.producer_state.update_map_end_offset(new_offset)
        self.producer_state.take_snapshot()
        self.segments.roll(new_offset, self.config, now_ms=now_ms)
        self._end_metadata = None
        logger.info("%s: rolled a new segment at offset %d", self.topic_partition, new_offset)

    def flush(self, offset: int | None = None, *, now_ms: int | None = None) -> None:
        """Force everything below the offset (the log's end) to disk; may run in another thread.

        The active segment's indexes are left out: a start after a crash rebuilds them. Raises LogFlushError, after
        which the log refuses everything, as what the disk holds is unknown; or OSError without a free descriptor.
        """
        try:
            self._flush_below(self.log_end_offset if offset is None else offset)
        except LogFlushError as error:
            self.refuse(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            raise
        if now_ms is not None:
            self.last_flush_ms = now_ms

    def _flush_below(self, offset: int) -> None:
        if offset <= self.recovery_point:
            return
        truncations, active, began = self.truncations, self.segments.active, time.perf_counter()
        with map_flush_errors(self.directory):
            self._flush_segments(self.recovery_point, offset, active)
        if self.flush_times is not None:
            self.flush_times.add(time.perf_counter() - began)
        # The owner went on meanwhile: what it cut off is not flushed, nor are the indexes of a rolled segment.
        with self._cutting:
            if truncations == self.truncations:
                reached = offset if active is self.segments.active else min(offset, active.base_offset)
                self.recovery_point = max(self.recovery_point, reached)

    def _flush_segments(self, start: int, end: int, active: LogSegment) -> None:
        has_new_files = False
        for segment in reversed(tuple(self.segments.segments)):
            if segment.base_offset >= end:
                continue
            has_new_files = has_new_files or segment.base_offset >= start
            try:
                if segment is active:
                    segment.records.flush()
                elif not segment.is_on_disk:  # a segment of compaction is, and may just be getting its names
                    segment.flush()
            except FileNotFoundError:
                if segment in self.segments and not self.is_refusing:
                    raise
            if segment.base_offset <= start:
                break
        if has_new_files:
            self._sync_names()

    def _sync_names(self) -> None:
        directory = self.directory
        try:
            sync_directory(directory)
        except FileNotFoundError:
            if not self.is_refusing:  # else it was renamed, for deletion
                raise
        sync_directory(directory.parent)

    # -- truncating -------------------------------------------------------------------------------------------

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cut everything from the offset on; return whether there was anything. Raises OSError.

        An epoch in which nothing was written is forgotten even at the log's end (as later kafka Log.truncateTo): a
        follower would ask a leader that does not know it for ever.
        """
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return True
        logger.info("%s: truncating to offset %d", self.topic_partition, offset)
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self._begin_cutting()
        self.segments.truncate_to(offset, now_ms=now_ms, delete_at_ms=now_ms + self.config.file_delete_delay_ms)
        self._end_at(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        if offset < self.high_watermark:
            self._high_watermark = LogOffsetMetadata(offset)
        self.leader_epochs.truncate_from_end(offset)
        rebuild_producer_state(
            self.producer_state,
            self.segments,
            log_start_offset=self.log_start_offset,
            end_offset=offset,
            magic=self.config.magic,
            is_after_clean_stop=False,
            now_ms=now_ms,
        )
        return True

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Remove everything, and begin with an empty segment at the offset. Raises OSError."""
        logger.info("%s: starting anew at offset %d", self.topic_partition, offset)
        self._begin_cutting()
        self.segments.take_out(tuple(self.segments), delete_at_ms=now_ms + self.config.file_delete_delay_ms)
        self.segments.create(offset, self.config, now_ms=now_ms)
        self._end_at(offset)
        self.log_start_offset = offset
        self._high_watermark = LogOffsetMetadata(offset)
        self.leader_epochs.clear()
        self.producer_state.truncate()
        self.producer_state.update_map_end_offset(offset)

    def _begin_cutting(self) -> None:
        with self._cutting:
            self.truncations += 1

    def _end_at(self, offset: int) -> None:
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self._end_metadata = None
        if self.cleaned_offset is not None:  # records that will be written behind the offset are not compacted
            self.cleaned_offset = min(self.cleaned_offset, offset)

    # -- deleting ---------------------------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: int) -> bool:
        """Hide everything below the offset; return whether that changes anything. Raises OSError."""
        if offset <= self.log_start_offset:
            return False
        logger.info("%s: log start offset %d", self.topic_partition, offset)
        self.leader_epochs.truncate_from_start(offset)
        self.log_start_offset = offset
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self.producer_state.truncate_head(offset)
        # One at the start of the first segment is kept, where recovery begins.
        self.producer_state.delete_snapshots_before(self.segments.first.base_offset)
        return True

    def delete_records(self, offset: int) -> int:
        """Hide everything below the offset, -1 for all that is committed; return the log start offset.

        Raises KafkaError: POLICY_VIOLATION, OFFSET_OUT_OF_RANGE; or OSError.
        """
        if not self.config.is_deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {self.topic_partition} can not be deleted due to the configured policy",
            )
        if offset == DELETE_TO_HIGH_WATERMARK:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The offset {offset} is beyond the high watermark {self.high_watermark} of partition "
                f"{self.topic_partition}",
            )
        self.maybe_increment_log_start_offset(offset)
        return self.log_start_offset

    def delete_old_segments(self, now_ms: int) -> int:
        """Take out segments by age, by size and below the log start offset; return how many. Raises OSError."""
        if not self.config.is_deleted or self.is_being_cleaned:
            return 0
        segments = self.segments
        retention = Retention(self.config, self.high_watermark, self.log_end_offset, now_ms)
        count = self._delete(retention.by_time(segments), "their age", now_ms)
        count += self._delete(retention.by_size(segments), "the log's size", now_ms)
        count += self._delete(retention.by_start(segments, self.log_start_offset), "the log's start", now_ms)
        return count

    def _delete(self, segments: list[LogSegment], reason: str, now_ms: int) -> int:
        if not segments:
            return 0
        bases = ", ".join(str(segment.base_offset) for segment in segments)
        logger.info("%s: deleting segments %s because of %s", self.topic_partition, bases, reason)
        if len(segments) == len(self.segments):
            self.roll(now_ms)
        self.segments.take_out(segments, delete_at_ms=now_ms + self.config.file_delete_delay_ms)
        self.maybe_increment_log_start_offset(self.segments.first.base_offset)
        return len(segments)

    # -- snapshots, closing -----------------------------------------------------------------------------------

    @property
    def oldest_snapshot_needed(self) -> int:
        """The offset below which no producer snapshot is needed, once the recovery point has been written down.

        Neither a recovery nor a truncation into the last two segments reads an older one.
        """
        segments = self.segments
        before_active = segments.lower(segments.active.base_offset) or segments.active
        flushed = segments.lower(self.recovery_point)
        recovered_from = self.recovery_point if flushed is None else flushed.base_offset
        return min(recovered_from, before_active.base_offset)

    def delete_snapshots_before(self, offset: int) -> None:
        """Remove producer snapshots; may run in another thread. Raises OSError."""
        try:
            self.producer_state.delete_snapshots_before(offset)
        except FileNotFoundError:
            if not self.is_refusing:  # else the directory was renamed, for deletion
                raise

    def close(self) -> None:
        """Leave all files as a clean stop does: trimmed, on disk, with a snapshot. Raises OSError."""
        self.producer_state.update_map_end_offset(self.log_end_offset)
        self.producer_state.take_snapshot()
        self.segments.close()
        if self.recovery_point < self.log_end_offset:
            with map_flush_errors(self.directory):
                for segment in self.segments.between(self.recovery_point, self.log_end_offset):
                    segment.flush()
                sync_directory(self.directory)
            self.recovery_point = self.log_end_offset
        self.segments.remove_deleted()
        self.refuse(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} is closed")

    def rename_and_refuse(self, directory: Path) -> None:
        """Rename the directory, for deletion: from now on the partition is unknown. Raises OSError."""
        refusal = self._refusal
        # First: a thread that works on the files must find out why they are gone.
        self.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic_partition} was deleted")
        try:
            os.rename(self.directory, directory)
        except OSError:
            self._refusal = refusal
            self._derive_append_rules()
            raise
        self.segments.update_directory(directory)
        self.producer_state.update_directory(directory)
