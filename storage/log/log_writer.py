"""What changes a log at its end: append, roll, truncate. Nothing is left half done.

The usual append, one batch of magic 2 that is stored as it came, is told by its header and costs nothing per
record; all others go the long way. Everything that may refuse comes before the first byte is written: the
checks of `log_validator`, a producer's sequence and epoch (`producer_append`), the sizes. Then, in this order:
a new segment if one is due, the leader epoch, the batches in one write, and what they mean for the producers.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import NO_SEQUENCE, NO_TIMESTAMP
from minibroker.protocol.record_batch import (
    BATCH_HEADER_FORMAT,
    NO_PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
)
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.log.log_validator import (
    NO_OFFSET,
    UNBOUNDED_MS,
    AssignedRecords,
    Buffer,
    analyze_records,
    assign_offsets,
    is_plain_batch,
)
from minibroker.storage.log.producer_recovery import rebuild_producer_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from minibroker.protocol.primitives import TopicPartition
    from minibroker.storage.index.leader_epochs import LeaderEpochCache
    from minibroker.storage.index.transaction_index import CompletedTxn
    from minibroker.storage.log.local_log import LocalLog
    from minibroker.storage.producers.producer_append import BatchMetadata, ProducerAppendInfo
    from minibroker.storage.producers.producer_state import ProducerStateManager

_SEQUENCE_MASK = 0x7FFFFFFF  # after 2^31 - 1 comes 0

_unpack_header = struct.Struct(BATCH_HEADER_FORMAT).unpack_from
_stamp_prefix = struct.Struct(">qii").pack_into  # base offset, batch length, leader epoch


class LogAppendInfo(NamedTuple):
    """What became of an append; offsets are -1 where nothing was appended."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int  # -1 with CreateTime
    log_start_offset: int
    shallow_count: int  # batches; messages of the old formats
    valid_bytes: int
    is_duplicate: bool  # the offsets are those of the first time
    needs_flush: bool  # flush.messages wants an fsync before the producer hears of it


class LogWriter:
    """The writing side of one log; shares its files, epochs and producers with `Log`."""

    __slots__ = (
        "_flush_messages",
        "_leader_epochs",
        "_local",
        "_max_batch_bytes",
        "_producer_state",
        "_takes_clients_batches_as_sent",
        "_takes_own_batches_as_sent",
        "_topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        local: LocalLog,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
    ) -> None:
        self._topic_partition = topic_partition
        self._local = local
        self._leader_epochs = leader_epochs
        self._producer_state = producer_state
        self.update_config()

    def update_config(self) -> None:
        """Look again at the log's settings, and at whether it still takes anything."""
        config = self._local.config
        is_plain = (
            config.magic == 2
            and config.compression_type == "producer"
            and not config.is_log_append_time
            and self._local.refusal is None
        )
        is_unbounded = config.message_timestamp_difference_max_ms >= UNBOUNDED_MS
        self._takes_own_batches_as_sent = is_plain
        self._takes_clients_batches_as_sent = is_plain and not config.is_compacted and is_unbounded
        self._max_batch_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._flush_messages = config.flush_messages

    # -- appending --------------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, is_from_client: bool = True
    ) -> LogAppendInfo:
        """Append batches and give them offsets, in place: the buffer must be writable.

        Raises KafkaError (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, and what `log_validator` and
        `producer_append` raise) or OSError; the log is as before then.
        """
        if (
            self._takes_clients_batches_as_sent if is_from_client else self._takes_own_batches_as_sent
        ) and RECORD_BATCH_OVERHEAD < len(records) <= self._max_batch_bytes:
            header = _unpack_header(records)
            if is_plain_batch(header, records):
                return self._append_plain_batch(records, header, leader_epoch, now_ms, is_from_client)
        local = self._local
        local.check_usable()
        config = local.config
        analysis = analyze_records(records, max_message_bytes=config.max_message_bytes, is_from_client=is_from_client)
        if not analysis.batches:
            return self._nothing_appended()
        assigned = assign_offsets(
            records,
            analysis,
            config=config,
            first_offset=local.end_offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
            is_from_client=is_from_client,
        )
        append_time_ms = now_ms if config.is_log_append_time else NO_TIMESTAMP
        return self._append_batches(assigned, append_time_ms, now_ms, is_from_client)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> LogAppendInfo:
        """Append batches as the leader has them, offsets and epochs included.

        Raises KafkaError, CORRUPT_MESSAGE also for offsets that do not rise from the log's end on; or OSError.
        """
        local = self._local
        local.check_usable()
        analysis = analyze_records(records, max_message_bytes=local.config.max_message_bytes, is_from_client=False)
        if not analysis.batches:
            return self._nothing_appended()
        if not analysis.are_offsets_rising or analysis.first_known_offset < local.end_offset:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{self._topic_partition}: offsets {analysis.first_known_offset} to {analysis.last_offset} "
                f"cannot follow {local.end_offset - 1}",
            )
        return self._append_batches(analysis.as_they_are(records), NO_TIMESTAMP, now_ms, False)

    def _append_plain_batch(
        self, records: Buffer, header: Sequence[int], leader_epoch: int, now_ms: int, is_from_client: bool
    ) -> LogAppendInfo:
        _, length, _, _, _, attributes, delta, _, max_timestamp_ms, producer_id, epoch, sequence, _ = header
        local = self._local
        first_offset = local.end_offset
        last_offset = first_offset + delta
        producer = None
        if producer_id != NO_PRODUCER_ID:
            last_sequence = NO_SEQUENCE if sequence < 0 else (sequence + delta) & _SEQUENCE_MASK
            if is_from_client:
                duplicate = self._find_duplicate(producer_id, epoch, sequence, last_sequence)
                if duplicate is not None:
                    return self._duplicate_info(duplicate, len(records))
            producer = self._producer_state.prepare_update(producer_id, is_from_client=is_from_client)
            is_transactional = attributes & TRANSACTIONAL_FLAG != 0
            producer.append_data(
                epoch, sequence, last_sequence, max_timestamp_ms, first_offset, last_offset, is_transactional
            )
        size = len(records)
        if local.segments.active.should_roll(size, max_timestamp_ms, last_offset, now_ms=now_ms):
            self.roll(now_ms)
        if leader_epoch != self._leader_epochs.latest_epoch:
            self._leader_epochs.assign(leader_epoch, first_offset)
        _stamp_prefix(records, 0, first_offset, length, leader_epoch)
        if producer is None:
            local.append(records, last_offset, max_timestamp_ms, last_offset)
        else:
            start = local.end_offset_metadata
            local.append(records, last_offset, max_timestamp_ms, last_offset)
            producer.note_first_offset(start)
            self._producer_state.update(producer)
        return LogAppendInfo(
            first_offset,
            last_offset,
            max_timestamp_ms,
            NO_TIMESTAMP,
            local.start_offset,
            1,
            size,
            False,
            last_offset - local.recovery_point >= self._flush_messages - 1,
        )

    def _append_batches(
        self, assigned: AssignedRecords, append_time_ms: int, now_ms: int, is_from_client: bool
    ) -> LogAppendInfo:
        local = self._local
        size = len(assigned.buffer)
        if size > local.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size} bytes in append to partition {self._topic_partition}, which "
                f"exceeds the maximum configured segment size of {local.config.segment_bytes}.",
            )
        producers: dict[int, ProducerAppendInfo] = {}
        completed: list[CompletedTxn] = []
        for batch in assigned.batches:
            producer_id = batch.producer_id
            if producer_id == NO_PRODUCER_ID:
                continue
            if is_from_client:
                duplicate = self._find_duplicate(
                    producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence
                )
                if duplicate is not None:
                    return self._duplicate_info(duplicate, size)
            if producer_id not in producers:
                producers[producer_id] = self._producer_state.prepare_update(producer_id, is_from_client=is_from_client)
            ended = producers[producer_id].append(batch, assigned.buffer)
            if ended is not None:
                completed.append(ended)
        self._write(assigned, producers.values(), completed, now_ms)
        return LogAppendInfo(
            assigned.first_offset,
            assigned.last_offset,
            assigned.max_timestamp_ms,
            append_time_ms,
            local.start_offset,
            len(assigned.batches),
            size,
            False,
            local.end_offset - local.recovery_point >= self._flush_messages,
        )

    def _write(
        self,
        assigned: AssignedRecords,
        producers: Iterable[ProducerAppendInfo],
        completed: Iterable[CompletedTxn],
        now_ms: int,
    ) -> None:
        local = self._local
        size, last_offset = len(assigned.buffer), assigned.last_offset
        if local.segments.active.should_roll(size, assigned.max_timestamp_ms, last_offset, now_ms=now_ms):
            self.roll(now_ms, assigned.lowest_offset)
        for batch in assigned.batches:
            if batch.magic >= 2 and batch.partition_leader_epoch > self._leader_epochs.latest_epoch:
                self._leader_epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        segment, end_offset = local.segments.active, local.end_offset
        start = LogOffsetMetadata(assigned.lowest_offset, segment.base_offset, segment.size_bytes)
        local.append(assigned.buffer, last_offset, assigned.max_timestamp_ms, assigned.offset_of_max_timestamp)
        try:
            for producer in producers:
                producer.note_first_offset(start)
                self._producer_state.update(producer)
            for txn in completed:
                segment.update_txn_index(txn, self._producer_state.complete_txn(txn))
        except OSError:
            # Readers would see what was aborted: without its index entry the marker must not stay.
            self.truncate_to(end_offset, now_ms=now_ms)
            raise

    def _find_duplicate(
        self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int
    ) -> BatchMetadata | None:
        known = self._producer_state.last_entry(producer_id)
        return None if known is None else known.find_duplicate(epoch, first_sequence, last_sequence)

    def _duplicate_info(self, first_time: BatchMetadata, size_bytes: int) -> LogAppendInfo:
        local = self._local
        return LogAppendInfo(
            first_offset=first_time.first_offset,
            last_offset=first_time.last_offset,
            max_timestamp_ms=first_time.timestamp_ms,
            log_append_time_ms=first_time.timestamp_ms,  # as kafka 2.0.1, with CreateTime too
            log_start_offset=local.start_offset,
            shallow_count=1,
            valid_bytes=size_bytes,
            is_duplicate=True,
            needs_flush=local.end_offset - local.recovery_point >= self._flush_messages,
        )

    def _nothing_appended(self) -> LogAppendInfo:
        return LogAppendInfo(
            first_offset=NO_OFFSET,
            last_offset=NO_OFFSET,
            max_timestamp_ms=NO_TIMESTAMP,
            log_append_time_ms=NO_TIMESTAMP,
            log_start_offset=self._local.start_offset,
            shallow_count=0,
            valid_bytes=0,
            is_duplicate=False,
            needs_flush=False,
        )

    # -- rolling and truncating -------------------------------------------------------------------------------

    def roll(self, now_ms: int, new_offset: int = NO_OFFSET) -> None:
        """Begin a new segment, at the log's end or beyond. Raises OSError; the old one is still active then."""
        local = self._local
        new_offset = max(new_offset, local.end_offset)
        if new_offset == local.segments.active.base_offset:
            return
        # With a snapshot at its start, recovery of the new segment needs none of the old ones.
        self._producer_state.update_map_end_offset(new_offset)
        self._producer_state.take_snapshot()
        local.roll(new_offset, now_ms=now_ms)

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Cut everything from the offset on, and go back to what was known of the producers then."""
        local = self._local
        if offset < local.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        self._producer_state.update_map_end_offset(local.end_offset)
        local.truncate_to(offset, now_ms=now_ms)
        local.start_offset = min(local.start_offset, offset)
        self._leader_epochs.truncate_from_end(offset)
        rebuild_producer_state(
            self._producer_state,
            local.segments,
            log_start_offset=local.start_offset,
            end_offset=offset,
            magic=local.config.magic,
            is_after_clean_stop=False,
            now_ms=now_ms,
        )

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Give up everything and begin anew at the offset."""
        local = self._local
        local.truncate_fully_and_start_at(offset, now_ms=now_ms)
        local.start_offset = offset
        self._leader_epochs.clear()
        self._producer_state.truncate()
        self._producer_state.update_map_end_offset(offset)
