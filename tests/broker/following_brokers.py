"""Brokers that follow each other over sockets, in one process: their controller is the test."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import trio

from minibroker.broker.network.connection import Connection
from minibroker.broker.network.server import Server
from minibroker.broker.replica.decisions import (
    Broker,
    LeaderAndIsr,
    PartitionState,
    StopReplica,
    TopicMetadata,
    UpdateMetadata,
)
from minibroker.broker.replica.other_broker import OtherBroker
from minibroker.broker.wings.several.fetcher_manager import FetcherManager
from minibroker.broker.wings.several.following import Following
from minibroker.broker.wings.several.wing import SeveralWing
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log
from tests.broker.conftest import InMemoryBroker, MakeBroker

CONTROLLER = 100
Edit = Callable[[int, Any], Any]  # of the answer to an API
POLLS = 2000  # more is for ever


class Heard:
    """A connection to a leader of which the test hears the requests, and may edit the answers."""

    def __init__(self, leader: OtherBroker, side: Side) -> None:
        self._leader = leader
        self._side = side

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        self._side.asked.append((ApiKey(api_key), request))
        answer = await self._leader.ask(api_key, version, request)
        return self._side.edit(api_key, answer)

    def close(self) -> None:
        self._leader.close()


class Side:
    """One of the brokers, with its socket, and the requests of its fetchers."""

    def __init__(self, broker: InMemoryBroker, broker_id: int) -> None:
        self.broker = broker
        self.id = broker_id
        self.asked: list[tuple[ApiKey, Any]] = []
        self.connected: list[tuple[int, str]] = []
        self.edit: Edit = lambda api_key, answer: answer
        self._connect_to = self.fetchers._connect_to
        self.fetchers._connect_to = self._connect
        self.connections: set[Connection] = set()
        self._server: Server | None = None
        self._listen()

    def _listen(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self.address: tuple[str, int] = listener.getsockname()[:2]
        self._unserved: socket.socket | None = listener

    def close(self) -> None:
        if self._unserved is not None:
            self._unserved.close()

    def move(self) -> None:
        """Close all sockets, and listen elsewhere; nobody is told."""
        assert self._server is not None
        self._server.stop_accepting()
        self._server.cancel_connections()
        self._listen()

    @property
    def fetchers(self) -> FetcherManager:
        return next(each.fetchers for each in self.broker.parts.wings if isinstance(each, SeveralWing))

    def _connect(self, broker_id: int, client_id: str) -> Heard:
        self.connected.append((broker_id, client_id))
        return Heard(self._connect_to(broker_id, client_id), self)

    def fetches(self) -> list[Any]:
        """The Fetch requests since the last look."""
        asked, self.asked = self.asked, []
        return [request for api_key, request in asked if api_key is ApiKey.FETCH]

    async def serve(self) -> None:
        parts, listener = self.broker.parts, self._unserved
        assert listener is not None
        self._unserved = None
        self._server = Server(
            [listener],
            config=parts.config,
            dispatch=self.broker.way.serve,
            timers=parts.timers,
            afterwards=parts.afterwards,
            connections=self.connections,
        )
        await self._server.run()

    def log(self, topic_partition: TopicPartition) -> Log:
        role = self.broker.parts.replica_manager.partitions.any(topic_partition)
        assert role is not None, f"broker {self.id} has no {topic_partition}"
        return role.log

    def following(self, topic_partition: TopicPartition) -> Following:
        role = self.broker.parts.replica_manager.partitions.any(topic_partition)
        assert isinstance(role, Following)
        return role


class Cluster:
    """Brokers 0, 1, ... of which the test is the controller."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self.sides = sides
        self._epochs: dict[TopicPartition, int] = {}

    def tell_metadata(self, *topic_partitions: TopicPartition, to: Sequence[int] | None = None) -> None:
        """Tell brokers, or all, where brokers are, and which partitions there are."""
        brokers = {side.id: Broker({"PLAINTEXT": side.address}) for side in self.sides}
        topics: dict[str, TopicMetadata] = {}
        for each in topic_partitions:
            state = PartitionState(0, 0, (0,), tuple(range(len(self.sides))))
            before = topics.get(each.topic)
            partitions = {} if before is None else dict(before.partitions)
            topics[each.topic] = TopicMetadata(each.topic, uuid.UUID(int=0), partitions | {each.partition: state})
        for side in self.sides:
            if to is None or side.id in to:
                side.broker.parts.own.obey(UpdateMetadata(CONTROLLER, 1, brokers, topics))

    def lead(
        self,
        leader: int,
        *topic_partitions: TopicPartition,
        to: Sequence[int] | None = None,
        step: int = 1,
        in_sync: tuple[int, ...] | None = None,
    ) -> None:
        """Decide on a leader, in a newer epoch; tell brokers, or all."""
        self.tell_metadata(*topic_partitions)
        states = {}
        for each in topic_partitions:
            epoch = self._epochs[each] = self._epochs.get(each, 0) + step
            replicas = tuple(side.id for side in self.sides)
            states[each] = PartitionState(leader, epoch, in_sync or replicas, replicas)
        for side in self.sides:
            if to is None or side.id in to:
                obeyed = side.broker.parts.own.obey(LeaderAndIsr(CONTROLLER, 1, states))
                assert not obeyed.failures, obeyed

    def stop_replica(self, broker_id: int, *topic_partitions: TopicPartition) -> None:
        obeyed = self.sides[broker_id].broker.parts.own.obey(StopReplica(CONTROLLER, 1, False, topic_partitions))
        assert not obeyed.failures, obeyed

    def logs(self, topic_partition: TopicPartition) -> list[Log]:
        return [side.log(topic_partition) for side in self.sides]

    async def until_equal(self, *topic_partitions: TopicPartition) -> None:
        """Wait until all logs end where the first does."""
        for each in topic_partitions:
            await until(partial(self._are_equal, each))

    def _are_equal(self, topic_partition: TopicPartition) -> bool:
        return len({log.log_end_offset for log in self.logs(topic_partition)}) == 1


async def until(is_true: Callable[[], Any]) -> None:
    """Wait, on the jumping clock, until it is."""
    for _ in range(POLLS):
        if is_true():
            return
        await trio.sleep(0.01)
    raise AssertionError("waited for ever")


def files_of(log: Log) -> dict[str, bytes]:
    """The segments of a log, by name."""
    return {segment.path.name: segment.path.read_bytes() for segment in log.segments}


def make_cluster(make_broker: MakeBroker, nursery: trio.Nursery, count: int, **settings: object) -> Cluster:
    sides = [Side(make_broker(broker_id=number, **settings), number) for number in range(count)]
    for side in sides:
        nursery.start_soon(side.serve)
    return Cluster(sides)
