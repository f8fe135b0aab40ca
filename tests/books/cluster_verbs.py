"""The verbs of conversations with a broker beside others, which are named but not there: decisions and states."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any
from unittest.mock import patch

from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.cluster.state import Change
from minibroker.broker.replica.decisions import (
    Broker,
    LeaderAndIsr,
    PartitionState,
    StopReplica,
    TopicMetadata,
    UpdateMetadata,
)
from minibroker.broker.replica.isr import IsrChange
from minibroker.protocol.api import ApiKey
from minibroker.protocol.primitives import TopicPartition
from tests.books import Script
from tests.broker.conftest import InMemoryBroker, MakeBroker

TOPIC_ID = uuid.UUID(int=7)


def racks_of(script: Script) -> dict[int, str]:
    """The other brokers that `beside 1 2:rack` names."""
    named = next((line.split()[1:] for line in script.heads if line.startswith("beside ")), [])
    return {int(number): rack for number, _, rack in (each.partition(":") for each in named)}


def beside_others(racks: Mapping[int, str], make: MakeBroker, *arguments: Any, **options: Any) -> InMemoryBroker:
    """Make a broker; if there are others, it is the controller of them."""
    with patch.object(FileState, "is_shared", bool(racks)):
        broker = make(*arguments, **options)
    if racks:
        config, state = broker.parts.config, broker.state
        own = Broker(config.advertised_endpoints, config.broker_rack)
        state.is_shared = True
        state.brokers = {config.broker_id: own} | {number: broker_at(number, rack) for number, rack in racks.items()}
    return broker


def broker_at(number: int, rack: str = "") -> Broker:
    return Broker({"PLAINTEXT": ("h", 9092 + number)}, rack or None)


class ClusterVerbs:
    """Each is about the first partition of a topic."""

    broker: InMemoryBroker

    async def controls(self, is_controller: bool) -> None:
        self.broker.state.is_controller = is_controller

    async def store(self, topic: str, leader: int, isr: Sequence[int], replicas: Sequence[int]) -> None:
        """Have a new topic in this state."""
        topics: list[Any] = [(topic, -1, -1, [(0, list(replicas))], [])]
        await self.broker.call(ApiKey.CREATE_TOPICS, 1, topics=topics, timeout_ms=1000)
        made = self.broker.state.topics[topic]
        state = PartitionState(leader, 1, tuple(isr), tuple(replicas), made.partitions[0].state_version + 1)
        self.broker.state.save("a test", Change({topic: made._replace(partitions={0: state})}))

    async def state(self, topic: str) -> list[str]:
        """Show who leads, is in sync and has replicas of each partition."""
        found = self.broker.state.topics.get(topic)
        return ["nothing"] if found is None else [told(number, each) for number, each in found.partitions.items()]

    async def role(self, topic: str) -> str:
        """Show what the broker has of a partition."""
        where = TopicPartition(topic, 0)
        role = self.broker.parts.replica_manager.partitions.any(where)
        has_log = where in self.broker.parts.replica_manager.log_manager.logs
        return f"{'no role' if role is None else type(role).__name__}, {'a log' if has_log else 'no log'}"

    async def lead(self, topic: str, leader: int, epoch: int, isr: Sequence[int], replicas: Sequence[int]) -> None:
        state = PartitionState(leader, epoch, tuple(isr), tuple(replicas))
        assert not self.broker.parts.own.obey(LeaderAndIsr(0, 1, {TopicPartition(topic, 0): state})).failures

    async def stop(self, topic: str) -> None:
        self.broker.parts.own.obey(StopReplica(0, 1, False, [TopicPartition(topic, 0)]))

    async def show(self, topic: str, leader: int, epoch: int, isr: Sequence[int], replicas: Sequence[int]) -> None:
        """Show a topic to the clients, and that brokers 0 and 1 are alive."""
        state = PartitionState(leader, epoch, tuple(isr), tuple(replicas))
        alive = {number: broker_at(number) for number in (0, 1)}
        topics = {topic: TopicMetadata(topic, TOPIC_ID, {0: state})}
        self.broker.parts.own.obey(UpdateMetadata(0, 1, alive, topics))

    async def show_racks(self, *racks: tuple[int, str]) -> None:
        alive = {number: broker_at(number, rack) for number, rack in racks}
        self.broker.parts.own.obey(UpdateMetadata(0, 1, alive, {}))

    async def caught_up(self, topic: str, *isr: int) -> None:
        """Have the leader say who is in sync, and the controller go on."""
        loop, state = self.broker.parts.controller_loop, self.broker.state.topics[topic].partitions[0]
        loop.save_isr({TopicPartition(topic, 0): IsrChange(isr, state.leader_epoch, state.state_version)})
        loop.on_news(Change({topic: self.broker.state.topics[topic]}))

    async def watermark(self, topic: str, offset: int) -> None:
        """Have the high watermark of a follower be at an offset."""
        manager, where = self.broker.parts.replica_manager, TopicPartition(topic, 0)
        role = manager.partitions.any(where)
        assert role is not None
        role.log.update_high_watermark(offset)
        manager.complete_delayed(where)


def told(number: int, state: PartitionState) -> str:
    isr, replicas = (" ".join(map(str, sorted(each))) or "none" for each in (state.in_sync_replicas, state.replicas))
    return f"partition {number}: leader {state.leader}, in sync {isr}, replicas {replicas}"
