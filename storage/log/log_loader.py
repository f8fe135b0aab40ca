"""Opens the directory of a log, after a clean stop or a crash.

After a clean stop the files are trusted once their indexes have been checked. After a crash every segment that may
hold bytes that were never fsynced is read from its first byte (`LogSegment.recover`), and the first invalid batch
ends the log. A later segment is renamed `.quarantined` then, never deleted: it may hold the last copy of its records.
An interrupted compaction is completed (`.swap`) or discarded (`.cleaned`), as kafka 2.0.1 Log.loadSegments does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from minibroker.protocol.batches import scan_batches
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import counted
from minibroker.storage.config import LogConfig
from minibroker.storage.files import disk
from minibroker.storage.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    QUARANTINED_SUFFIX,
    SWAP_SUFFIX,
    SegmentFileName,
    parse_segment_file,
    segment_file,
)
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.leader_epochs import LeaderEpochCache
from minibroker.storage.log.log import Log
from minibroker.storage.log.producer_recovery import rebuild_producer_state
from minibroker.storage.producers.producer_state import ProducerStateManager
from minibroker.storage.segment.log_segment import LogSegment, SegmentOffsetOverflowError
from minibroker.storage.segment.log_segments import LogSegments

logger = logging.getLogger(__name__)

DEFAULT_PRODUCER_EXPIRATION_MS = 7 * 24 * 60 * 60 * 1000

BEYOND_ALL_OFFSETS = 2**63 - 1


def load_log(
    topic_partition: TopicPartition,
    directory: Path,
    config: LogConfig,
    *,
    now_ms: int,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    is_after_clean_stop: bool = False,
    producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
) -> Log:
    """Open the log; in an empty directory, create it. Raises OSError."""
    loader = LogLoader(
        topic_partition,
        directory,
        config,
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        producer_expiration_ms=producer_expiration_ms,
    )
    return loader.load(recovery_point=recovery_point, is_after_clean_stop=is_after_clean_stop)


class LogLoader:
    """One opening of one log."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        config: LogConfig,
        *,
        now_ms: int,
        log_start_offset: int,
        producer_expiration_ms: int,
    ) -> None:
        self._topic_partition = topic_partition
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._log_start_offset = log_start_offset
        self._producer_expiration_ms = producer_expiration_ms
        self._segments = LogSegments(directory)
        self._has_lost_epochs = False
        self._recovered: ProducerStateManager | None = None  # as of the end of the segment that was recovered last
        self._rebuilt_from = BEYOND_ALL_OFFSETS  # the first segment with new indexes, which are not on the disk yet
        self._leader_epochs = self._open_leader_epochs()

    def load(self, *, recovery_point: int, is_after_clean_stop: bool) -> Log:
        """Return the log. Raises OSError."""
        recover_from: int | None = recovery_point
        if self._has_lost_epochs:
            recover_from = 0
        elif is_after_clean_stop:
            recover_from = None
        files = self._segment_files()
        swapped = self._remove_temporary_files(files)
        self._open_segments(self._segment_files() if swapped else files)
        self._check_indexes(recover_from)
        self._complete_swaps(swapped)
        if recover_from is not None:
            self._recover_from(recover_from)
        end_offset = self._find_end_offset()
        start_offset = max(self._log_start_offset, self._segments.first.base_offset)
        if not is_after_clean_stop or start_offset < end_offset:  # an empty log keeps its epoch: two fsyncs less
            self._leader_epochs.truncate_from_end(end_offset)
        self._leader_epochs.truncate_from_start(start_offset)
        producer_state = self._recovered
        if producer_state is None or producer_state.map_end_offset != end_offset:
            producer_state = self._new_producer_state()
        self._rebuild(producer_state, end_offset, is_after_clean_stop=is_after_clean_stop)
        for segment in self._segments:
            segment.release_maps()
        return Log(
            self._topic_partition,
            self._config,
            self._segments,
            log_start_offset=start_offset,
            log_end_offset=end_offset,
            # Recovered records are right, but may not be on the disk yet.
            recovery_point=min(end_offset if is_after_clean_stop else recovery_point, end_offset, self._rebuilt_from),
            is_on_disk=(is_after_clean_stop or not files) and self._rebuilt_from == BEYOND_ALL_OFFSETS,
            leader_epochs=self._leader_epochs,
            producer_state=producer_state,
            now_ms=self._now_ms,
        )

    # -- files that belong to no segment ----------------------------------------------------------------------------

    def _open_leader_epochs(self) -> LeaderEpochCache:
        path = self._directory / LEADER_EPOCH_CHECKPOINT
        try:
            return LeaderEpochCache(path)
        except CorruptFileError as error:
            logger.warning("rebuilding the leader epochs from all batches: %s", error)
            disk.remove(path)
            self._has_lost_epochs = True
            return LeaderEpochCache(path)

    def _segment_files(self) -> list[SegmentFileName]:
        """Return the segment files in the directory, in the order of their offsets."""
        names = map(parse_segment_file, disk.listdir(self._directory))
        return sorted(name for name in names if name is not None)

    def _path_of(self, name: SegmentFileName) -> Path:
        return segment_file(self._directory, *name)

    def _remove_temporary_files(self, files: Sequence[SegmentFileName]) -> list[int]:
        """Remove unfinished files; return the base offsets of finished `.swap` segments.

        Segments are renamed from `.cleaned` to `.swap` from the last to the first: a `.swap` after a `.cleaned`
        belongs to an unfinished replacement, and all its originals are still there.
        """
        cleaned = [name.base_offset for name in files if name.extra == CLEANED_SUFFIX]
        swapped: list[int] = []
        for name in files:
            if name.extra in (DELETED_SUFFIX, CLEANED_SUFFIX):
                disk.remove(self._path_of(name))
            elif name.extra == SWAP_SUFFIX:
                is_complete = not cleaned or name.base_offset < min(cleaned)
                if name.suffix != LOG_SUFFIX or not is_complete:
                    disk.remove(self._path_of(name))
                else:
                    swapped.append(name.base_offset)
                for suffix in INDEX_SUFFIXES:
                    disk.unlink(segment_file(self._directory, name.base_offset, suffix))
        return swapped

    # -- segments -----------------------------------------------------------------------------------------------

    def _open_segments(self, files: Sequence[SegmentFileName]) -> None:
        bases = {name.base_offset for name in files if name.suffix == LOG_SUFFIX and not name.extra}
        for name in files:
            if name.suffix in INDEX_SUFFIXES and not name.extra and name.base_offset not in bases:
                path = self._path_of(name)
                logger.warning("%s: deleting an index without its log", path)
                disk.remove(path)
        for base_offset in sorted(bases):
            self._segments.add(self._open_segment(base_offset))

    def _check_indexes(self, recover_from: int | None) -> None:
        """Rebuild the corrupt indexes that recovery will not rebuild anyway."""
        due = () if recover_from is None else self._segments.between(recover_from, BEYOND_ALL_OFFSETS)
        for segment in self._segments:
            if segment in due:
                return
            try:
                segment.sanity_check()
                _check_entries(segment)
            except (CorruptFileError, KafkaError) as error:
                logger.warning("rebuilding the indexes of %s: %s", segment.path, error)
                self._recover(segment, None)

    def _open_segment(self, base_offset: int, extra: str = "") -> LogSegment:
        return LogSegment.open(self._directory, base_offset, self._config, now_ms=self._now_ms, extra=extra)

    def _complete_swaps(self, base_offsets: list[int]) -> None:
        """Replace segments by the finished ones that compaction made of them."""
        for base_offset in base_offsets:
            new = self._open_segment(base_offset, SWAP_SUFFIX)
            logger.info("%s: completing an interrupted replacement", new.path)
            self._recover(new, None)
            # If compaction left nothing, the new segment is empty, and replaces the old ones nevertheless.
            for old in self._segments.between(base_offset, max(new.next_offset(), base_offset + 1)):
                if old.base_offset >= base_offset or old.next_offset() > base_offset:
                    self._segments.remove(old)
                    old.delete_if_exists()
            new.change_suffixes(SWAP_SUFFIX, "")
            self._segments.add(new)

    def _recover(self, segment: LogSegment, leader_epochs: LeaderEpochCache | None) -> int:
        """Recover the segment; return how many bytes of an invalid tail were cut off."""
        producer_state = self._new_producer_state()
        self._rebuild(producer_state, segment.base_offset, is_after_clean_stop=False)
        try:
            self._rebuilt_from = min(self._rebuilt_from, segment.base_offset)
            lost_bytes = segment.recover(producer_state, leader_epochs)
            self._recovered = producer_state
        except SegmentOffsetOverflowError as error:
            logger.error("%s is damaged, or was written by a Kafka before 1.1: %s", segment.path, error)
            lost_bytes = self._cut_overflow(segment)
            return lost_bytes + self._recover(segment, leader_epochs)
        # Kafka 2.0.1 takes a snapshot here. It would have only the last batch of each producer: a retry of the one
        # before, which is likely after a crash, would be refused or written twice.
        return lost_bytes

    def _cut_overflow(self, segment: LogSegment) -> int:
        """Copy the segment, and cut off the batches too far from its base offset; return how many bytes."""
        disk.copy_file(segment.path, segment.path.with_name(segment.path.name + QUARANTINED_SUFFIX))
        buffer, _ = segment.records.scan_buffer(0, segment.size_bytes)
        position = next(
            batch.position
            for batch in scan_batches(buffer, 0, segment.size_bytes)
            if not segment.offset_index.can_append_offset(batch.last_offset)
        )
        del buffer
        return segment.records.truncate(position)

    def _recover_from(self, recovery_point: int) -> None:
        """Recover the segments that may hold bytes never fsynced; the first invalid batch ends the log."""
        unflushed = list(self._segments.between(recovery_point, BEYOND_ALL_OFFSETS))
        while unflushed:
            segment = unflushed.pop(0)
            lost_bytes = self._recover(segment, self._leader_epochs)
            if lost_bytes > 0:
                logger.warning(
                    "%s: cut off %s after the last valid batch; the log ends at offset %d",
                    segment.path,
                    counted(lost_bytes, "byte"),
                    segment.next_offset(),
                )
                for later in unflushed:
                    self._quarantine(later)
                return

    def _quarantine(self, segment: LogSegment) -> None:
        logger.error(
            "%s (%d bytes) follows an invalid batch and cannot be served: renaming it %s",
            segment.path,
            segment.size_bytes,
            QUARANTINED_SUFFIX,
        )
        self._segments.remove(segment)
        segment.release_maps()
        segment.change_suffixes("", QUARANTINED_SUFFIX)

    def _find_end_offset(self) -> int:
        if len(self._segments) == 0:
            return self._begin_at(self._log_start_offset)
        active = self._segments.active
        try:
            end_offset = active.next_offset()
        except KafkaError as error:
            logger.warning("recovering %s, which has changed since the clean stop: %s", active.path, error)
            self._recover(active, self._leader_epochs)
            end_offset = active.next_offset()
        if end_offset < self._log_start_offset:
            logger.warning(
                "%s ends at offset %d, before its start offset %d: starting anew at the latter",
                self._directory,
                end_offset,
                self._log_start_offset,
            )
            for segment in self._segments:
                self._segments.remove(segment)
                segment.delete_if_exists()
            return self._begin_at(self._log_start_offset)
        return end_offset

    def _begin_at(self, base_offset: int) -> int:
        self._segments.create(base_offset, self._config, now_ms=self._now_ms)
        return base_offset

    # -- producers ----------------------------------------------------------------------------------------------

    def _new_producer_state(self) -> ProducerStateManager:
        return ProducerStateManager(self._topic_partition, self._directory, expiration_ms=self._producer_expiration_ms)

    def _rebuild(self, producer_state: ProducerStateManager, end_offset: int, *, is_after_clean_stop: bool) -> None:
        rebuild_producer_state(
            producer_state,
            self._segments,
            log_start_offset=self._log_start_offset,
            end_offset=end_offset,
            magic=self._config.magic,
            is_after_clean_stop=is_after_clean_stop,
            now_ms=self._now_ms,
        )


def _check_entries(segment: LogSegment) -> None:
    """Raise CorruptFileError if the indexes do not match the records, KafkaError if the records are damaged.

    Kafka checks only the index files themselves. The last offset entry must lead to its batch, and no batch from there
    on may be younger than the last time entry: a segment that was closed has an entry for its youngest record.
    """
    offset_index, time_index, end = segment.offset_index, segment.time_index, segment.size_bytes
    start = 0
    if offset_index.entries > 0:
        start = offset_index.lookup(offset_index.last_offset).position
        found = segment.translate_offset(offset_index.last_offset)
        if found is None or found.base_offset > offset_index.last_offset:
            raise CorruptFileError(f"{offset_index.path}: its entry does not lead to offset {offset_index.last_offset}")
    youngest_ms, last_offset = time_index.last_entry
    if time_index.entries > 0 and segment.translate_offset(last_offset) is None:
        raise CorruptFileError(f"{time_index.path}: no record has offset {last_offset}")
    buffer, origin = segment.records.scan_buffer(start, end)
    for batch in scan_batches(buffer, start - origin, end - origin):
        if batch.max_timestamp_ms > youngest_ms:
            raise CorruptFileError(f"{time_index.path}: it has no entry for a record of {batch.max_timestamp_ms} ms")
