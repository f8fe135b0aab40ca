"""The parts of a running broker, built in the order in which they need each other.

replicas -> groups -> transactions, whose offsets groups keep -> controller, which has all of them obey -> handlers
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import partial

import trio

from minibroker.broker.apis.cluster import ClusterApis
from minibroker.broker.apis.configs import ConfigApis
from minibroker.broker.apis.describe_transactions import DescribeTransactionApis
from minibroker.broker.apis.features import FeatureApis
from minibroker.broker.apis.fetch import FetchApis
from minibroker.broker.apis.groups import COORDINATED, GroupApis
from minibroker.broker.apis.log_offsets import LogOffsetApis
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.offsets import OffsetApis
from minibroker.broker.apis.produce import ProduceApis
from minibroker.broker.apis.routes import Routes
from minibroker.broker.apis.topics import TopicApis
from minibroker.broker.apis.transactions import TransactionApis
from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.features import SUPPORTED, Features
from minibroker.broker.cluster.metadata_cache import TRANSACTION_STATE_TOPIC, MetadataCache
from minibroker.broker.cluster.own_broker import OwnBroker
from minibroker.broker.cluster.producer_ids import ProducerIds
from minibroker.broker.cluster.sections import GROUP_CONFIGS
from minibroker.broker.cluster.state import ClusterState
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.cluster.zookeeper import ZooKeeperOffsets
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import EVERYTHING, Habit, Profile
from minibroker.broker.config.settings.table import RACK_AWARE_SELECTOR
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.group_configs import GroupConfigs
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.network.connection import Connection
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.replica.fetch_context import FetchManager
from minibroker.broker.replica.fetch_session import FetchSessionCache
from minibroker.broker.replica.leading import ACKS_ALL
from minibroker.broker.replica.other_broker import OtherBrokers
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.shared_settings import SharedSettings
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.transaction.coordinator import TransactionCoordinator
from minibroker.broker.transaction.marker_channels import AdditionChannels, MarkerChannels
from minibroker.broker.transaction.markers import MarkerWriter
from minibroker.broker.transaction.participation import Participation
from minibroker.broker.transaction.transaction_log import TransactionLog
from minibroker.broker.upkeep.afterwards import Afterwards
from minibroker.broker.upkeep.background import Background
from minibroker.broker.way.codec import Handlers
from minibroker.broker.way.probes import Probes
from minibroker.broker.wing import Wing
from minibroker.protocol.api import API_TABLE, Api, ApiKey
from minibroker.protocol.api_table import versions_of
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.messages.inter_broker import ControlledShutdownRequest
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.purgatory import Purgatory
from minibroker.storage import chance
from minibroker.storage.data_dir.log_manager import LogManager

logger = logging.getLogger(__name__)

TRANSACTION_LOG_TIMEOUT_MS = 30_000
PRODUCER_IDS_END = 1 << 62  # a broker never gives out greater ones


class BrokerParts:
    """The parts that answer requests, and `start_tasks`, which starts their timers and background work."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        options: ServeOptions,
        clock: Clock,
        log_manager: LogManager,
        state: ClusterState,
        dynamic_config: DynamicConfig,
    ) -> None:
        self.config = config
        self.options = options
        self.state = state
        self.dynamic_config = dynamic_config
        self.timers = TimerLoop(clock)
        self.background = Background()
        self.afterwards = Afterwards()
        self.probes = Probes()
        self.connections: set[Connection] = set()
        self.wings: list[Wing] = []
        self.coordinated = dict(COORDINATED)
        self.others = OtherBrokers()
        self.metadata_cache = MetadataCache(state.cluster_id)
        self._build_replicas(clock, log_manager)
        self._build_groups(clock)
        self._build_transactions(clock)
        self._build_controller()
        self.handlers = Handlers(offered(config.profile, is_cluster_broker=state.is_shared))
        for routes in self._routes(clock):
            self.handlers.add(routes)

    # -- building ---------------------------------------------------------------------------------------------

    def _build_replicas(self, clock: Clock, log_manager: LogManager) -> None:
        self.replica_manager = ReplicaManager(
            config=self.config,
            log_manager=log_manager,
            timer=self.timers.timer,
            clock=clock,
            background=self.background,
            save_isr=lambda changes: self.controller_loop.save_isr(changes),  # built last, of all that obeys
            is_alive=self.metadata_cache.is_broker_alive,
            is_known=self.metadata_cache.is_known,
            observer=self.probes,
        )
        self.dynamic_config.on_change.append(self.replica_manager.take_replication_rate)
        self.fetch_sessions = FetchSessionCache(
            self.config.max_incremental_fetch_session_cache_slots, chance.generator()
        )

    def _build_groups(self, clock: Clock) -> None:
        config = self.config
        log = CoordinatorLog(
            GROUP_METADATA_TOPIC,
            replica_manager=self.replica_manager,
            partition_count=partial(self.metadata_cache.partition_count, GROUP_METADATA_TOPIC),
            clock=clock,
            codec=Codec(config.offsets_topic_compression_codec),
            required_acks=config.offsets_commit_required_acks,
            timeout_ms=config.offsets_commit_timeout_ms,
        )
        self.groups = GroupCoordinator(
            OffsetStore(log, config),
            log,
            config=config,
            clock=clock,
            timer=self.timers.timer,
            run_steps=self.background.run_steps,
            observer=self.probes,
        )

    def _build_transactions(self, clock: Clock) -> None:
        config, to = self.config, self.others.to
        log = CoordinatorLog(
            TRANSACTION_STATE_TOPIC,
            replica_manager=self.replica_manager,
            partition_count=partial(self.metadata_cache.partition_count, TRANSACTION_STATE_TOPIC),
            clock=clock,
            codec=Codec.NONE,
            required_acks=ACKS_ALL,
            timeout_ms=TRANSACTION_LOG_TIMEOUT_MS,
        )
        self.marker_channels = MarkerChannels(to, client_id=f"broker-{config.broker_id}-txn-marker-sender")
        self.addition_channels = AdditionChannels(to, client_id=f"AddPartitionsToTxnSenderThread-{config.broker_id}")
        self.markers = MarkerWriter(
            self.replica_manager,
            clock,
            broker_id=config.broker_id,
            leader_of=self.metadata_cache.leader_of,
            channels=self.marker_channels,
            complete_offsets=self.groups.on_transaction_completed,
        )
        self._producer_ids = ProducerIds(self.state)
        self.transactions = TransactionCoordinator(
            config=config,
            log=TransactionLog(log, load_bytes=config.transaction_state_log_load_buffer_size),
            markers=self.markers,
            next_producer_id=self._producer_ids.next,
            timer=self.timers.timer,
            clock=clock,
            afterwards=self.afterwards,
            run_steps=self.background.run_steps,
        )
        is_beside_kafka = self.state.is_beside_kafka
        self.features = Features(self.state, SUPPORTED if config.profile.has_features and not is_beside_kafka else ())

        def coordinator_of(transactional_id: str) -> int | None:
            number = log.partition_for(transactional_id)
            if number is None:
                return None
            return self.metadata_cache.leader_of(TopicPartition(TRANSACTION_STATE_TOPIC, number))

        self.participation = Participation(
            self.transactions,
            self.replica_manager.partitions,
            broker_id=config.broker_id,
            coordinator_of=coordinator_of,
            channels=self.addition_channels,
            is_asked=not is_beside_kafka,
            looks_at_epochs=Habit.VERIFIES_ONCE not in config.profile.habits,
            allows_adding=lambda: self.features.allows_transactions_v2,
            timer=self.timers.timer,
            clock=clock,
        )

    def _build_controller(self) -> None:
        """Build the controller, and this broker as it obeys."""
        config, state = self.config, self.state
        self.own = OwnBroker(
            self.replica_manager,
            self.metadata_cache,
            state,
            broker_id=config.broker_id,
            on_leadership=(self.groups.on_leadership, self.transactions.on_leadership),
        )
        self.own.when_deleted(self.groups.on_partitions_deleted)
        self.shared_settings = SharedSettings(own=self.own, dynamic_config=self.dynamic_config, wings=self.wings)
        self.controller_loop = ControllerLoop(config=config, state=state, own=self.own)
        self.topic_admin = TopicAdmin(
            config=config, dynamic_config=self.dynamic_config, state=state, controller_loop=self.controller_loop
        )

    def _routes(self, clock: Clock) -> Iterator[Routes]:
        """Yield the handlers of the core, by family."""
        config, state, cache, admin = self.config, self.state, self.metadata_cache, self.topic_admin
        replicas, groups, transactions = self.replica_manager, self.groups, self.transactions
        yield MetadataApis(
            config=config,
            metadata_cache=cache,
            topic_admin=admin,
            apis=self.handlers.apis,
            features=self.features,
        ).routes()
        yield ProduceApis(replicas, cache, self.participation, config.profile).routes()
        selects_by_rack = config.replica_selector_class == RACK_AWARE_SELECTOR
        manager = FetchManager(self.fetch_sessions)
        yield FetchApis(
            replicas, cache, manager, clock, selects_by_rack=selects_by_rack, profile=config.profile
        ).routes()
        yield LogOffsetApis(replicas, config.profile).routes()
        yield TopicApis(config=config, topic_admin=admin, replica_manager=replicas).routes()
        group_configs = GroupConfigs(config, lambda: state.get(GROUP_CONFIGS))
        yield ConfigApis(config=config, metadata_cache=cache, topic_admin=admin, group_configs=group_configs).routes()
        yield ClusterApis(
            config=config,
            metadata_cache=cache,
            controller_loop=self.controller_loop,
            topic_admin=admin,
            replica_manager=replicas,
        ).routes()
        yield GroupApis(
            groups,
            metadata_cache=cache,
            ensure_topic=admin.ensure_internal_topic,
            coordinated=self.coordinated,
            profile=config.profile,
        ).routes()
        yield OffsetApis(groups.offsets, ZooKeeperOffsets(state), cache, clock, config).routes()
        yield TransactionApis(
            transactions, self.markers, groups, cache, clock, self.participation, self.features, config.profile
        ).routes()
        yield DescribeTransactionApis(transactions, replicas, clock).routes()
        yield FeatureApis(self.features).routes()

    # -- running ----------------------------------------------------------------------------------------------

    @property
    def apis(self) -> Mapping[int, Api]:
        """The APIs, in the versions that this broker serves."""
        return self.handlers.apis

    def plug(self, wing: Wing) -> None:
        """Let a wing take part, behind those before."""
        self.wings.append(wing)
        self.handlers.add(wing.routes())

    @property
    def purgatories(self) -> tuple[Purgatory, ...]:
        """The purgatories in which requests wait."""
        return (*self.replica_manager.purgatories, self.groups.rebalance_purgatory)

    def lead(self) -> None:
        """Lead all partitions, and load what coordinators keep in them; the wings are plugged in by then."""
        replicas = self.replica_manager
        if not self.state.is_shared:  # else the controller has this broker take its roles
            logs = replicas.log_manager.logs
            self.controller_loop.start({each: log.leader_epochs.latest_epoch for each, log in logs.items()})
        self.transactions.start()
        self._producer_ids.skip_to(highest_producer_id(replicas, self.transactions) + 1)

    def start_tasks(self, nursery: trio.Nursery) -> None:
        """Start the tasks that requests wait for: timers, background work, markers to other brokers."""
        nursery.start_soon(self.timers.run)
        nursery.start_soon(self.background.run)
        self.marker_channels.start(nursery)
        self.addition_channels.start(nursery)

    async def shut_down(self, controller_id: int) -> bool:
        """Ask the controller to have others lead in place of this broker; return whether it did.

        As kafka 2.0.1 KafkaServer.controlledShutdown.
        """
        me = self.config.broker_id
        try:
            if controller_id == me:
                self.controller_loop.shut_down(me)
                return True
            broker = self.metadata_cache.brokers[controller_id]
            peer = self.others.at(*broker.endpoints[self.config.inter_broker_listener])
            try:
                with trio.fail_after(self.config.zookeeper_session_timeout_ms / 1000):  # then others take it for dead
                    answer = await peer.ask(ApiKey.CONTROLLED_SHUTDOWN, 1, ControlledShutdownRequest(broker_id=me))
            finally:
                peer.close()
        except (ConnectionError, KafkaError, KeyError, trio.TooSlowError) as error:
            logger.info(
                "the controller, broker %d, has not had others lead: %s", controller_id, str(error) or "no answer"
            )
            return False
        return bool(answer.error_code == ErrorCode.NONE)


def offered(profile: Profile, *, is_cluster_broker: bool) -> dict[int, Api]:
    """The APIs in the versions of the release that this broker acts as; those of its controller in all versions."""
    if profile is EVERYTHING:
        listed = {key: api for key, api in API_TABLE.items() if not api.is_unlisted}
    else:
        listed = {key: API_TABLE[key].between(*each) for key, each in versions_of(profile.name).items()}
    unlisted = {
        key: api
        for key, api in API_TABLE.items()
        if api.is_unlisted and (is_cluster_broker if api.is_between_brokers else profile.is_since(api.since.release))
    }
    return dict(sorted((listed | unlisted).items()))


def highest_producer_id(replica_manager: ReplicaManager, transactions: TransactionCoordinator) -> int:
    """Return the highest producer id in logs and transactions, -1 for none: Kafka keeps its ids in ZooKeeper."""
    logs = [role.log for _, role in replica_manager.partitions.items()]
    known = {producer_id for log in logs for producer_id in log.producer_state.producers_and_remembered}
    known |= {transaction.metadata.producer_id for transaction in transactions.transactions.values()}
    return max((each for each in known if each < PRODUCER_IDS_END), default=-1)
