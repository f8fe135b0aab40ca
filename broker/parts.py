"""The parts of a running broker, built in the order in which they need each other.

replicas -> controller (leads every partition) -> groups -> transactions, whose offsets groups keep -> handlers
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

import trio

from minibroker.broker.apis.acls import AclApis
from minibroker.broker.apis.charge import Charging
from minibroker.broker.apis.client_quotas import ClientQuotaApis
from minibroker.broker.apis.cluster import ClusterApis
from minibroker.broker.apis.configs import ConfigApis
from minibroker.broker.apis.describe_transactions import DescribeTransactionApis
from minibroker.broker.apis.fetch import FetchApis
from minibroker.broker.apis.groups import KEY_GROUP, KEY_TRANSACTION, GroupApis
from minibroker.broker.apis.log_offsets import LogOffsetApis
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.offsets import OffsetApis
from minibroker.broker.apis.produce import ProduceApis
from minibroker.broker.apis.security import SaslApis
from minibroker.broker.apis.topics import TopicApis
from minibroker.broker.apis.transactions import TransactionApis
from minibroker.broker.cluster.controller import Controller
from minibroker.broker.cluster.metadata_cache import TRANSACTION_STATE_TOPIC, MetadataCache
from minibroker.broker.cluster.reset_topics import ResetTopics
from minibroker.broker.cluster.topic_store import TopicStore
from minibroker.broker.cluster.zookeeper import ZooKeeperOffsets
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import EVERYTHING, Profile
from minibroker.broker.config.settings.types import LONG_MAX
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.quota.client_quotas import ClientQuotas
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.replica.fetch_context import FetchManager
from minibroker.broker.replica.fetch_session import FetchSessionCache
from minibroker.broker.replica.leading import ACKS_ALL
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.security.acls.acl_store import AclStore
from minibroker.broker.security.acls.authorizer import Authorizer
from minibroker.broker.security.principal import parse_principal
from minibroker.broker.security.sasl.users import ScramUsers
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.transaction.coordinator import TransactionCoordinator
from minibroker.broker.transaction.markers import MarkerWriter
from minibroker.broker.transaction.transaction_log import TransactionLog
from minibroker.broker.upkeep.afterwards import Afterwards
from minibroker.broker.upkeep.background import Background
from minibroker.broker.way.codec import Handlers
from minibroker.broker.way.probes import Probes
from minibroker.protocol.api import API_TABLE, Api
from minibroker.protocol.api_table import versions_of
from minibroker.protocol.compression import Codec
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.purgatory.purgatory import Purgatory
from minibroker.storage.data_dir.log_manager import LogManager

TRANSACTION_LOG_TIMEOUT_MS = 30_000
PRODUCER_IDS_END = 1 << 62  # a broker never gives out greater ones


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts that answer requests, and `start_tasks`, which starts their timers and background work."""

    config: KafkaConfig
    timers: TimerLoop
    background: Background
    afterwards: Afterwards
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    metadata_cache: MetadataCache
    controller: Controller
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    scram_users: ScramUsers
    client_quotas: ClientQuotas
    charging: Charging
    authorizer: Authorizer | None
    apis: Mapping[int, Api]  # in the versions that this broker serves
    handlers: Handlers
    probes: Probes

    @property
    def purgatories(self) -> tuple[Purgatory, ...]:
        """Where requests wait."""
        replicas = self.replica_manager
        return (
            replicas.fetch_purgatory,
            replicas.produce_purgatory,
            replicas.delete_records_purgatory,
            self.groups.rebalance_purgatory,
        )

    def start_tasks(self, nursery: trio.Nursery) -> None:
        """Start the tasks that requests wait for: timers, background work, the check for lagging followers."""
        nursery.start_soon(self.timers.run)
        nursery.start_soon(self.background.run)
        nursery.start_soon(self._watch_followers)

    async def _watch_followers(self) -> None:
        """Remove lagging followers from the in-sync replicas, each half of replica.lag.time.max.ms."""
        while True:
            self.replica_manager.drop_lagging_replicas()
            await trio.sleep(max(1, self.config.replica_lag_time_max_ms // 2) / 1000)


def build(
    config: KafkaConfig, *, clock: Clock, log_manager: LogManager, store: TopicStore, dynamic_config: DynamicConfig
) -> BrokerParts:
    """Build all parts on the loaded data directory, and lead all partitions."""
    timers = TimerLoop(clock)
    background = Background()
    afterwards = Afterwards()
    probes = Probes()
    metadata_cache = MetadataCache(config.broker_id, store.cluster_id)
    replica_manager = ReplicaManager(
        config=config,
        log_manager=log_manager,
        timer=timers.timer,
        clock=clock,
        background=background,
        save_isr=store.save_isr,
        is_alive=metadata_cache.is_broker_alive,
        observer=probes,
    )
    controller = Controller(
        config=config,
        dynamic_config=dynamic_config,
        store=store,
        metadata_cache=metadata_cache,
        replica_manager=replica_manager,
    )
    controller.start()
    group_log = coordinator_log(
        GROUP_METADATA_TOPIC,
        controller,
        metadata_cache,
        replica_manager,
        clock=clock,
        codec=Codec(config.offsets_topic_compression_codec),
        required_acks=config.offsets_commit_required_acks,
        timeout_ms=config.offsets_commit_timeout_ms,
    )
    groups = GroupCoordinator(
        OffsetStore(group_log, config),
        group_log,
        config=config,
        clock=clock,
        timer=timers.timer,
        observer=probes,
    )
    groups.start()
    transaction_log = coordinator_log(
        TRANSACTION_STATE_TOPIC,
        controller,
        metadata_cache,
        replica_manager,
        clock=clock,
        codec=Codec.NONE,
        required_acks=ACKS_ALL,
        timeout_ms=TRANSACTION_LOG_TIMEOUT_MS,
    )
    markers = MarkerWriter(replica_manager, clock, complete_offsets=groups.on_transaction_completed)
    transactions = TransactionCoordinator(
        config=config,
        log=TransactionLog(transaction_log, load_bytes=config.transaction_state_log_load_buffer_size),
        markers=markers,
        next_producer_id=controller.next_producer_id,
        timer=timers.timer,
        clock=clock,
        afterwards=afterwards,
    )
    transactions.start()
    controller.on_topic_deleted += (groups.on_topic_deleted, transactions.on_topic_deleted)
    store.next_producer_id = max(store.next_producer_id, highest_producer_id(replica_manager, transactions) + 1)
    authorizer, acls = None, None
    if config.authorizer_class_name:
        authorizer = Authorizer(
            super_users=list(map(parse_principal, config.super_users)),
            allows_everyone_without_rules=config.allow_everyone_if_no_acl_found,
        )
        acls = AclStore(store, authorizer)
    fetch_sessions = FetchSessionCache(config.max_incremental_fetch_session_cache_slots, Random())
    quotas = ClientQuotas(
        config.quota_window_num,
        config.quota_window_size_seconds,
        producer_default=limit_of(config.quota_producer_default),
        consumer_default=limit_of(config.quota_consumer_default),
    )
    for entity, limits in store.client_quotas.items():
        quotas.set(entity, limits)
    reset_topics = ResetTopics(clock)
    apis = offered(config.profile)
    metadata = MetadataApis(
        config=config,
        metadata_cache=metadata_cache,
        controller=controller,
        reset_topics=reset_topics,
        served=list(apis.values()),
        authorizer=authorizer,
    )
    scram_users = ScramUsers(store)
    families = (
        metadata,
        ProduceApis(replica_manager, authorizer),
        FetchApis(replica_manager, metadata_cache, FetchManager(fetch_sessions), clock, authorizer),
        LogOffsetApis(replica_manager),
        TopicApis(
            config=config,
            controller=controller,
            replica_manager=replica_manager,
            reset_topics=reset_topics,
            authorizer=authorizer,
        ),
        AclApis(acls),
        SaslApis(scram_users),
        ConfigApis(config=config, metadata_cache=metadata_cache, controller=controller),
        ClusterApis(
            config=config,
            metadata_cache=metadata_cache,
            controller=controller,
            replica_manager=replica_manager,
            address_for=metadata.address_for,
            authorizer=authorizer,
        ),
        GroupApis(
            groups,
            ensure_topics={KEY_GROUP: group_log.ensure_topic, KEY_TRANSACTION: transaction_log.ensure_topic},
            address_for=metadata.address_for,
            broker_id=config.broker_id,
            profile=config.profile,
            authorizer=authorizer,
        ),
        OffsetApis(groups.offsets, ZooKeeperOffsets(store), metadata_cache, clock, config),
        TransactionApis(transactions, markers, groups, metadata_cache, clock, authorizer),
        DescribeTransactionApis(transactions, replica_manager),
        ClientQuotaApis(store, quotas),
    )
    return BrokerParts(
        config=config,
        timers=timers,
        background=background,
        afterwards=afterwards,
        replica_manager=replica_manager,
        fetch_sessions=fetch_sessions,
        metadata_cache=metadata_cache,
        controller=controller,
        groups=groups,
        transactions=transactions,
        scram_users=scram_users,
        client_quotas=quotas,
        charging=Charging(quotas, clock),
        authorizer=authorizer,
        apis=apis,
        handlers=Handlers(families),
        probes=probes,
    )


def offered(profile: Profile) -> dict[int, Api]:
    """The APIs in the versions of the release that this broker acts as."""
    if profile is EVERYTHING:
        return dict(sorted(API_TABLE.items()))
    return {key: API_TABLE[key].until(last) for key, last in sorted(versions_of(profile.name).items())}


def limit_of(default: int) -> float | None:
    """The limit that `quota.producer.default` or `quota.consumer.default` sets; None for their own default."""
    return None if default == LONG_MAX else float(default)


def coordinator_log(
    topic: str,
    controller: Controller,
    metadata_cache: MetadataCache,
    replica_manager: ReplicaManager,
    *,
    clock: Clock,
    codec: Codec,
    required_acks: int,
    timeout_ms: int,
) -> CoordinatorLog:
    """Build the log of a coordinator on its internal topic, which the controller creates at its first use."""
    return CoordinatorLog(
        topic,
        replica_manager=replica_manager,
        create_topic=lambda: len(controller.ensure_internal_topic(topic).partitions),
        partition_count=partial(metadata_cache.partition_count, topic),
        clock=clock,
        codec=codec,
        required_acks=required_acks,
        timeout_ms=timeout_ms,
    )


def highest_producer_id(replica_manager: ReplicaManager, transactions: TransactionCoordinator) -> int:
    """Return the highest producer id in logs and transactions, -1 for none: Kafka keeps its ids in ZooKeeper."""
    logs = [role.log for _, role in replica_manager.partitions.items()]
    known = {producer_id for log in logs for producer_id in log.producer_state.producers_and_remembered}
    known |= {transaction.metadata.producer_id for transaction in transactions.transactions.values()}
    return max((each for each in known if each < PRODUCER_IDS_END), default=-1)
