"""The task that compacts the logs of compacted topics: one after the other, the dirtiest first.

The steps of `LogCleaning` run in a thread, changes of a log run on the loop. The task retries a log that was deleted or
truncated during its compaction later, and leaves a log alone whose compaction failed.
"""

from __future__ import annotations

import logging

import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep import threads
from minibroker.protocol.text import counted
from minibroker.storage.compaction.cleaner_pace import CleanerPace, LogCleaningAbortedError
from minibroker.storage.compaction.log_cleaner import CleanerConfig, CleanerStats, LogCleaning, LogToClean
from minibroker.storage.compaction.log_cleaner_manager import LogCleanerManager
from minibroker.storage.data_dir.log_manager import LogManager

logger = logging.getLogger(__name__)


class Compaction:
    """The log cleaner: `run` it in a task of its own, once."""

    def __init__(self, config: KafkaConfig, log_manager: LogManager, clock: Clock) -> None:
        self._config = config
        self._log_manager = log_manager
        self._clock = clock
        self.manager = LogCleanerManager(log_manager)
        self.count = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.max_seconds = 0.0
        self.newest: CleanerStats | None = None
        self._pace = CleanerPace()

    async def run(self) -> None:
        if not self._config.log_cleaner_enable:
            return
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_when_cancelled)
            while True:
                has_cleaned = not self._log_manager.is_offline and await self._clean_filthiest_log()
                self._delete_old_segments()
                if not has_cleaned:
                    await trio.sleep(self._config.log_cleaner_backoff_ms / 1000)

    async def _stop_when_cancelled(self) -> None:
        """Stop the thread when the task is cancelled, since the task waits for it."""
        try:
            await trio.sleep_forever()
        finally:
            self._pace.stop()

    async def _clean_filthiest_log(self) -> bool:
        """Compact one log; return whether to look for the next at once."""
        to_clean = self.manager.grab_filthiest_log(self._clock.wall_ms())
        if to_clean is None:
            return False
        try:
            with self._log_manager.surviving_errors():
                return await self._clean(to_clean)
            return False
        finally:
            self.manager.done(to_clean.log)

    async def _clean(self, to_clean: LogToClean) -> bool:
        config, log = self._config, to_clean.log
        self._pace.limit(config.log_cleaner_io_max_bytes_per_second)
        cleaning = LogCleaning(
            to_clean,
            CleanerConfig(
                config.log_cleaner_dedupe_buffer_size,
                config.log_cleaner_io_buffer_size,
                config.log_cleaner_io_buffer_load_factor,
            ),
            self._pace,
            now_ms=self._clock.wall_ms(),
        )
        try:
            for work in cleaning.steps():
                await threads.run_sync(work)
        except LogCleaningAbortedError as error:
            logger.info("%s", error)
            return False
        except Exception as error:
            if cleaning.is_log_changed:  # its files were renamed or truncated during the step
                return False
            if isinstance(error, OSError):
                raise
            self.manager.mark_uncleanable(log, error)
            return True
        finally:
            cleaning.close()
        self._count(cleaning.stats)
        _report(to_clean, cleaning.stats)
        await threads.run_sync(self._log_manager.checkpoint_cleaner_offsets())
        return True

    def _count(self, stats: CleanerStats) -> None:
        self.newest = stats
        self.count += 1
        self.bytes_read += stats.bytes_read
        self.bytes_written += stats.bytes_written
        self.max_seconds = max(self.max_seconds, stats.seconds)

    def _delete_old_segments(self) -> None:
        now_ms = self._clock.wall_ms()
        for log in self.manager.compacted_and_deleted_logs():
            with self._log_manager.surviving_errors():
                log.delete_old_segments(now_ms)


def _report(to_clean: LogToClean, stats: CleanerStats) -> None:
    logger.info(
        "%s: compacted to offset %s in %.1f s: from %d to %d bytes, %s, kept %d of %s, %d without key",
        to_clean.log.topic_partition,
        to_clean.log.cleaned_offset,
        stats.seconds,
        to_clean.clean_bytes + to_clean.cleanable_bytes,
        stats.bytes_written,
        counted(stats.keys, "key"),
        stats.records_kept,
        counted(stats.records_read, "record"),
        stats.invalid_records,
    )
