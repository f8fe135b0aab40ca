"""The decisions of a controller that a broker obeys, as values: which replicas lead or follow, and which stop.

The names and fields are those of the requests in which a controller of Kafka 2.0.1 sends them; the controller of this
broker passes them in a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition


class PartitionDecision(NamedTuple):
    """The leader of a partition in this epoch, and its replicas. Replicas are broker ids, in order of preference."""

    leader: int
    leader_epoch: int
    in_sync_replicas: tuple[int, ...]
    replicas: tuple[int, ...]
    state_version: int = 0  # of the partition's state in the cluster
    is_new: bool = False  # no replica had a log before


class LeaderAndIsr(NamedTuple):
    """A decision on the replicas of this broker: to lead, or to follow the leader."""

    controller_id: int
    controller_epoch: int
    partitions: Mapping[TopicPartition, PartitionDecision]


class StopReplica(NamedTuple):
    """The replicas that this broker no longer serves; with `delete_partitions` their logs go."""

    controller_id: int
    controller_epoch: int
    delete_partitions: bool
    partitions: Sequence[TopicPartition]


Decision = LeaderAndIsr | StopReplica


class Obeyed(NamedTuple):
    """The outcome of a decision: the error of the whole, and those of partitions."""

    error: ErrorCode
    failures: Mapping[TopicPartition, KafkaError]
