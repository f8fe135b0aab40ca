"""Removes lagging followers from the in-sync replicas, each half of replica.lag.time.max.ms."""

from __future__ import annotations

import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.storage import real_time

REAL_SECONDS = 0.5  # in which a follower connects again, and fetches


async def watch_followers(config: KafkaConfig, replica_manager: ReplicaManager) -> None:
    """Look until cancelled.

    Where a test has turned the clock by far more at once, followers may fetch first: they had no time to.
    """
    while True:
        replica_manager.drop_lagging_replicas()
        seconds = max(1, config.replica_lag_time_max_ms // 2) / 1000
        while await turned_seconds_in(seconds) > seconds + REAL_SECONDS:
            seconds = config.replica_fetch_backoff_ms / 1000 + REAL_SECONDS


async def turned_seconds_in(seconds: float) -> float:
    """Sleep; return by how much the clock was turned meanwhile."""
    began, real = trio.current_time(), real_time.perf_counter()
    await trio.sleep(seconds)
    return trio.current_time() - began - (real_time.perf_counter() - real)
