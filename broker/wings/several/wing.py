"""Several brokers on one machine: their shared state, this broker as a member, and the calls by which tests lead it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from minibroker.broker.cluster.sections import Section
from minibroker.broker.cluster.state import BrokerReturned, Change, News
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wing import Wing
from minibroker.broker.wings.several.member import ClusterMember
from minibroker.broker.wings.several.shared_state import SharedState


class SeveralWing(Wing):
    """A broker of `--cluster DIR`, or of `--brokers`."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._member: ClusterMember | None = None

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.cluster_dir is not None and options.zookeeper is None

    @classmethod
    def state_of(cls, config: KafkaConfig, options: ServeOptions, sections: Iterable[Section[Any]]) -> SharedState:
        assert options.cluster_dir is not None
        return SharedState(options.cluster_dir, config.broker_id, sections)

    def member(self, shown: Callable[[], Broker], on_news: Callable[[News], None]) -> ClusterMember:
        parts, state = self._parts, self._parts.state
        assert isinstance(state, SharedState)

        def take(news: News) -> None:
            on_news(news)
            match news:
                case BrokerReturned(broker_id) if broker_id == parts.config.broker_id:
                    parts.own.drop_moved()
                case Change(topics=topics) if topics:
                    parts.own.drop_moved(topics.keys())

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
        assert isinstance(parts.state, SharedState) and self._member is not None
        return ClusterCalls(
            broker_id=parts.config.broker_id,
            state=parts.state,
            member=self._member,
            peers=parts.peers,
            replica_manager=parts.replica_manager,
            metadata_cache=parts.metadata_cache,
            controller_loop=parts.controller_loop,
            topic_admin=parts.topic_admin,
            groups=parts.groups,
            clock=parts.timers.clock,
            session_timeout_ms=parts.config.zookeeper_session_timeout_ms,
            control=parts.options.control.path,
        ).by_name
