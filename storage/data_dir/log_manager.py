"""Opens, maintains and closes all logs of a data directory.

    <log dir>/.lock                            one broker at a time
    <log dir>/meta.properties                  the owner of the directory
    <log dir>/*-checkpoint                     see `log_checkpoints`
    <log dir>/.kafka_cleanshutdown             only between a clean stop and the next start
    <log dir>/<topic>-<partition>/             a log; `<...>.<uuid>-delete/`: a deleted one

A failing disk takes the directory offline until the next start; a full one only refuses appends while it is full.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from minibroker.protocol.batches import NEWEST_MAGIC
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import counted, reason_of
from minibroker.storage import chance
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.directory_lock import DirectoryLock
from minibroker.storage.data_dir.log_checkpoints import LogCheckpoints, prepare_cleaner_offsets, read_offsets
from minibroker.storage.files import disk
from minibroker.storage.files.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from minibroker.storage.files.file_names import (
    CLEAN_SHUTDOWN_MARKER,
    DELETE_DIRECTORY_SUFFIX,
    META_PROPERTIES,
    STRAY_DIRECTORY_SUFFIX,
    deleted_directory_name,
    is_deleted_directory,
    parse_partition_directory,
    partition_directory_name,
)
from minibroker.storage.files.storage_errors import (
    CorruptFileError,
    LogDirectoryError,
    is_passing,
    map_directory_errors,
    map_half_done_errors,
)
from minibroker.storage.log.flush_times import FlushTimes
from minibroker.storage.log.log import Log
from minibroker.storage.log.log_loader import DEFAULT_PRODUCER_EXPIRATION_MS, load_log
from minibroker.storage.segment.log_segment import LogSegment

logger = logging.getLogger(__name__)

CLOSING_THREADS = 8  # they wait for the disk, which takes the fsyncs of several logs together
ROOM_PROBE, ROOM_PROBE_BYTES = ".room.tmp", 4096
_MOST_DELETE_CHECK_INTERVAL_MS = 30_000
_LEAST_DELETE_CHECK_INTERVAL_MS = 1_000


class LogManager:
    """The logs of one directory. Call `lock` and `load` first, `close` last.

    It belongs to one thread; `flush_dirty_logs`, and the functions that methods return, may run in another. In either
    `on_offline` is called, once the directory has failed.
    """

    def __init__(
        self,
        log_dir: Path,
        *,
        default_config: LogConfig,
        broker_id: int,
        topic_overrides: Mapping[str, Mapping[str, str]] | None = None,
        producer_expiration_ms: int = DEFAULT_PRODUCER_EXPIRATION_MS,
        on_offline: Callable[[], None] = lambda: None,
    ) -> None:
        self.log_dir = log_dir
        self.default_config = default_config
        self.is_offline = False
        self.has_had_old_formats = False  # whether a log is, or was, of a format before magic 2
        self.flush_times = FlushTimes()
        self._broker_id = broker_id
        self._overrides = {topic: dict(props) for topic, props in (topic_overrides or {}).items()}
        self._producer_expiration_ms = producer_expiration_ms
        self._logs: dict[TopicPartition, Log] = {}
        self._logs_of_topics: dict[str, dict[TopicPartition, Log]] = {}
        self._on_offline = on_offline
        self._deleted: list[tuple[Path, int | None]] = []  # directories, with the time to remove them
        self._undeleted: set[TopicPartition] = set()  # whose directory could not be renamed yet
        self._lock = DirectoryLock(log_dir)
        # Deleted partitions that a checkpoint may still have.
        self._forgotten: set[TopicPartition] = set()
        self._checkpoints = LogCheckpoints.of(log_dir)

    # -- starting -----------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Create the directory if it is missing, and lock it. Raises LogDirectoryError."""
        self._lock.acquire()

    def partitions_on_disk(self) -> list[TopicPartition]:
        """Return the partitions that have a directory, without opening them. Raises LogDirectoryError."""
        with map_directory_errors("read", self.log_dir):
            names = disk.directories_in(self.log_dir)
        found = (parse_partition_directory(name) for name in names)
        return sorted(topic_partition for topic_partition in found if topic_partition is not None)

    def load(
        self, now_ms: int, *, left_over: Iterable[TopicPartition] = (), strays: Iterable[TopicPartition] = ()
    ) -> None:
        """Open all logs, and recover them after a crash. Raises LogDirectoryError.

        Logs that an interrupted deletion has `left_over` are deleted; `strays` are set aside, as kafka 3.7 LogManager.
        """
        self.lock()
        try:
            with map_directory_errors("load", self.log_dir):
                self._check_owner(now_ms)
                for topic_partition in left_over:
                    self._rename(topic_partition, self._deleted_path(topic_partition))
                for topic_partition in strays:
                    path = self._deleted_path(topic_partition, STRAY_DIRECTORY_SUFFIX)
                    self._rename(topic_partition, path)
                    logger.warning(
                        "%s: the cluster does not know this partition; it is in %s now", topic_partition, path.name
                    )
                self._load_logs(now_ms)
        except LogDirectoryError:
            self._lock.release()
            raise

    def _rename(self, topic_partition: TopicPartition, path: Path) -> None:
        disk.rename(self.log_dir / partition_directory_name(topic_partition), path)

    def _check_owner(self, now_ms: int) -> None:
        path = self.log_dir / META_PROPERTIES
        try:
            meta = read_meta_properties(path)
        except CorruptFileError as error:
            raise LogDirectoryError(str(error)) from error
        if meta is None:
            write_meta_properties(path, MetaProperties(self._broker_id), now_ms=now_ms)
        elif meta.broker_id != self._broker_id:
            raise LogDirectoryError(
                f"Configured broker.id {self._broker_id} doesn't match stored broker.id {meta.broker_id} in "
                f"{path}. If you moved your data, make sure your configured broker.id matches."
            )

    def _load_logs(self, now_ms: int) -> None:
        marker = self.log_dir / CLEAN_SHUTDOWN_MARKER
        is_after_clean_stop = disk.exists(marker)
        recovery_points, log_start_offsets, high_watermarks, cleaner_offsets = map(read_offsets, self._checkpoints)
        for topic_partition in self.partitions_on_disk():
            log = load_log(
                topic_partition,
                self.log_dir / partition_directory_name(topic_partition),
                self._config_of(topic_partition.topic),
                now_ms=now_ms,
                log_start_offset=log_start_offsets.get(topic_partition, 0),
                recovery_point=recovery_points.get(topic_partition, 0),
                is_after_clean_stop=is_after_clean_stop,
                producer_expiration_ms=self._producer_expiration_ms,
            )
            log.update_high_watermark(high_watermarks.get(topic_partition, 0))
            if topic_partition in cleaner_offsets:
                log.note_cleaned(min(cleaner_offsets[topic_partition], log.log_end_offset))
            self._add(log)
        known = recovery_points.keys() | log_start_offsets.keys() | cleaner_offsets.keys()
        self._forgotten = known - self._logs.keys()
        deleted = filter(is_deleted_directory, disk.directories_in(self.log_dir))
        self._deleted += [(self.log_dir / name, None) for name in deleted]
        if is_after_clean_stop:
            disk.unlink(marker)
            # It must not come back with the power: from now on the logs are not as a clean stop leaves them.
            disk.sync_directory(self.log_dir)
        if self._logs:  # a new directory was never stopped
            how = "a clean" if is_after_clean_stop else "an unclean"
            logger.info("%s: opened %s after %s stop", self.log_dir, counted(len(self._logs), "log"), how)

    # -- logs ---------------------------------------------------------------------------------------------------

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        return self._logs

    def get_or_create_log(self, topic_partition: TopicPartition, *, now_ms: int) -> Log:
        """Return the log; create it if there is none. Raises OSError, and KafkaError if the directory is offline."""
        if topic_partition in self._undeleted:
            self.delete_log(topic_partition)
        log = self._logs.get(topic_partition)
        if log is not None:
            return log
        self._check_online()
        if topic_partition in self._forgotten:
            # After a crash the new log must not be opened with the offsets of the deleted one.
            self.checkpoint_recovery_points()()
            self.checkpoint_log_start_offsets()()
            self.checkpoint_cleaner_offsets()()
            self._forgotten.clear()
        directory = self.log_dir / partition_directory_name(topic_partition)
        with suppress(FileExistsError):  # left over by an attempt that failed
            disk.mkdir(directory)
        try:
            log = load_log(
                topic_partition,
                directory,
                self._config_of(topic_partition.topic),
                now_ms=now_ms,
                producer_expiration_ms=self._producer_expiration_ms,
            )
        except OSError:
            with suppress(OSError):  # the first error is the one to tell
                disk.remove_tree(directory)
            raise
        self._add(log)
        return log

    def check_room(self) -> None:
        """Write a file, and remove it. Raises OSError, also on a disk that is full but for the directories of logs."""
        probe = self.log_dir / ROOM_PROBE
        try:
            disk.write_file(probe, bytes(ROOM_PROBE_BYTES), is_synced=True)
        finally:
            disk.unlink(probe)

    def _add(self, log: Log) -> None:
        log.time_flushes(self.flush_times)
        self._logs[log.topic_partition] = log
        self._logs_of_topics.setdefault(log.topic_partition.topic, {})[log.topic_partition] = log

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Rename the log's directory; `take_due_deletions` returns it when it is due.

        Raises OSError: then the log is not the partition's any more, and is deleted later.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            return
        directory = self._deleted_path(topic_partition)
        self._undeleted.add(topic_partition)
        log.rename_and_refuse(directory)
        self._undeleted.remove(topic_partition)
        del self._logs[topic_partition]
        of_topic = self._logs_of_topics[topic_partition.topic]
        del of_topic[topic_partition]
        if not of_topic:
            del self._logs_of_topics[topic_partition.topic]
        self._forgotten.add(topic_partition)
        self._deleted.append((directory, None))

    def truncate_log(self, log: Log, offset: int, *, now_ms: int) -> None:
        """Cut everything from the offset on, as `Log.truncate_to`. Raises HalfDoneError."""
        with self._cutting(log):
            log.truncate_to(offset, now_ms=now_ms)

    def begin_log_anew(self, log: Log, offset: int, *, now_ms: int) -> None:
        """Remove all records, and begin at the offset, as `Log.truncate_fully_and_start_at`. Raises HalfDoneError."""
        with self._cutting(log):
            log.truncate_fully_and_start_at(offset, now_ms=now_ms)

    @contextmanager
    def _cutting(self, log: Log) -> Iterator[None]:
        """Write the recovery points at the end, if that of the log was lowered: after a crash no start may count what
        is appended from now on as flushed (as kafka 2.0.1 LogManager.truncateTo).

        Raises HalfDoneError.
        """
        before = log.recovery_point
        with map_half_done_errors(f"cutting the log of {log.topic_partition}"):
            yield
            if log.recovery_point < before:
                self.checkpoint_recovery_points()()

    def _deleted_path(self, topic_partition: TopicPartition, suffix: str = DELETE_DIRECTORY_SUFFIX) -> Path:
        return self.log_dir / deleted_directory_name(topic_partition, chance.new_uuid().hex, suffix)

    def set_topic_overrides(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Apply a topic's settings to its present and future logs.

        Raises KafkaError(INVALID_CONFIG); nothing has changed then.
        """
        config = LogConfig.from_props(overrides, self.default_config)
        self._overrides[topic] = dict(overrides)
        for log in self._logs_of_topics.get(topic, {}).values():
            log.update_config(config)
            self._note_format(config)

    def set_default_config(self, config: LogConfig) -> None:
        """Apply the broker's changed settings to all logs, present and future; their topics' settings override them."""
        self.default_config = config
        for topic_partition, log in self._logs.items():
            log.update_config(self._config_of(topic_partition.topic))

    def _config_of(self, topic: str) -> LogConfig:
        config = LogConfig.from_props(self._overrides.get(topic, {}), self.default_config)
        self._note_format(config)
        return config

    def _note_format(self, config: LogConfig) -> None:
        if config.magic < NEWEST_MAGIC:
            self.has_had_old_formats = True

    # -- maintaining -------------------------------------------------------------------------------------------------

    def cleanup_logs(self, now_ms: int) -> int:
        """Take out the segments that retention deletes; return how many."""
        count = 0
        for log in self._usable_logs():
            with self.surviving_errors():
                count += log.delete_old_segments(now_ms)
        return count

    def remove_expired_producers(self, now_ms: int) -> None:
        """Forget the producers that wrote nothing for `transactional.id.expiration.ms`."""
        for log in self._usable_logs():
            log.producer_state.remove_expired(now_ms)

    def flush_dirty_logs(self, now_ms: int) -> None:
        """Force logs whose `flush.ms` has passed, and rolled segments, to disk; may run in another thread."""
        for log in self._usable_logs():
            with self.surviving_errors():
                if now_ms - log.last_flush_ms >= log.config.flush_ms:
                    log.flush(now_ms=now_ms)
                elif log.has_unflushed_segments:
                    log.flush(log.segments.active.base_offset)

    @property
    def delete_check_interval_ms(self) -> int:
        """The interval at which to call `take_due_deletions`."""
        delay_ms = self.default_config.file_delete_delay_ms
        return min(max(delay_ms, _LEAST_DELETE_CHECK_INTERVAL_MS), _MOST_DELETE_CHECK_INTERVAL_MS)

    def take_due_deletions(self, now_ms: int) -> PendingDeletions:
        """Return the segments and directories deleted at least `file.delete.delay.ms` ago; the caller removes them."""
        for topic_partition in sorted(self._undeleted):
            with suppress(OSError):  # it is tried again
                self.delete_log(topic_partition)
        delay_ms = self.default_config.file_delete_delay_ms
        dated = [(path, now_ms + delay_ms if due_ms is None else due_ms) for path, due_ms in self._deleted]
        self._deleted = [(path, due_ms) for path, due_ms in dated if due_ms > now_ms]
        return PendingDeletions(
            [path for path, due_ms in dated if due_ms <= now_ms],
            [segment for log in self._usable_logs() for segment in log.segments.take_deleted(now_ms)],
        )

    def release_idle_maps(self) -> None:
        """Close the maps of all segments that are no longer written."""
        for log in self._usable_logs():
            log.segments.release_idle_maps()

    # -- checkpoints: each returns its write, which waits for the disk and may be called in another thread ----------

    def checkpoint_recovery_points(self) -> Callable[[], None]:
        """Prepare the checkpoint of recovery points. The write raises OSError."""
        self._check_online()
        offsets = {key: log.recovery_point for key, log in self._logs.items()}
        write_offsets = self._checkpoints.recovery_points.prepare_write(offsets)
        needed = [(log, log.oldest_snapshot_needed) for log in self._usable_logs()]

        def write() -> None:
            write_offsets()
            for log, offset in needed:
                log.delete_snapshots_before(offset)

        return write

    def checkpoint_log_start_offsets(self) -> Callable[[], None]:
        """Prepare the checkpoint of logs that begin within their first segment. The write raises OSError."""
        self._check_online()
        offsets = {
            key: log.log_start_offset
            for key, log in self._logs.items()
            if log.log_start_offset > log.segments.first.base_offset
        }
        return self._checkpoints.log_start_offsets.prepare_write(offsets)

    def checkpoint_cleaner_offsets(self) -> Callable[[], None]:
        """Prepare the checkpoint of how far logs are compacted. The write raises OSError."""
        self._check_online()
        cleaned = ((key, log.cleaned_offset) for key, log in self._logs.items())
        offsets = {key: offset for key, offset in cleaned if offset is not None}
        return prepare_cleaner_offsets(self._checkpoints.cleaner_offsets, offsets)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the checkpoint of high watermarks. Raises OSError."""
        self._check_online()
        self._checkpoints.high_watermarks.write(offsets)

    # -- failing and stopping -----------------------------------------------------------------------------------

    @contextmanager
    def surviving_errors(self) -> Iterator[None]:
        """Act on an OSError, and go on: with the next log, or with upkeep.

        So does a KafkaError pass once the directory is offline: it went during the block, perhaps by another's error.
        """
        try:
            yield
        except OSError as error:
            self.on_storage_error(error)
        except KafkaError:
            if not self.is_offline:
                raise

    def on_storage_error(self, error: OSError) -> None:
        """Take the directory offline unless the error is a passing one."""
        if is_passing(error):
            logger.error("%s: %s; this attempt is refused, a later one may succeed", self.log_dir, reason_of(error))
        else:
            self.go_offline(str(error))

    def go_offline(self, reason: str) -> None:
        """Refuse all appends and reads until the next start."""
        if self.is_offline:
            return
        self.is_offline = True
        logger.critical("%s is offline: %s", self.log_dir, reason)
        for log in list(self._logs.values()):
            log.refuse(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory {self.log_dir} is offline")
        self._on_offline()

    def close(self) -> None:
        """Flush and close all logs, write the checkpoints and the clean marker, unlock.

        Raises the first OSError after closing all other logs; the marker is not written then.
        """
        try:
            if self.is_offline:
                return
            failures = [failure for failure in in_threads(_close, self._logs.values()) if failure is not None]
            self.checkpoint_recovery_points()()
            self.checkpoint_log_start_offsets()()
            self.checkpoint_cleaner_offsets()()
            if failures:
                raise failures[0]
            disk.write_file(self.log_dir / CLEAN_SHUTDOWN_MARKER, b"")
        finally:
            self._lock.release()

    def _usable_logs(self) -> Iterable[Log]:
        return () if self.is_offline else tuple(self._logs.values())

    def _check_online(self) -> None:
        if self.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory {self.log_dir} is offline")


def in_threads(work: Callable[[Log], OSError | None], logs: Iterable[Log]) -> list[OSError | None]:
    """Do the work of all logs in some threads, and wait for it. A simulation replaces the name."""
    from concurrent.futures import ThreadPoolExecutor  # a broker that runs does without it

    with ThreadPoolExecutor(CLOSING_THREADS) as threads:
        return list(threads.map(work, logs))


def _close(log: Log) -> OSError | None:
    try:
        log.close()
    except OSError as error:
        logger.error("cannot close the log of %s: %s", log.topic_partition, error)
        return error
    return None


class PendingDeletions:
    """The files of segments that have left their log, and directories of deleted partitions; `run` removes them once.

    Removing a large file takes the disk tens of milliseconds, when it is unlinked or, if it is open, closed. A thread
    does both: it gets the last reference to the file.
    """

    def __init__(self, directories: list[Path], segments: list[LogSegment]) -> None:
        """Take ownership of the lists."""
        self._directories = directories
        self._segments = segments

    def __len__(self) -> int:
        return len(self._directories) + len(self._segments)

    def run(self) -> None:
        """Remove them all; log a directory that cannot be removed. Raises OSError for a segment."""
        while self._directories:
            directory = self._directories.pop()
            try:
                disk.remove_tree(directory)
            except OSError as error:
                logger.error("cannot remove %s: %s", directory, error)
        while self._segments:
            segment = self._segments.pop()
            segment.delete_if_exists()
            logger.info("%s: deleted segment %d", segment.path.parent.name, segment.base_offset)
