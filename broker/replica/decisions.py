"""The decisions of a controller that a broker obeys, as values: which replicas lead or follow, which stop, and what the
broker's clients see of the cluster.

The names and fields are those of the requests in which a controller of Kafka 2.0.1 sends them to another broker
(`cluster/decision_messages.py`); to its own broker it passes them in a call.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition

FIRST_CONTROLLER_EPOCH = 1


class PartitionState(NamedTuple):
    """The leader of a partition in an epoch. Replicas are broker ids, in order of preference.

    `leader` is NO_LEADER while no replica that may lead is on a live broker.
    """

    leader: int
    leader_epoch: int
    in_sync_replicas: tuple[int, ...]
    replicas: tuple[int, ...]
    state_version: int = 0  # larger by one with each change
    controller_epoch: int = FIRST_CONTROLLER_EPOCH  # of the controller that decided who leads

    @property
    def had_leader(self) -> bool:
        """Whether the partition has or had a leader: clients do not see one before its first."""
        return self.leader != NO_LEADER or bool(self.in_sync_replicas)


class Broker(NamedTuple):
    """A live broker: by listener the host and port that it advertises, and its rack.

    An empty host or port 0 is the one that the client has used, which works for it. `security_protocols` are those of
    listeners that are not plaintext.
    """

    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None
    security_protocols: Mapping[str, str] = {}


NO_TOPIC_ID = uuid.UUID(int=0)


class TopicMetadata(NamedTuple):
    """A topic as clients see it. `offline_replicas` are, by partition, those on live brokers that do not serve."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionState]
    offline_replicas: Mapping[int, tuple[int, ...]] = {}


class LeaderAndIsr(NamedTuple):
    """A decision on the replicas of this broker: to lead, or to follow the leader."""

    controller_id: int
    controller_epoch: int
    partitions: Mapping[TopicPartition, PartitionState]
    is_new: bool = False  # no replica of these had a log before


class StopReplica(NamedTuple):
    """The replicas that this broker no longer serves; with `delete_partitions` their logs go."""

    controller_id: int
    controller_epoch: int
    delete_partitions: bool
    partitions: Sequence[TopicPartition]


class UpdateMetadata(NamedTuple):
    """All live brokers by id, and the topics that have changed; None for a deleted one."""

    controller_id: int
    controller_epoch: int
    brokers: Mapping[int, Broker]
    topics: Mapping[str, TopicMetadata | None]


RoleDecision = LeaderAndIsr | StopReplica
Decision = RoleDecision | UpdateMetadata


class Obeyed(NamedTuple):
    """The outcome of a decision: the error of the whole, those of partitions, and whose leadership changed."""

    error: ErrorCode
    failures: Mapping[TopicPartition, KafkaError]
    gained: Sequence[TopicPartition] = ()  # led now, and not before
    lost: Sequence[TopicPartition] = ()
