"""A cluster in ZooKeeper, beside brokers of Apache Kafka 2.0.1: its nodes are the state, and a session is a life."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from minibroker.broker.cluster.sections import Section
from minibroker.broker.cluster.state import News
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wing import Wing

if TYPE_CHECKING:
    from minibroker.broker.wings.zookeeper_nodes.member import ZooKeeperMember
    from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperState


class ZooKeeperWing(Wing):
    """A broker of `--zookeeper`, which the wing `several` has follow and be followed."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.zookeeper is not None

    @classmethod
    def state_of(cls, config: KafkaConfig, options: ServeOptions, sections: Iterable[Section[Any]]) -> ZooKeeperState:
        from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperState
        from minibroker.zookeeper.session import parse_ensemble

        assert options.zookeeper is not None
        session_timeout_ms = config.zookeeper_session_timeout_ms
        connection_timeout_ms = config.zookeeper_connection_timeout_ms
        return ZooKeeperState(
            parse_ensemble(options.zookeeper),
            config.broker_id,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=session_timeout_ms if connection_timeout_ms is None else connection_timeout_ms,
            has_acls=bool(config.authorizer_class_name),
            sections=sections,
        )

    def member(self, shown: Callable[[], Broker], on_news: Callable[[News], None]) -> ZooKeeperMember:
        from minibroker.broker.wings.zookeeper_nodes.member import ZooKeeperMember
        from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperState

        parts, own = self._parts, self._parts.own
        assert isinstance(parts.state, ZooKeeperState)

        def take(news: News) -> None:
            on_news(news)
            own.drop_moved_in(news, is_deleted=False)  # a log that nobody has asked to delete stays, as in Kafka

        return ZooKeeperMember(
            parts.state,
            broker_id=parts.config.broker_id,
            broker=shown,
            on_news=take,
            on_connected=parts.controller_loop.catch_up,
            has_roles=lambda: own.knows_cluster.is_set() and own.has_roles.is_set(),
        )
