"""Periodic work on the logs: retention, idle producers, flushing, checkpoints, deleted files, idle maps.

An action runs on the loop, where it may change logs, and is short. It returns work for the disk, which runs in a
thread. An OSError of either may take the log directory offline (`LogManager.on_storage_error`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep import threads
from minibroker.storage.data_dir.log_manager import LogManager

# Kafka fsyncs a rolled segment in the background at once; here a check each second finds it.
ROLLED_FLUSH_INTERVAL_MS = 1000
IDLE_MAPS_INTERVAL_MS = 60_000
EXPIRED_PRODUCERS_INTERVAL_MS = 600_000  # as kafka 2.0.1 LogManager.ProducerIdExpirationCheckIntervalMs, fixed

Work = Callable[[], object]
Action = Callable[[], Work | None]


class Upkeep:
    """Maintains the logs, and runs the actions added by `every`, while `run` runs."""

    def __init__(self, config: KafkaConfig, log_manager: LogManager, clock: Clock) -> None:
        self._logs = log_manager
        self._clock = clock
        self._actions: list[tuple[int, Action]] = [
            (config.log_retention_check_interval_ms, self._delete_old_segments),
            (EXPIRED_PRODUCERS_INTERVAL_MS, self._remove_expired_producers),
            (log_manager.delete_check_interval_ms, self._remove_deleted),
            (min(config.log_flush_scheduler_interval_ms, ROLLED_FLUSH_INTERVAL_MS), self._flush_dirty_logs),
            (config.log_flush_offset_checkpoint_interval_ms, log_manager.checkpoint_recovery_points),
            (config.log_flush_offset_checkpoint_interval_ms, log_manager.checkpoint_cleaner_offsets),
            (config.log_flush_start_offset_checkpoint_interval_ms, log_manager.checkpoint_log_start_offsets),
            (IDLE_MAPS_INTERVAL_MS, log_manager.release_idle_maps),
        ]

    def every(self, interval_ms: int, action: Action) -> None:
        """Add an action, from the next `run` on."""
        self._actions.append((interval_ms, action))

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for interval_ms, action in self._actions:
                nursery.start_soon(self._repeat, interval_ms, action)

    async def _repeat(self, interval_ms: int, action: Action) -> None:
        while True:
            await trio.sleep(interval_ms / 1000)
            if self._logs.is_offline:
                continue
            with self._logs.surviving_errors():
                work = action()
                if work is not None:
                    await threads.run_sync(work)

    def _delete_old_segments(self) -> None:
        self._logs.cleanup_logs(self._clock.wall_ms())

    def _remove_expired_producers(self) -> None:
        self._logs.remove_expired_producers(self._clock.wall_ms())

    def _remove_deleted(self) -> Work | None:
        deletions = self._logs.take_due_deletions(self._clock.wall_ms())
        return deletions.run if deletions else None

    def _flush_dirty_logs(self) -> Work:
        return partial(self._logs.flush_dirty_logs, self._clock.wall_ms())
