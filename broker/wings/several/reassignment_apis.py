"""AlterPartitionReassignments v0-v1 (v1 may keep the number of replicas), ListPartitionReassignments v0.

Only the controller moves partitions. As Kafka 2.4 and later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.controller import Image, Plan
from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.wings.several.reassignment import Outcome, Wanted, reassign
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.messages.cluster import AlterPartitionReassignmentsResponse, ListPartitionReassignmentsResponse
from minibroker.protocol.primitives import TopicPartition

Body = Any


class ReassignmentApis:
    """Handlers of the APIs that move partitions to other brokers."""

    def __init__(self, controller_loop: ControllerLoop, topic_admin: TopicAdmin) -> None:
        self._controller = controller_loop
        self._topic_admin = topic_admin

    def routes(self) -> Routes:
        return {
            ApiKey.ALTER_PARTITION_REASSIGNMENTS: self.alter_partition_reassignments,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: self.list_partition_reassignments,
        }

    def alter_partition_reassignments(self, request: Request, client: Client) -> Body:
        """Begin to move partitions, or cancel that; each is on its way once this is answered."""
        self._topic_admin.check_is_controller()
        self._topic_admin.check_time(request.body.timeout_ms)
        may_change_count = request.body.allow_replication_factor_change
        wanted = [
            (TopicPartition(name, partition), replicas)
            for name, partitions in request.body.topics
            for partition, replicas in partitions
        ]
        outcomes = iter(begin(self._controller, wanted, may_change_count=may_change_count))
        topics = [
            (name, [(partition, *next(outcomes)) for partition, _ in partitions])
            for name, partitions in request.body.topics
        ]
        return AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change_count, topics=topics)

    def list_partition_reassignments(self, request: Request, client: Client) -> Body:
        """Answer with the partitions that move, all or the named ones: their replicas, and which come and go."""
        self._topic_admin.check_is_controller()
        asked = request.body.topics
        named = (
            None if asked is None else {TopicPartition(name, number) for name, numbers in asked for number in numbers}
        )
        topics = [
            (
                topic.name,
                [
                    (number, (*move.replicas, *move.removing), move.adding, move.removing)
                    for number, move in sorted(topic.reassignments.items())
                    if named is None or TopicPartition(topic.name, number) in named
                ],
            )
            for topic in self._topic_admin.topics()
        ]
        return ListPartitionReassignmentsResponse(topics=[(name, rows) for name, rows in topics if rows])


def begin(controller_loop: ControllerLoop, wanted: Sequence[Wanted], *, may_change_count: bool = True) -> list[Outcome]:
    """Begin to move partitions to other brokers, None to move one back. Raises KafkaError as `perform`."""
    outcomes: list[Outcome] = []

    def begun(image: Image) -> Plan:
        nonlocal outcomes
        plan, outcomes = reassign(image, wanted, may_change_count=may_change_count)
        return plan

    controller_loop.perform("the reassignment", begun)
    controller_loop.go_on()
    return outcomes
