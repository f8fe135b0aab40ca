"""The role of a follower in one partition. `wings/several/following.py` has one that copies its leader's records."""

from __future__ import annotations

from typing import Protocol

from minibroker.broker.replica.decisions import PartitionState
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log


class Follower:
    """A replica of `leader_id` in its `leader_epoch`."""

    def __init__(self, log: Log, *, leader_id: int, leader_epoch: int) -> None:
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class Fetchers(Protocol):
    """Copies the records of leaders into the logs that follow them."""

    def follow(
        self, topic_partition: TopicPartition, log: Log, decided: PartitionState, before: Follower | None
    ) -> Follower:
        """Fetch from the leader, if there is one, and from no other any more. Return the role, the one before or anew.

        `before` is the role of a partition that follows already.
        """

    def remove(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more, if it is fetched."""


class NoFetchers:
    """The fetchers of a broker that is alone: it copies nothing."""

    def follow(
        self, topic_partition: TopicPartition, log: Log, decided: PartitionState, before: Follower | None
    ) -> Follower:
        return Follower(log, leader_id=decided.leader, leader_epoch=decided.leader_epoch)

    def remove(self, topic_partition: TopicPartition) -> None:
        pass
