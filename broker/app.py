"""The composition root: builds every part, starts them in order, stops them in reverse.

Start: data directory (lock, recovery) -> topics -> leaders -> sockets -> ready file. Stop: no new connections ->
requests in hand end, parked ones are answered with what there is -> logs flushed, checkpoints and the clean
marker written -> directory unlocked.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import trio

from minibroker.broker.apis.cluster import ClusterApis
from minibroker.broker.apis.configs import ConfigApis
from minibroker.broker.apis.describe_transactions import DescribeTransactionApis
from minibroker.broker.apis.fetch import FetchApis
from minibroker.broker.apis.groups import KEY_GROUP, KEY_TRANSACTION, GroupApis
from minibroker.broker.apis.log_offsets import LogOffsetApis
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.offsets import OffsetApis
from minibroker.broker.apis.produce import ProduceApis
from minibroker.broker.apis.registry import ApiRegistry, handlers
from minibroker.broker.apis.topics import TopicApis
from minibroker.broker.apis.transactions import TransactionApis
from minibroker.broker.cluster.controller import Controller, TopicDeletionListener
from minibroker.broker.cluster.metadata_cache import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, MetadataCache
from minibroker.broker.cluster.topic_store import TopicStore
from minibroker.broker.config.dynamic_config import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.network.recording import Recording
from minibroker.broker.network.server import Server
from minibroker.broker.replica.append import ACKS_ALL
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.replica.fetch_context import FetchManager
from minibroker.broker.replica.fetch_session import FetchSessionCache
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.transaction.coordinator import TransactionCoordinator
from minibroker.broker.transaction.markers import MarkerWriter
from minibroker.broker.transaction.transaction_log import TransactionLog
from minibroker.broker.upkeep.background import Background
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.upkeep.upkeep import Upkeep
from minibroker.storage.data_dir.log_manager import LogManager

if TYPE_CHECKING:
    from minibroker.broker.apis.client import Client
    from minibroker.broker.control.control_server import ControlServer
    from minibroker.broker.control.turnable_clock import TurnableClock
    from minibroker.broker.faults.injector import FaultInjector
    from minibroker.broker.network.connection import Dispatch
    from minibroker.transcript.recorder import Recorder

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 10.0
GC_GENERATION_0_THRESHOLD = 50_000
PRODUCER_IDS_END = 1 << 62  # greater ones a client has thought up

OnReady = Callable[[str, int], None]  # with host and port of the first listener


class BrokerApp:
    """One broker on one data directory: `load`, `run`, and in the end `close`."""

    def __init__(
        self,
        config: KafkaConfig,
        clock: Clock | None = None,
        control: ControlServer | None = None,
        recorder: Recorder | None = None,
        busy_poll_ms: int = 0,
    ) -> None:
        self._config = config
        self._busy_poll_ms = busy_poll_ms
        self._control = control  # None: nobody asked for it at the start
        self._faults: FaultInjector | None = None  # comes with it
        self._recorder = recorder  # None: as well
        self._clock = Clock() if clock is None else clock
        self._log_manager = LogManager(config.log_dir, default_config=config.log_config, broker_id=config.broker_id)
        self._store = TopicStore(config.log_dir, config.broker_id)
        self._dynamic_config = DynamicConfig(config)
        self._dynamic_config.on_change.append(lambda: self._log_manager.set_default_config(config.log_config))

    def load(self) -> None:
        """Open the data directory. Raises LogDirectoryError or TopicStoreError with one line for the operator."""
        self._log_manager.lock()
        left_over = self._store.load(self._log_manager.partitions_on_disk())
        self._dynamic_config.restore(self._store.broker_configs)
        for topic in self._store.topics.values():
            self._log_manager.set_topic_overrides(topic.name, topic.configs)
        self._log_manager.load(self._clock.wall_ms(), left_over=left_over)

    def build(self, timers: TimerLoop) -> ApiRegistry:
        """Make every part that answers requests, and lead every partition there is."""
        config = self._config
        metadata_cache = MetadataCache(config.broker_id, self._store.cluster_id)
        self.background = Background()
        self.replica_manager = ReplicaManager(
            config=config,
            log_manager=self._log_manager,
            timer=timers.timer,
            clock=self._clock,
            background=self.background,
            on_isr_change=lambda changes: controller.set_in_sync_replicas(changes),
            is_alive=metadata_cache.is_broker_alive,
        )
        self.fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, Random())
        on_topic_deleted: list[TopicDeletionListener] = []
        controller = Controller(
            config=config,
            dynamic_config=self._dynamic_config,
            store=self._store,
            metadata_cache=metadata_cache,
            replica_manager=self.replica_manager,
            on_topic_deleted=on_topic_deleted,
        )
        controller.start()
        metadata = MetadataApis(config=config, metadata_cache=metadata_cache, controller=controller)
        group_log = self._start_groups(timers, controller, metadata_cache)
        transaction_log, markers = self._start_transactions(timers, controller, metadata_cache)
        on_topic_deleted += (self.groups.on_topic_deleted, self.transactions.on_topic_deleted)
        self._store.next_producer_id = max(self._store.next_producer_id, self._highest_producer_id() + 1)
        table = handlers(
            ProduceApis(self.replica_manager),
            FetchApis(self.replica_manager, metadata_cache, FetchManager(self.fetch_sessions), self._clock),
            LogOffsetApis(self.replica_manager),
            metadata,
            TopicApis(config=config, controller=controller, replica_manager=self.replica_manager),
            ConfigApis(config=config, metadata_cache=metadata_cache, controller=controller),
            ClusterApis(
                config=config,
                metadata_cache=metadata_cache,
                controller=controller,
                replica_manager=self.replica_manager,
                address_for=metadata.address_for,
            ),
            GroupApis(
                self.groups,
                ensure_topics={KEY_GROUP: group_log.ensure_topic, KEY_TRANSACTION: transaction_log.ensure_topic},
                address_for=metadata.address_for,
                broker_id=config.broker_id,
                profile=config.profile,
            ),
            OffsetApis(self.groups.offsets, metadata_cache, self._clock, config.profile),
            TransactionApis(self.transactions, markers, self.groups, metadata_cache, self._clock),
            DescribeTransactionApis(self.transactions, self.replica_manager),
        )
        return ApiRegistry(table, metadata, config.profile)

    def _start_groups(self, timers: TimerLoop, controller: Controller, metadata_cache: MetadataCache) -> CoordinatorLog:
        config = self._config
        log = coordinator_log(
            GROUP_METADATA_TOPIC,
            controller,
            metadata_cache,
            self.replica_manager,
            required_acks=config.offsets_commit_required_acks,
            timeout_ms=config.offsets_commit_timeout_ms,
        )
        self.groups = GroupCoordinator(
            OffsetStore(log, config, self._clock),
            log,
            config=config,
            clock=self._clock,
            timer=timers.timer,
        )
        self.groups.start()
        return log

    def _start_transactions(
        self, timers: TimerLoop, controller: Controller, metadata_cache: MetadataCache
    ) -> tuple[CoordinatorLog, MarkerWriter]:
        """After the groups, whose offsets take part in transactions."""
        config = self._config
        log = coordinator_log(
            TRANSACTION_STATE_TOPIC, controller, metadata_cache, self.replica_manager, required_acks=ACKS_ALL
        )
        markers = MarkerWriter(
            self.replica_manager,
            self._clock,
            complete_offsets=self.groups.on_transaction_completed,
        )
        self.transactions = TransactionCoordinator(
            config=config,
            log=TransactionLog(log, self._clock, load_bytes=config.transaction_state_log_load_buffer_size),
            markers=markers,
            next_producer_id=controller.next_producer_id,
            timer=timers.timer,
            clock=self._clock,
        )
        self.transactions.start()
        return log, markers

    def _highest_producer_id(self) -> int:
        """Of all producers there are traces of, -1 for none: Kafka keeps in ZooKeeper which ids it has given."""
        logs = [partition.log for partition in self.replica_manager.partitions.values()]
        known = {producer_id for log in logs for producer_id in log.producer_state.producers}
        known |= {transaction.metadata.producer_id for transaction in self.transactions.transactions.values()}
        return max((each for each in known if each < PRODUCER_IDS_END), default=-1)

    async def run(self, listeners: list[socket.socket], on_ready: OnReady) -> None:
        """Serve until SIGTERM or SIGINT, then stop in order."""
        host, port = listeners[0].getsockname()[:2]
        timers = TimerLoop(self._clock)
        registry = self.build(timers)
        dispatch = self._dispatch(registry, lambda: (each.client for each in server.connections))
        recording = None if self._recorder is None else Recording(self._recorder, dispatch)
        server = Server(
            listeners,
            config=self._config,
            dispatch=dispatch if recording is None else recording.dispatch,
            timers=timers,
            observer=recording,
            busy_poll_ms=self._busy_poll_ms,
        )
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as upkeep:
                upkeep.start_soon(timers.run)
                upkeep.start_soon(self.watch_followers)
                upkeep.start_soon(self.background.run)
                upkeep.start_soon(self._upkeep().run)
                upkeep.start_soon(Compaction(self._config, self._log_manager, self._clock).run)
                if self._control is not None:
                    self._offer_clock(self._control)
                    upkeep.start_soon(self._control.run)
                async with trio.open_nursery() as serving:
                    serving.start_soon(self._stop_on_signal, signals, server)
                    settle_memory()
                    on_ready(host, port)
                    await server.run()
                    serving.cancel_scope.cancel()
                upkeep.cancel_scope.cancel()
        await trio.to_thread.run_sync(self.close)

    def _offer_clock(self, control: ControlServer) -> None:
        from minibroker.broker.control.turnable_clock import ClockTurner, TurnableClock

        assert isinstance(self._clock, TurnableClock)
        turner = ClockTurner(self._clock)
        control.register("clock.advance", turner.advance)
        control.register("clock.now", turner.now)

    def _dispatch(self, registry: ApiRegistry, open_clients: Callable[[], Iterable[Client]]) -> Dispatch:
        """What answers a frame: the registry, and around it only what was asked for at the start."""
        dispatch: Dispatch = registry.dispatch
        if self._control is not None:
            from minibroker.broker.faults.injector import FaultInjector

            self._faults = FaultInjector(registry, self.fetch_sessions, open_clients, self.background)
            for name, call in self._faults.calls.items():
                self._control.register(name, call)
            dispatch = self._faults.dispatch
        return dispatch

    def close(self) -> None:
        """Flush, write the checkpoints and the clean marker, unlock. A directory that is offline is left as it is."""
        if not self._log_manager.is_offline:
            self._log_manager.write_high_watermarks(self.replica_manager.high_watermarks())
        self._log_manager.close()

    async def _stop_on_signal(self, signals: AsyncIterator[int], server: Server) -> None:
        async for number in signals:
            logger.info("stopping on %s", signal.Signals(number).name)
            break
        server.stop_accepting()
        if self._faults is not None:
            self._faults.lift_all()
        self.groups.stop()
        self.replica_manager.complete_all_delayed()
        await trio.sleep(STOP_GRACE_SECONDS)  # cut short when the last connection has ended
        server.cancel_connections()

    # -- upkeep -----------------------------------------------------------------------------------------------

    async def watch_followers(self) -> None:
        """Each half of replica.lag.time.max.ms, who lags leaves the in-sync replicas."""
        while True:
            self.replica_manager.drop_lagging_replicas()
            await trio.sleep(max(1, self._config.replica_lag_time_max_ms // 2) / 1000)

    def _upkeep(self) -> Upkeep:
        config = self._config
        upkeep = Upkeep(config, self._log_manager, self._clock)
        upkeep.every(config.replica_high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks)
        upkeep.every(config.offsets_retention_check_interval_ms, self._expire_offsets)
        return upkeep

    def _expire_offsets(self) -> None:
        self.groups.offsets.expire()

    def _checkpoint_high_watermarks(self) -> Callable[[], None]:
        return partial(self._log_manager.write_high_watermarks, self.replica_manager.high_watermarks())


def coordinator_log(
    topic: str,
    controller: Controller,
    metadata_cache: MetadataCache,
    replica_manager: ReplicaManager,
    *,
    required_acks: int,
    timeout_ms: int = 30_000,
) -> CoordinatorLog:
    """The internal topic of a coordinator; the controller makes it when it is first wanted."""

    def partition_count() -> int | None:
        known = metadata_cache.topics.get(topic)
        return None if known is None else len(known.partitions)

    return CoordinatorLog(
        topic,
        replica_manager=replica_manager,
        create_topic=lambda: len(controller.ensure_internal_topic(topic).partitions),
        partition_count=partition_count,
        required_acks=required_acks,
        timeout_ms=timeout_ms,
    )


def settle_memory() -> None:
    """What start-up made stays for good: keep the collector from walking it with every full collection.

    Not collected before: that is 20 ms of the start, for the 300 KB of garbage that imports leave.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(GC_GENERATION_0_THRESHOLD)


def run(
    config: KafkaConfig,
    listeners: list[socket.socket],
    *,
    on_loaded: Callable[[], None],
    on_ready: OnReady,
    control: ControlServer | None = None,
    recorder: Recorder | None = None,
    busy_poll_ms: int = 0,
) -> None:
    """Load, serve, stop in order. Raises LogDirectoryError and TopicStoreError, before `on_loaded` is called.

    `on_ready` is called once requests are answered and SIGTERM and SIGINT stop the broker. With a `control`, which
    is not closed here, tests can turn its clock and set faults.
    """
    clock: TurnableClock | None = None  # None: trio's own
    if control is not None:
        from minibroker.broker.control.turnable_clock import TurnableClock

        clock = TurnableClock()
    app = BrokerApp(config, clock, control, recorder, busy_poll_ms)
    app.load()
    on_loaded()
    trio.run(app.run, listeners, on_ready, clock=clock)
