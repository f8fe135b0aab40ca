"""The composition root: builds every part, starts them in order, stops them in reverse.

Start: data directory (lock, recovery) -> topics -> leaders -> sockets -> ready file. Stop: no new connections ->
requests in hand end, parked ones are answered with what there is -> logs flushed, checkpoints and the clean
marker written -> directory unlocked.
"""

from __future__ import annotations

import gc
import inspect
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import trio

from minibroker.broker.apis.fetch import FetchApis
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.produce import ProduceApis
from minibroker.broker.apis.registry import ApiRegistry, handlers
from minibroker.broker.apis.topics import TopicApis
from minibroker.broker.clock import Clock
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.topic_store import TopicStore
from minibroker.broker.config import KafkaConfig
from minibroker.broker.controller import Controller
from minibroker.broker.network.server import Server
from minibroker.broker.replica.fetch_context import FetchManager
from minibroker.broker.replica.fetch_session import FetchSessionCache
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.timers import TimerLoop
from minibroker.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 10.0
# Kafka fsyncs a segment in the background when it is rolled; here a look each second finds it.
ROLLED_FLUSH_INTERVAL_MS = 1000
GC_GENERATION_0_THRESHOLD = 50_000

OnReady = Callable[[str, int], None]  # with host and port of the first listener


class BrokerApp:
    """One broker on one data directory: `load`, `run`, and in the end `close`."""

    def __init__(self, config: KafkaConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = Clock() if clock is None else clock
        self._log_manager = LogManager(config.log_dir, default_config=config.log_config, broker_id=config.broker_id)
        self._store = TopicStore(config.log_dir, config.broker_id)

    def load(self) -> None:
        """Open the data directory. Raises LogDirectoryError or TopicStoreError with one line for the operator."""
        self._log_manager.lock()
        self._store.load(self._log_manager.partitions_on_disk())
        for topic in self._store.topics.values():
            self._log_manager.set_topic_overrides(topic.name, topic.configs)
        self._log_manager.load(self._clock.wall_ms())

    def build(self, timers: TimerLoop, host: str, port: int) -> ApiRegistry:
        """Make every part that answers requests, and lead every partition there is."""
        config = self._config
        self.replica_manager = ReplicaManager(
            config=config, log_manager=self._log_manager, timer=timers.timer, clock=self._clock
        )
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, Random())
        metadata_cache = MetadataCache(config.broker_id, self._store.cluster_id)
        controller = Controller(
            config=config,
            store=self._store,
            metadata_cache=metadata_cache,
            replica_manager=self.replica_manager,
        )
        controller.start()
        metadata = MetadataApis(
            config=config,
            metadata_cache=metadata_cache,
            controller=controller,
            listen_host=host,
            listen_port=port,
        )
        table = handlers(
            ProduceApis(self.replica_manager, controller),
            FetchApis(self.replica_manager, metadata_cache, FetchManager(self.fetch_sessions), self._clock),
            metadata,
            TopicApis(
                config=config,
                metadata_cache=metadata_cache,
                controller=controller,
                replica_manager=self.replica_manager,
            ),
        )
        return ApiRegistry(table, metadata)

    async def run(self, listeners: list[socket.socket], on_ready: OnReady) -> None:
        """Serve until SIGTERM or SIGINT, then stop in order."""
        host, port = listeners[0].getsockname()[:2]
        timers = TimerLoop(self._clock)
        registry = self.build(timers, host, port)
        server = Server(listeners, config=self._config, dispatch=registry.dispatch, timers=timers)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as upkeep:
                upkeep.start_soon(timers.run)
                self._start_upkeep(upkeep)
                async with trio.open_nursery() as serving:
                    serving.start_soon(self._stop_on_signal, signals, server)
                    settle_memory()
                    on_ready(host, port)
                    await server.run()
                    serving.cancel_scope.cancel()
                upkeep.cancel_scope.cancel()
        await trio.to_thread.run_sync(self.close)

    def close(self) -> None:
        """Flush, write the checkpoints and the clean marker, unlock."""
        self._log_manager.write_high_watermarks(self.replica_manager.high_watermarks())
        self._log_manager.close()

    async def _stop_on_signal(self, signals: AsyncIterator[int], server: Server) -> None:
        async for number in signals:
            logger.info("stopping on %s", signal.Signals(number).name)
            break
        server.stop_accepting()
        self.replica_manager.complete_all_delayed()
        await trio.sleep(STOP_GRACE_SECONDS)  # cut short when the last connection has ended
        server.cancel_connections()

    # -- upkeep -----------------------------------------------------------------------------------------------

    def _start_upkeep(self, nursery: trio.Nursery) -> None:
        config, logs = self._config, self._log_manager
        for interval_ms, action in (
            (config.log_retention_check_interval_ms, self._delete_old_segments),
            (logs.delete_check_interval_ms, self._delete_pending),
            (min(config.log_flush_scheduler_interval_ms, ROLLED_FLUSH_INTERVAL_MS), self._flush_dirty_logs),
            (config.log_flush_offset_checkpoint_interval_ms, logs.checkpoint_recovery_points),
            (config.log_flush_start_offset_checkpoint_interval_ms, logs.checkpoint_log_start_offsets),
            (config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks),
        ):
            nursery.start_soon(self._repeat, interval_ms, action)

    async def _repeat(self, interval_ms: int, action: Callable[[], Awaitable[None] | None]) -> None:
        """Do `action` every so often: what changes logs on the loop, what only waits for the disk in a thread."""
        while True:
            await trio.sleep(interval_ms / 1000)
            try:
                if inspect.iscoroutinefunction(action):
                    await action()
                else:
                    await trio.to_thread.run_sync(action)
            except OSError as error:
                self._log_manager.on_storage_error(error)

    async def _delete_old_segments(self) -> None:
        self._log_manager.cleanup_logs(self._clock.wall_ms())

    async def _delete_pending(self) -> None:
        self._log_manager.delete_pending(self._clock.wall_ms())

    def _flush_dirty_logs(self) -> None:
        self._log_manager.flush_dirty_logs(self._clock.wall_ms())

    async def _checkpoint_high_watermarks(self) -> None:
        offsets = self.replica_manager.high_watermarks()
        await trio.to_thread.run_sync(self._log_manager.write_high_watermarks, offsets)


def settle_memory() -> None:
    """What start-up made stays for good: keep the collector from walking it with every full collection.

    Not collected before: that is 20 ms of the start, for the 300 KB of garbage that imports leave.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(GC_GENERATION_0_THRESHOLD)


def run(
    config: KafkaConfig, listeners: list[socket.socket], *, on_loaded: Callable[[], None], on_ready: OnReady
) -> None:
    """Load, serve, stop in order. Raises LogDirectoryError and TopicStoreError, before `on_loaded` is called.

    `on_ready` is called once requests are answered and SIGTERM and SIGINT stop the broker.
    """
    app = BrokerApp(config)
    app.load()
    on_loaded()
    trio.run(app.run, listeners, on_ready)
