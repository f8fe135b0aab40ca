"""The parts of a running broker, built in the order in which they need each other.

replicas -> groups -> transactions, whose offsets groups keep -> controller, which has all of them obey -> handlers
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import trio

from minibroker.broker.apis.cluster import ClusterApis
from minibroker.broker.apis.configs import ConfigApis
from minibroker.broker.apis.describe_transactions import DescribeTransactionApis
from minibroker.broker.apis.features import FeatureApis
from minibroker.broker.apis.fetch import FetchApis
from minibroker.broker.apis.groups import GroupApis
from minibroker.broker.apis.log_offsets import LogOffsetApis
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.offsets import OffsetApis
from minibroker.broker.apis.produce import ProduceApis
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
from minibroker.broker.config.profiles import EVERYTHING, Profile
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
from minibroker.storage import chance, real_time
from minibroker.storage.data_dir.log_manager import LogManager

logger = logging.getLogger(__name__)

TRANSACTION_LOG_TIMEOUT_MS = 30_000
REAL_SECONDS = 0.5  # in which a follower connects again, and fetches
PRODUCER_IDS_END = 1 << 62  # a broker never gives out greater ones


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts that answer requests, and `start_tasks`, which starts their timers and background work."""

    config: KafkaConfig
    options: ServeOptions
    dynamic_config: DynamicConfig
    state: ClusterState
    others: OtherBrokers
    shared_settings: SharedSettings
    timers: TimerLoop
    background: Background
    afterwards: Afterwards
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    metadata_cache: MetadataCache
    own: OwnBroker
    controller_loop: ControllerLoop
    topic_admin: TopicAdmin
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    marker_channels: MarkerChannels
    addition_channels: AdditionChannels
    handlers: Handlers
    probes: Probes
    connections: set[Connection]
    wings: list[Wing]
    lead: Callable[[], None]  # all partitions, and load what coordinators keep in them; the wings are plugged by then

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

    def start_tasks(self, nursery: trio.Nursery) -> None:
        """Start the tasks that requests wait for: timers, background work, the check for lagging followers."""
        nursery.start_soon(self.timers.run)
        nursery.start_soon(self.background.run)
        nursery.start_soon(self._watch_followers)
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

    async def _watch_followers(self) -> None:
        """Remove lagging followers from the in-sync replicas, each half of replica.lag.time.max.ms.

        Where a test has turned the clock by far more at once, followers may fetch first: they had no time to.
        """
        while True:
            self.replica_manager.drop_lagging_replicas()
            seconds = max(1, self.config.replica_lag_time_max_ms // 2) / 1000
            while await turned_seconds_in(seconds) > seconds + REAL_SECONDS:
                seconds = self.config.replica_fetch_backoff_ms / 1000 + REAL_SECONDS


async def turned_seconds_in(seconds: float) -> float:
    """Sleep; return by how much the clock was turned meanwhile."""
    began, real = trio.current_time(), real_time.perf_counter()
    await trio.sleep(seconds)
    return trio.current_time() - began - (real_time.perf_counter() - real)


def build(
    config: KafkaConfig,
    *,
    options: ServeOptions,
    clock: Clock,
    log_manager: LogManager,
    state: ClusterState,
    dynamic_config: DynamicConfig,
) -> BrokerParts:
    """Build all parts on the loaded data directory."""
    timers = TimerLoop(clock)
    background = Background()
    afterwards = Afterwards()
    metadata_cache = MetadataCache(state.cluster_id)
    probes = Probes()
    others = OtherBrokers()
    replica_manager = ReplicaManager(
        config=config,
        log_manager=log_manager,
        timer=timers.timer,
        clock=clock,
        background=background,
        save_isr=lambda changes: controller_loop.save_isr(changes),  # built last, of all that obeys
        is_alive=metadata_cache.is_broker_alive,
        is_known=metadata_cache.is_known,
        observer=probes,
    )
    dynamic_config.on_change.append(replica_manager.take_replication_rate)
    group_log = CoordinatorLog(
        GROUP_METADATA_TOPIC,
        replica_manager=replica_manager,
        partition_count=partial(metadata_cache.partition_count, GROUP_METADATA_TOPIC),
        clock=clock,
        codec=Codec(config.offsets_topic_compression_codec),
        required_acks=config.offsets_commit_required_acks,
        timeout_ms=config.offsets_commit_timeout_ms,
    )
    group_configs = GroupConfigs(config, lambda: state.get(GROUP_CONFIGS))
    groups = GroupCoordinator(
        OffsetStore(group_log, config),
        group_log,
        config=config,
        clock=clock,
        timer=timers.timer,
        run_steps=background.run_steps,
        observer=probes,
    )
    transaction_log = CoordinatorLog(
        TRANSACTION_STATE_TOPIC,
        replica_manager=replica_manager,
        partition_count=partial(metadata_cache.partition_count, TRANSACTION_STATE_TOPIC),
        clock=clock,
        codec=Codec.NONE,
        required_acks=ACKS_ALL,
        timeout_ms=TRANSACTION_LOG_TIMEOUT_MS,
    )
    marker_channels = MarkerChannels(others.to, client_id=f"broker-{config.broker_id}-txn-marker-sender")
    addition_channels = AdditionChannels(others.to, client_id=f"AddPartitionsToTxnSenderThread-{config.broker_id}")
    markers = MarkerWriter(
        replica_manager,
        clock,
        broker_id=config.broker_id,
        leader_of=metadata_cache.leader_of,
        channels=marker_channels,
        complete_offsets=groups.on_transaction_completed,
    )
    producer_ids = ProducerIds(state)
    transactions = TransactionCoordinator(
        config=config,
        log=TransactionLog(transaction_log, load_bytes=config.transaction_state_log_load_buffer_size),
        markers=markers,
        next_producer_id=producer_ids.next,
        timer=timers.timer,
        clock=clock,
        afterwards=afterwards,
        run_steps=background.run_steps,
    )
    handlers = Handlers(offered(config.profile, is_cluster_broker=state.is_shared))
    wings: list[Wing] = []
    features = Features(state, SUPPORTED if config.profile is EVERYTHING and not state.is_beside_kafka else ())

    def coordinator_of(transactional_id: str) -> int | None:
        number = transaction_log.partition_for(transactional_id)
        return None if number is None else metadata_cache.leader_of(TopicPartition(TRANSACTION_STATE_TOPIC, number))

    participation = Participation(
        transactions,
        replica_manager.partitions,
        broker_id=config.broker_id,
        coordinator_of=coordinator_of,
        channels=addition_channels,
        is_asked=not state.is_beside_kafka,
        allows_adding=lambda: features.allows_transactions_v2,
        timer=timers.timer,
        clock=clock,
    )
    own = OwnBroker(
        replica_manager,
        metadata_cache,
        state,
        broker_id=config.broker_id,
        on_leadership=(groups.on_leadership, transactions.on_leadership),
    )
    own.when_deleted(groups.on_partitions_deleted)
    controller_loop = ControllerLoop(config=config, state=state, own=own)
    topic_admin = TopicAdmin(config=config, dynamic_config=dynamic_config, state=state, controller_loop=controller_loop)

    def lead() -> None:
        if not state.is_shared:  # else the controller has this broker take its roles
            controller_loop.start({each: log.leader_epochs.latest_epoch for each, log in log_manager.logs.items()})
        transactions.start()
        producer_ids.skip_to(highest_producer_id(replica_manager, transactions) + 1)

    fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, chance.generator())
    metadata = MetadataApis(
        config=config,
        metadata_cache=metadata_cache,
        topic_admin=topic_admin,
        apis=handlers.apis,
        features=features,
    )
    families = (
        metadata,
        ProduceApis(replica_manager, metadata_cache, participation),
        FetchApis(
            replica_manager,
            metadata_cache,
            FetchManager(fetch_sessions),
            clock,
            selects_by_rack=config.replica_selector_class == RACK_AWARE_SELECTOR,
        ),
        LogOffsetApis(replica_manager),
        TopicApis(
            config=config,
            topic_admin=topic_admin,
            replica_manager=replica_manager,
        ),
        ConfigApis(config=config, metadata_cache=metadata_cache, topic_admin=topic_admin, group_configs=group_configs),
        ClusterApis(
            config=config,
            metadata_cache=metadata_cache,
            controller_loop=controller_loop,
            topic_admin=topic_admin,
            replica_manager=replica_manager,
        ),
        GroupApis(
            groups,
            metadata_cache=metadata_cache,
            ensure_topic=topic_admin.ensure_internal_topic,
            profile=config.profile,
        ),
        OffsetApis(groups.offsets, ZooKeeperOffsets(state), metadata_cache, clock, config),
        TransactionApis(transactions, markers, groups, metadata_cache, clock, participation, features),
        DescribeTransactionApis(transactions, replica_manager, clock),
        FeatureApis(features),
    )
    for family in families:
        handlers.add(family.routes())
    return BrokerParts(
        config=config,
        options=options,
        dynamic_config=dynamic_config,
        state=state,
        others=others,
        shared_settings=SharedSettings(own=own, dynamic_config=dynamic_config, wings=wings),
        timers=timers,
        background=background,
        afterwards=afterwards,
        replica_manager=replica_manager,
        fetch_sessions=fetch_sessions,
        metadata_cache=metadata_cache,
        own=own,
        controller_loop=controller_loop,
        topic_admin=topic_admin,
        groups=groups,
        transactions=transactions,
        marker_channels=marker_channels,
        addition_channels=addition_channels,
        handlers=handlers,
        probes=probes,
        connections=set(),
        wings=wings,
        lead=lead,
    )


def offered(profile: Profile, *, is_cluster_broker: bool) -> dict[int, Api]:
    """The APIs in the versions of the release that this broker acts as; those of its controller in all versions."""
    if profile is EVERYTHING:
        listed = {key: api for key, api in API_TABLE.items() if not api.is_unlisted}
    else:
        listed = {key: API_TABLE[key].until(last) for key, last in versions_of(profile.name).items()}
    unlisted = {key: api for key, api in API_TABLE.items() if api.is_unlisted and is_cluster_broker}
    return dict(sorted((listed | unlisted).items()))


def highest_producer_id(replica_manager: ReplicaManager, transactions: TransactionCoordinator) -> int:
    """Return the highest producer id in logs and transactions, -1 for none: Kafka keeps its ids in ZooKeeper."""
    logs = [role.log for _, role in replica_manager.partitions.items()]
    known = {producer_id for log in logs for producer_id in log.producer_state.producers_and_remembered}
    known |= {transaction.metadata.producer_id for transaction in transactions.transactions.values()}
    return max((each for each in known if each < PRODUCER_IDS_END), default=-1)
