"""The composition root: builds every part, starts them in order, stops them in reverse.

Start: data directory (lock, recovery) -> what the state of the cluster says -> sockets -> ready file. Stop: no new
connections -> other brokers lead -> requests in hand end, waiting ones are answered with their results so far -> logs
flushed, checkpoints and the clean marker written -> directory unlocked.
"""

from __future__ import annotations

import gc
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.cluster.first_topics import FirstTopicsError, create_first_topics
from minibroker.broker.cluster.member import Member
from minibroker.broker.cluster.sections import BROKER_CONFIGS
from minibroker.broker.cluster.state import BrokerReturned, ClusterState, News
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import EVERYTHING
from minibroker.broker.network.server import Server
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.starting import StartError, stop_signals
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep import threads
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.upkeep.upkeep import Upkeep
from minibroker.broker.way.codec import Codec, KnownErrors, Watch
from minibroker.broker.way.opening import Opening
from minibroker.broker.way.way import Way
from minibroker.broker.wing import Wing
from minibroker.broker.wings.consumer.wing import ConsumerWing
from minibroker.broker.wings.looking.wing import LookingWing
from minibroker.broker.wings.quotas.wing import QuotaWing
from minibroker.broker.wings.registry.wing import RegistryWing
from minibroker.broker.wings.security.acls.wing import AclWing
from minibroker.broker.wings.security.wing import SecurityWing
from minibroker.broker.wings.several.wing import SeveralWing
from minibroker.broker.wings.share.wing import ShareWing
from minibroker.broker.wings.telemetry.wing import TelemetryWing
from minibroker.broker.wings.testing.recording import TranscriptWing
from minibroker.broker.wings.testing.reset_topics import ResetWing
from minibroker.broker.wings.testing.wing import FaultWing
from minibroker.broker.wings.zookeeper_nodes.wing import ZooKeeperWing
from minibroker.protocol.errors import KafkaError
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.storage_errors import LogDirectoryError

if TYPE_CHECKING:
    from minibroker.broker.wings.testing.control.turnable_clock import TurnableClock

logger = logging.getLogger(__name__)

PLAINTEXT = "PLAINTEXT"
STOP_GRACE_SECONDS = 10.0
REFUSED_ROLES_INTERVAL_MS = 1000
ROLES_SECONDS = 10.0  # for which a broker that knows its cluster waits for the last of its roles
GC_GENERATION_0_THRESHOLD = 50_000
SERVED_AS_KAFKA = ServeOptions()

# In the order of their stages.
WINGS: tuple[type[Wing], ...] = (
    SecurityWing,
    FaultWing,
    ResetWing,
    TranscriptWing,
    ConsumerWing,
    ShareWing,
    TelemetryWing,
    LookingWing,
    QuotaWing,
    AclWing,
    SeveralWing,
    ZooKeeperWing,
    RegistryWing,
)
SECTIONS_OF_WINGS = [each for wing in WINGS for each in wing.sections]

OnReady = Callable[[str, int], None]  # with host and port of the first listener


class StopSignals:
    """How a broker is asked to stop in order: by signals of its process. A simulation has other ways."""

    def received(self) -> AbstractContextManager[AsyncIterator[int]]:
        """Take the signals from now on, until the end of the context."""
        return trio.open_signal_receiver(*stop_signals())

    def ask(self) -> None:
        """Have this broker stop."""
        signal.raise_signal(signal.SIGTERM)


class BrokerApp:
    """One broker on one data directory: `load`, then `run`; or, without sockets, `build`, and `close` at the end."""

    def __init__(
        self,
        config: KafkaConfig,
        clock: Clock | None = None,
        options: ServeOptions = SERVED_AS_KAFKA,
        stops: StopSignals | None = None,
    ) -> None:
        self._config = config
        self._options = options
        self._clock = Clock() if clock is None else clock
        self._stops = StopSignals() if stops is None else stops
        self._log_manager = LogManager(
            config.log_dir,
            default_config=config.log_config,
            broker_id=config.broker_id,
            producer_expiration_ms=config.transactional_id_expiration_ms,
            on_offline=self._end_in_cluster,
        )
        self._state = state_of(config, options)
        self._dynamic_config = DynamicConfig(config)
        self._dynamic_config.on_change.append(self._take_topic_defaults)
        self._failure: FirstTopicsError | None = None

    def _take_topic_defaults(self) -> None:
        self._log_manager.set_default_config(self._config.log_config)

    def _end_in_cluster(self) -> None:
        """Stop a broker of a cluster whose log directory has failed: others can lead.

        As kafka 2.0.1 LogManager.handleLogDirFailure with the last directory, but in order.
        """
        if self._state.is_shared:
            self._stops.ask()

    def load(self) -> None:
        """Open the data directory. Raises LogDirectoryError and StartError with one line for the operator."""
        check(self._config, self._options)
        self._log_manager.lock()
        on_disk = self._log_manager.partitions_on_disk()
        left_over = self._state.load(on_disk)
        # Kafka with ZooKeeper opens them.
        strays = [
            each
            for each in on_disk
            if not self._state.is_beside_kafka and each.topic not in self._state.topics and each not in left_over
        ]
        self._dynamic_config.restore(self._state.get(BROKER_CONFIGS))
        for topic in self._state.topics.values():
            self._log_manager.set_topic_overrides(topic.name, topic.configs)
        self._log_manager.load(self._clock.wall_ms(), left_over=left_over, strays=strays)

    def build(self) -> BrokerParts:
        """Build the parts that answer requests; pass them to `close` at the end."""
        parts = BrokerParts(
            self._config,
            options=self._options,
            clock=self._clock,
            log_manager=self._log_manager,
            state=self._state,
            dynamic_config=self._dynamic_config,
        )
        for wing in WINGS:
            if wing.is_asked_for(self._config, self._options):
                parts.plug(wing(parts))
        parts.lead()
        return parts

    async def run(self, listeners: list[socket.socket], on_ready: OnReady) -> None:
        """Serve until a signal asks for the end, then stop in order.

        Raises LogDirectoryError at the end of a broker of a cluster whose log directory has failed, and
        FirstTopicsError at the end of one that cannot create a topic of its start.
        """
        host, port = listeners[0].getsockname()[:2]
        parts = self.build()
        member = self._member(parts, listeners)
        opening = Opening(parts.background)
        recorder = self._options.recorder
        server = Server(
            listeners,
            config=self._config,
            dispatch=way_of(parts, opening).serve,
            timers=parts.timers,
            afterwards=parts.afterwards,
            connections=parts.connections,
            kinds={name: kind for each in parts.wings for name, kind in each.kinds_of_connections().items()},
            probes=parts.probes,
            greet=[each.greet for each in parts.wings],
            first_number=1 if recorder is None else recorder.last_connection + 1,
            busy_poll_ms=self._options.busy_poll_ms,
        )
        compaction = Compaction(self._config, self._log_manager, self._clock)
        for wing in parts.wings:
            wing.look_at(server, compaction, f"{host}:{port}")
        if self._options.control is not None:
            for name, call in [each for wing in parts.wings for each in wing.calls().items()]:
                self._options.control.register(name, call)
        with self._stops.received() as signals:
            async with trio.open_nursery() as upkeep:
                parts.start_tasks(upkeep)
                self._start_upkeep(parts, upkeep, compaction, member)
                async with trio.open_nursery() as serving:
                    serving.start_soon(self._stop_on_signal, signals, server, parts, member, opening)
                    if member is not None:
                        serving.start_soon(self._join, member, parts, opening, partial(on_ready, host, port))
                    else:
                        await self._be_ready(parts, opening, partial(on_ready, host, port), are_others=False)
                    for task in [each for wing in parts.wings for each in wing.tasks()]:
                        serving.start_soon(task)
                    await server.run()
                    serving.cancel_scope.cancel()
                upkeep.cancel_scope.cancel()
        await threads.run_sync(self.close, parts)
        if self._failure is not None:
            raise self._failure
        if self._log_manager.is_offline and self._state.is_shared:
            raise LogDirectoryError(
                f"the log directory {self._config.log_dir} has failed, and others lead in place of this broker"
            )

    def _member(self, parts: BrokerParts, listeners: list[socket.socket]) -> Member[Any] | None:
        """Make this broker a member of its cluster; None in a cluster of one."""
        config = self._config
        ports = dict(zip((each.name for each in config.endpoints), listeners, strict=True))

        def shown() -> Broker:
            """This broker as the others reach it: at the addresses where it listens, unless it advertises others."""
            return Broker(
                {
                    name: (host, port) if host else ports[name].getsockname()[:2]
                    for name, (host, port) in config.advertised_endpoints.items()
                },
                config.broker_rack,
                {each.name: each.protocol for each in config.endpoints if each.protocol != PLAINTEXT},
            )

        def on_news(news: News) -> None:
            parts.shared_settings.on_news(news)
            parts.controller_loop.on_news(news)

        members = [member for wing in parts.wings if (member := wing.member(shown, on_news)) is not None]
        return members[0] if members else None

    async def _join(
        self,
        member: Member[Any],
        parts: BrokerParts,
        opening: Opening,
        on_ready: Callable[[], None],
    ) -> None:
        """Live in the cluster; be ready once the controller has given this broker its roles."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.run)
            await parts.own.knows_cluster.wait()
            with trio.move_on_after(ROLES_SECONDS):
                await parts.own.has_roles.wait()
            await self._be_ready(parts, opening, on_ready, are_others=True)

    async def _be_ready(
        self, parts: BrokerParts, opening: Opening, on_ready: Callable[[], None], *, are_others: bool
    ) -> None:
        """Create the first topics, serve clients, and be ready; stop if one cannot be created."""
        try:
            await create_first_topics(parts.topic_admin, self._options.topics, are_others=are_others)
        except FirstTopicsError as error:
            self._failure = error
            self._stops.ask()
            return
        settle_memory()
        opening.open()
        on_ready()

    def _take_refused_roles(self, parts: BrokerParts, member: Member[Any] | None) -> None:
        """Ask the controller for the roles that this broker had to refuse, once it can take them."""
        try:
            if not parts.own.can_take_refused():
                return
        except KafkaError:  # logged; there is still no room
            return
        if member is None:
            parts.controller_loop.on_news(BrokerReturned(self._config.broker_id))
        else:
            member.rejoin()

    def _start_upkeep(
        self, parts: BrokerParts, nursery: trio.Nursery, compaction: Compaction, member: Member[Any] | None = None
    ) -> None:
        config = self._config
        upkeep = Upkeep(config, self._log_manager, self._clock)
        upkeep.every(
            config.replica_high_watermark_checkpoint_interval_ms, partial(self._checkpoint_high_watermarks, parts)
        )
        upkeep.every(config.offsets_retention_check_interval_ms, parts.groups.offsets.expire)
        if config.auto_leader_rebalance_enable:
            interval_ms = 1000 * max(1, config.leader_imbalance_check_interval_seconds)
            upkeep.every(interval_ms, parts.controller_loop.rebalance_leaders)
        upkeep.every(REFUSED_ROLES_INTERVAL_MS, partial(self._take_refused_roles, parts, member))
        nursery.start_soon(upkeep.run)
        nursery.start_soon(compaction.run)
        if self._options.control is not None:
            nursery.start_soon(self._options.control.run)

    def _checkpoint_high_watermarks(self, parts: BrokerParts) -> Callable[[], None]:
        return partial(self._log_manager.write_high_watermarks, parts.replica_manager.high_watermarks())

    async def _stop_on_signal(
        self,
        signals: AsyncIterator[int],
        server: Server,
        parts: BrokerParts,
        member: Member[Any] | None,
        opening: Opening,
    ) -> None:
        async for number in signals:
            logger.info("stopping on %s", signal.Signals(number).name)
            break
        if self._options.console is not None:
            self._options.console.stop()
        if member is not None:
            await member.leave(parts.shut_down)
        server.stop_accepting()
        opening.give_up()
        for wing in parts.wings:
            wing.stop()
        if member is None:
            parts.controller_loop.stop()
        parts.groups.stop()
        parts.replica_manager.complete_all_delayed()
        await trio.sleep(STOP_GRACE_SECONDS)  # cut short when the last connection has ended
        server.cancel_connections()

    def close(self, parts: BrokerParts) -> None:
        """Flush, write the checkpoints and the clean marker, unlock. An offline directory stays as it is."""
        if not self._log_manager.is_offline:
            try:
                self._state.close()
            except (OSError, KafkaError) as error:  # what was stored is still there, in two files
                logger.warning("cannot write the topics and settings into one file: %s", error)
            self._log_manager.write_high_watermarks(parts.replica_manager.high_watermarks())
        self._log_manager.close()


def check(config: KafkaConfig, options: ServeOptions) -> None:
    """Raises StartError for settings with which a wing cannot serve."""
    problems = [line for wing in WINGS for line in wing.problems(config, options)]
    if problems:
        raise StartError("\n".join(problems))


def state_of(config: KafkaConfig, options: ServeOptions) -> ClusterState:
    """The state of the cluster: where a wing keeps it, or in a file of this broker alone."""
    for wing in WINGS:
        if wing.is_asked_for(config, options):
            state = wing.state_of(config, options, SECTIONS_OF_WINGS)
            if state is not None:
                return state
    return FileState(config.log_dir, config.broker_id, SECTIONS_OF_WINGS)


def way_of(parts: BrokerParts, opening: Opening | None = None) -> Way:
    """The way of a request: it enters these stages top down, up to one that answers; its answer leaves them upwards."""
    stages = (
        *[stage for wing in parts.wings for stage in wing.frame_stages()],
        opening,
        Codec(parts.apis, parts.metadata_cache.topics_by_id),
        Watch(parts.probes),
        KnownErrors(parts.config.profile.error_code_for) if parts.config.profile is not EVERYTHING else None,
        *[stage for wing in parts.wings for stage in wing.stages()],
        parts.handlers,
    )
    return Way([each for each in stages if each is not None], parts.probes)


def settle_memory() -> None:
    """Exclude the objects of the start from garbage collection: they live as long as the broker.

    There is no collection before: it would take 20 ms of the start, for the 300 KB of garbage that imports leave.
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
    options: ServeOptions = SERVED_AS_KAFKA,
) -> None:
    """Load, serve, stop in order. Raises as `BrokerApp.load`, before `on_loaded` is called, and as `BrokerApp.run`.

    `on_ready` is called once requests are answered and signals stop the broker.
    """
    clock: TurnableClock | None = None  # None: trio's own
    if options.control is not None:
        from minibroker.broker.wings.testing.control.turnable_clock import TurnableClock

        clock = TurnableClock()
    app = BrokerApp(config, clock, options)
    app.load()
    on_loaded()
    trio.run(app.run, listeners, on_ready, clock=clock)
