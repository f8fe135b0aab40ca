"""A cluster of three brokers as its controller sees it, 3, with one partition; and what plans do with it."""

from __future__ import annotations

import uuid

from minibroker.broker.cluster.controller import Image, Plan
from minibroker.broker.cluster.sections import BEING_DELETED
from minibroker.broker.cluster.state import TopicState
from minibroker.broker.replica.decisions import Broker, Decision, PartitionState, StopReplica
from minibroker.protocol.primitives import TopicPartition

T0 = TopicPartition("t", 0)
ID = uuid.UUID(int=7)
LED_BY_1 = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), 9)


def image_of(state: PartitionState | None, alive: tuple[int, ...] = (1, 2, 3), **configs: str) -> Image:
    topics = {} if state is None else {"t": TopicState("t", {0: state}, configs, ID)}
    return Image(3, 8, {each: Broker({"PLAINTEXT": ("h", each)}) for each in alive}, topics)


def sent(plan: Plan) -> dict[int, str]:
    """The decisions of each broker, in their order: L(eaderAndIsr), U(pdateMetadata), S(topReplica), D(elete)."""

    def letter(decision: Decision) -> str:
        assert decision[:2] == (3, 8)
        is_deletion = isinstance(decision, StopReplica) and decision.delete_partitions
        return "D" if is_deletion else type(decision).__name__[0]

    return {broker_id: "".join(map(letter, decisions)) for broker_id, decisions in plan.decisions.items()}


def played(image: Image, plan: Plan) -> Image:
    """The cluster after a plan."""
    if plan.change is None:
        return image
    assert plan.change.fits(image.topics)
    topics = {name: topic for name, topic in {**image.topics, **plan.change.topics}.items() if topic is not None}
    deleted = plan.change.get(BEING_DELETED)
    return image._replace(topics=topics, being_deleted=image.being_deleted if deleted is None else deleted)
