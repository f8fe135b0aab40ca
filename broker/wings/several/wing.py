"""Several brokers: how this one reaches the others, follows leaders, and controls or obeys a controller.

With `--cluster DIR` or `--brokers` the brokers are on one machine and share their state; with `--zookeeper` it is in
ZooKeeper (`wings/zookeeper_nodes/`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.sections import ASKED_MOVES, Section
from minibroker.broker.cluster.state import News
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.replica.replication_quota import FOLLOWER_RATE, ReplicationQuota, window_of
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wing import Wing
from minibroker.broker.wings.several.broker_channels import BrokerChannels
from minibroker.broker.wings.several.fetcher_manager import FetcherManager
from minibroker.broker.wings.several.follower_watch import watch_followers
from minibroker.broker.wings.several.inter_broker_apis import InterBrokerApis
from minibroker.broker.wings.several.member import ClusterMember
from minibroker.broker.wings.several.peer_login import IN_PLAIN_TEXT, PeerLogin
from minibroker.broker.wings.several.peers import Peers
from minibroker.broker.wings.several.reassignment import as_asked, continue_reassignments
from minibroker.broker.wings.several.reassignment_apis import ReassignmentApis
from minibroker.broker.wings.several.shared_state import SharedState

PLAINTEXT = "PLAINTEXT"


class SeveralWing(Wing):
    """Every broker has it: one that is alone moves partitions too, to itself, and has no others to reach."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._member: ClusterMember | None = None
        config, replica_manager, controller_loop = parts.config, parts.replica_manager, parts.controller_loop
        self.peers = Peers(config, parts.metadata_cache, login_of(config) if parts.state.is_shared else IN_PLAIN_TEXT)
        parts.others.reach_by(self.peers)
        self._quota = ReplicationQuota(window_of(config))
        self._take_replication_rate()
        self.fetchers = FetcherManager(
            connect_to=self.peers.to,
            config=config,
            clock=parts.timers.clock,
            log_manager=replica_manager.log_manager,
            flusher=replica_manager.flusher,
            background=parts.background,
            quota=self._quota,
            on_offline=replica_manager.complete_all_delayed,
            on_progress=replica_manager.complete_delayed,
        )
        replica_manager.partitions.follow_by(self.fetchers)
        parts.dynamic_config.on_change.extend([self.fetchers.spread, self._take_replication_rate])
        self._channels = BrokerChannels(
            own_id=config.broker_id,
            connect=self.peers.at,
            listener=config.inter_broker_listener,
            on_answer=controller_loop.on_answer,
            protocol_version=config.inter_broker_protocol_version,
        )
        controller_loop.reach_by(self._channels)
        controller_loop.add_step(continue_reassignments)
        controller_loop.obey(ASKED_MOVES, as_asked)

    def _take_replication_rate(self) -> None:
        self._quota.set_limit(self._parts.config.of_broker, FOLLOWER_RATE)

    @classmethod
    def state_of(
        cls, config: KafkaConfig, options: ServeOptions, sections: Iterable[Section[Any]]
    ) -> SharedState | None:
        if options.cluster_dir is None:
            return None
        return SharedState(options.cluster_dir, config.broker_id, sections)

    def routes(self) -> Routes:
        parts = self._parts
        return (
            InterBrokerApis(
                own=parts.own,
                metadata_cache=parts.metadata_cache,
                state=parts.state,
                controller_loop=parts.controller_loop,
            ).routes()
            | ReassignmentApis(parts.controller_loop, parts.topic_admin).routes()
        )

    def tasks(self) -> Sequence[Callable[[], Awaitable[object]]]:
        parts = self._parts
        watch = partial(watch_followers, parts.config, parts.replica_manager)
        return [watch, self._channels.run] if parts.state.is_shared else [watch]

    def member(self, shown: Callable[[], Broker], on_news: Callable[[News], None]) -> ClusterMember | None:
        parts, state = self._parts, self._parts.state
        if not isinstance(state, SharedState):
            return None

        def take(news: News) -> None:
            on_news(news)
            parts.own.drop_moved_in(news, is_deleted=True)

        self._member = ClusterMember(
            state,
            broker_id=parts.config.broker_id,
            broker=shown,
            session_timeout_ms=parts.config.zookeeper_session_timeout_ms,
            on_news=take,
            on_beat=parts.controller_loop.catch_up,
        )
        return self._member

    def calls(self) -> Mapping[str, Callable[..., object]]:
        from minibroker.broker.wings.several.cluster_calls import ClusterCalls

        parts = self._parts
        if not isinstance(parts.state, SharedState):
            return {}
        assert self._member is not None and parts.options.control is not None
        return ClusterCalls(
            broker_id=parts.config.broker_id,
            state=parts.state,
            member=self._member,
            peers=self.peers,
            fetchers=self.fetchers,
            replica_manager=parts.replica_manager,
            metadata_cache=parts.metadata_cache,
            controller_loop=parts.controller_loop,
            topic_admin=parts.topic_admin,
            groups=parts.groups,
            clock=parts.timers.clock,
            session_timeout_ms=parts.config.zookeeper_session_timeout_ms,
            control=parts.options.control.path,
        ).by_name


def login_of(config: KafkaConfig) -> PeerLogin:
    """The login at the listener of the other brokers. Raises KeyStoreError and SaslError."""
    name = config.inter_broker_listener
    if next(each for each in config.endpoints if each.name == name).protocol == PLAINTEXT:
        return IN_PLAIN_TEXT
    from minibroker.broker.wings.security.peer_login import peer_login

    return peer_login(config)
