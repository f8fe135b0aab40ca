"""Between decisions and the messages in which a controller sends them to other brokers.

They are sent in the versions of inter.broker.protocol.version, and taken in all that kafka 2.0.1 knows. A message names
single partitions, and only those that have changed; the decision of it has whole topics, as clients see them. Messages
have neither the ids of topics nor their configs: both are in the state of the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from minibroker.broker.config.settings.endpoints import PROTOCOLS
from minibroker.broker.replica.decisions import (
    NO_TOPIC_ID,
    Broker,
    Decision,
    LeaderAndIsr,
    Obeyed,
    PartitionState,
    StopReplica,
    TopicMetadata,
    UpdateMetadata,
)
from minibroker.broker.wings.several.inter_broker_versions import NEWEST_PROTOCOL, inter_broker_versions
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError, known_error
from minibroker.protocol.messages.inter_broker import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from minibroker.protocol.primitives import TopicPartition

PLAINTEXT = PROTOCOLS[0]  # each is at its number
LEADER_OF_DELETED = -2  # in UpdateMetadata: no broker shows the partition any more

Body = Any
Topics = Mapping[str, TopicMetadata]


class Message(NamedTuple):
    """A request to another broker."""

    api_key: ApiKey
    version: int
    body: Body


# -- taken from a controller ----------------------------------------------------------------------------------------


def leader_and_isr_of(body: Body) -> LeaderAndIsr:
    rows = body.partition_states
    states = {TopicPartition(row.topic_name, row.partition): state_of(row) for row in rows}
    return LeaderAndIsr(
        body.controller_id, body.controller_epoch, states, bool(rows) and all(row.is_new for row in rows)
    )


def stop_replica_of(body: Body) -> StopReplica:
    partitions = [TopicPartition(row.topic_name, row.partition) for row in body.partitions]
    return StopReplica(body.controller_id, body.controller_epoch, body.delete_partitions, partitions)


def update_metadata_of(body: Body, known: Topics) -> UpdateMetadata:
    """Make a decision on whole topics, from the topics that this broker shows and the partitions in the message."""
    changed: dict[str, dict[int, Body]] = {}
    for row in body.partition_states:
        changed.setdefault(row.topic_name, {})[row.partition] = row
    brokers = {row.broker_id: broker_of(row) for row in body.live_brokers}
    topics: dict[str, TopicMetadata | None] = {}
    for name, rows in changed.items():
        before = known.get(name)
        partitions = {} if before is None else dict(before.partitions)
        offline = {} if before is None else dict(before.offline_replicas)
        for number, row in rows.items():
            if row.leader == LEADER_OF_DELETED:
                partitions.pop(number, None)
            else:
                partitions[number] = state_of(row)
            down = tuple(each for each in row.offline_replicas if each in brokers)
            offline.pop(number, None)
            if down:
                offline[number] = down
        in_order = {number: partitions[number] for number in sorted(partitions)}
        topics[name] = TopicMetadata(name, NO_TOPIC_ID, in_order, offline) if in_order else None
    return UpdateMetadata(body.controller_id, body.controller_epoch, brokers, topics)


def state_of(row: Body) -> PartitionState:
    isr, replicas = tuple(row.isr), tuple(row.replicas)
    return PartitionState(row.leader, row.leader_epoch, isr, replicas, row.state_version, row.controller_epoch)


def broker_of(row: Body) -> Broker:
    """A broker of a message: before v3 listeners have the names of their security protocols, v0 has a plaintext one."""
    if not row.endpoints:
        return Broker({PLAINTEXT: (row.host, row.port)}, row.rack)
    endpoints: dict[str, tuple[str, int]] = {}
    secured: dict[str, str] = {}
    for endpoint in row.endpoints:
        if not 0 <= endpoint.security_protocol < len(PROTOCOLS):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"no security protocol has the number {endpoint.security_protocol}"
            )
        protocol = PROTOCOLS[endpoint.security_protocol]
        listener = endpoint.listener or protocol
        endpoints[listener] = endpoint.host, endpoint.port
        if protocol != PLAINTEXT:
            secured[listener] = protocol
    return Broker(endpoints, row.rack, secured)


# -- sent to other brokers ------------------------------------------------------------------------------------------


class Shown:
    """The part of the cluster that another broker shows, by the decisions it has obeyed; messages have only news.

    They have the versions of `protocol_version`.
    """

    def __init__(self, protocol_version: str = NEWEST_PROTOCOL) -> None:
        self._versions = inter_broker_versions(protocol_version)
        self._brokers: Mapping[int, Broker] = {}
        self._topics: dict[str, TopicMetadata] = {}

    def message_of(self, decision: Decision, listener: str) -> Message:
        """The message that takes a decision to the broker; leaders have the address of their `listener`."""
        if isinstance(decision, UpdateMetadata):
            return self._update_message(decision)
        if isinstance(decision, StopReplica):
            partitions = list(decision.partitions)
            body = StopReplicaRequest(
                controller_id=decision.controller_id,
                controller_epoch=decision.controller_epoch,
                delete_partitions=decision.delete_partitions,
                partitions=partitions,
            )
            return Message(ApiKey.STOP_REPLICA, 0, body)
        return self._roles_message(decision, listener)

    def note_obeyed(self, decision: Decision) -> None:
        """Note that the broker has obeyed a decision."""
        if isinstance(decision, UpdateMetadata):
            self._brokers = decision.brokers
            for name, topic in decision.topics.items():
                if topic is None:
                    self._topics.pop(name, None)
                else:
                    self._topics[name] = topic

    def _roles_message(self, decision: LeaderAndIsr, listener: str) -> Message:
        leaders = sorted({state.leader for state in decision.partitions.values()} & self._brokers.keys())
        body = LeaderAndIsrRequest(
            controller_id=decision.controller_id,
            controller_epoch=decision.controller_epoch,
            partition_states=[
                (*row_of(topic_partition, state), decision.is_new)
                for topic_partition, state in decision.partitions.items()
            ],
            live_leaders=[
                (leader, *self._brokers[leader].endpoints[listener])
                for leader in leaders
                if listener in self._brokers[leader].endpoints
            ],
        )
        return Message(ApiKey.LEADER_AND_ISR, self._versions[ApiKey.LEADER_AND_ISR], body)

    def _update_message(self, decision: UpdateMetadata) -> Message:
        brokers = decision.brokers
        came_or_went = frozenset(self._brokers.keys() ^ brokers.keys())
        rows = [
            row for name, topic in decision.topics.items() for row in self._rows(name, topic, brokers, came_or_went)
        ]
        broker_row = UpdateMetadataRequest.row("live_brokers")
        live = [
            broker_row(broker_id=broker_id, endpoints=endpoint_rows(broker), rack=broker.rack)
            for broker_id, broker in brokers.items()
        ]
        body = UpdateMetadataRequest(
            controller_id=decision.controller_id,
            controller_epoch=decision.controller_epoch,
            partition_states=rows,
            live_brokers=live,
        )
        return Message(ApiKey.UPDATE_METADATA, self._versions[ApiKey.UPDATE_METADATA], body)

    def _rows(
        self, name: str, topic: TopicMetadata | None, brokers: Collection[int], came_or_went: frozenset[int]
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a topic's partitions that the broker does not show so, also where other replicas are offline."""
        before = self._topics.get(name)
        shown = {} if before is None else before.partitions
        offline_before = {} if before is None else before.offline_replicas
        partitions, offline = ({}, {}) if topic is None else (topic.partitions, topic.offline_replicas)
        for number, state in partitions.items():
            if (
                state != shown.get(number)
                or offline.get(number) != offline_before.get(number)
                or not came_or_went.isdisjoint(state.replicas)
            ):
                down = tuple(each for each in state.replicas if each not in brokers or each in offline.get(number, ()))
                yield (*row_of(TopicPartition(name, number), state), down)
        for number, state in shown.items():
            if number not in partitions:
                deleted = state._replace(leader=LEADER_OF_DELETED, leader_epoch=0, state_version=0)
                down = tuple(each for each in state.replicas if each not in brokers)
                yield (*row_of(TopicPartition(name, number), deleted), down)


def row_of(topic_partition: TopicPartition, state: PartitionState) -> tuple[Any, ...]:
    """The fields that both messages have of a partition."""
    return (
        *topic_partition,
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        state.in_sync_replicas,
        state.state_version,
        state.replicas,
    )


def endpoint_rows(broker: Broker) -> list[tuple[int, str, str, int]]:
    protocols = broker.security_protocols
    return [
        (port, host, listener, PROTOCOLS.index(protocols.get(listener, PLAINTEXT)))
        for listener, (host, port) in broker.endpoints.items()
    ]


def obeyed_of(api_key: ApiKey, body: Body) -> Obeyed:
    """The outcome that a broker has answered."""
    rows = () if api_key is ApiKey.UPDATE_METADATA else body.partition_errors
    failures = {
        TopicPartition(row.topic_name, row.partition): KafkaError(known_error(row.error_code))
        for row in rows
        if row.error_code
    }
    return Obeyed(known_error(body.error_code), failures)
