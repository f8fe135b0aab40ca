"""Fsyncs appended records in a thread, before they are served or acknowledged, as flush.messages asks.

Each log has one fsync at a time. Appends that come during it wait for the next, which serves all of them: group commit.
"""

from __future__ import annotations

from functools import partial

from minibroker.broker.pending import Pending
from minibroker.broker.upkeep import threads
from minibroker.broker.upkeep.background import Background
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.storage_errors import map_storage_errors
from minibroker.storage.log.log import Log


class LogFlusher:
    """Flushes the logs of `log_manager` in tasks of `background`."""

    def __init__(self, log_manager: LogManager, background: Background) -> None:
        self._log_manager = log_manager
        self._background = background
        # For each log with an fsync under way: the flushes that wait for its next one.
        self._waiting: dict[Log, list[Pending[None]]] = {}

    def flush(self, log: Log) -> Pending[None]:
        """Flush all records appended so far. Fails with KafkaError(KAFKA_STORAGE_ERROR): the directory is offline."""
        pending: Pending[None] = Pending()
        waiting = self._waiting.get(log)
        if waiting is None:
            self._waiting[log] = [pending]
            self._background.start(partial(self._flush_while_wanted, log))
        else:
            waiting.append(pending)
        return pending

    async def _flush_while_wanted(self, log: Log) -> None:
        while served := self._waiting[log]:
            self._waiting[log] = []
            try:
                if log.recovery_point < log.log_end_offset:
                    with map_storage_errors(self._log_manager):
                        await threads.run_sync(log.flush)
            except Exception as error:  # a defect, too, must fail the flushes that wait
                for pending in served:
                    pending.fail(error)
            else:
                for pending in served:
                    pending.resolve(None)
        del self._waiting[log]
