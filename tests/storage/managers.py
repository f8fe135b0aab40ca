"""Data directories with two logs, for the tests of what a log manager does."""

from __future__ import annotations

from pathlib import Path

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log
from tests.storage.logs import NOW_MS

ORDERS, OTHERS = TopicPartition("orders", 0), TopicPartition("others", 3)
CONFIG = LogConfig(file_delete_delay_ms=1000)
MARKER = ".kafka_cleanshutdown"


def opened(directory: Path, config: LogConfig = CONFIG, *, broker_id: int = 0, **overrides: str) -> LogManager:
    topics = {"orders": {name.replace("_", "."): value for name, value in overrides.items()}}
    manager = LogManager(directory, default_config=config, broker_id=broker_id, topic_overrides=topics)
    manager.load(NOW_MS)
    return manager


def log_in(manager: LogManager, key: TopicPartition = ORDERS) -> Log:
    return manager.get_or_create_log(key, now_ms=NOW_MS)


def remove_deleted(manager: LogManager, now_ms: int) -> int:
    """Remove what was given up long enough ago; return how many files and directories."""
    deletions = manager.take_due_deletions(now_ms)
    count = len(deletions)
    deletions.run()
    return count


def crash(manager: LogManager) -> None:
    """Leave the directory as a killed process does."""
    manager._lock.release()
