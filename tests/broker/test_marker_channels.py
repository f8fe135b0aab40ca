"""Transactions over partitions of two brokers: the coordinator's broker 0 has broker 1 write its markers, and broker 1
asks it whether its partitions take part."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.lowlevel

from minibroker.broker.cluster.metadata_cache import TRANSACTION_STATE_TOPIC
from minibroker.broker.replica.decisions import Broker, LeaderAndIsr, PartitionState, StopReplica, UpdateMetadata
from minibroker.broker.transaction.marker_channels import Marker, MarkerChannels
from minibroker.broker.transaction.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, PREPARE_COMMIT
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.transactional import FEW, Producer, committed, started, state_of

pytestmark = pytest.mark.time_jumps

HERE, THERE = TopicPartition("a", 0), TopicPartition("a", 1)
NONE, LEADER_NOT_AVAILABLE = ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE
REFUSED = ConnectionError("refused")


class Line:
    """The connections to broker 1: the requests on them, and what happens to each, where it is not answered."""

    def __init__(self, answer: Callable[[int, int, Any], Awaitable[Any]]) -> None:
        self.answer = answer
        self.connected: list[tuple[int, str]] = []
        self.asked: list[Any] = []
        self.failures: list[Exception] = []
        self.delay_seconds = 0.0

    def connect_to(self, broker_id: int, client_id: str) -> Line:
        self.connected.append((broker_id, client_id))
        return self

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        self.asked.append(request)
        await trio.sleep(0.01)
        if self.failures:
            raise self.failures.pop(0)
        answer = await self.answer(api_key, version, request)
        await trio.sleep(self.delay_seconds)
        return answer

    def close(self) -> None:
        self.connected.append((-1, "closed"))


class Pair:
    """Broker 0, which leads HERE and coordinates, and broker 1, which leads THERE."""

    def __init__(self, coordinator: InMemoryBroker, other: InMemoryBroker, producer: Producer) -> None:
        self.coordinator, self.other, self.producer = coordinator, other, producer

        async def answer(api_key: int, version: int, request: Any) -> Any:
            return await self.other.call(ApiKey(api_key), version, **request._asdict())

        async def answer_back(api_key: int, version: int, request: Any) -> Any:
            return await self.coordinator.call(ApiKey(api_key), version, **request._asdict())

        self.line, self.line_back = Line(answer), Line(answer_back)
        self.coordinator.parts.marker_channels._connect_to = self.line.connect_to
        self.other.parts.addition_channels._connect_to = self.line_back.connect_to

    def decide(self, broker: InMemoryBroker, leader: int, epoch: int) -> None:
        state = PartitionState(leader, epoch, (leader,), (0, 1))
        assert not broker.parts.own.obey(LeaderAndIsr(0, 1, {THERE: state})).failures

    def show(self, leader: int) -> None:
        cache = self.coordinator.parts.metadata_cache
        brokers = dict.fromkeys((0, 1), Broker({"PLAINTEXT": ("localhost", 1)}))
        topic = cache.topics["a"]
        state = topic.partitions[1]._replace(leader=leader)
        topic = topic._replace(partitions={**topic.partitions, 1: state})
        for broker in (self.coordinator, self.other):
            states = cache.topics[TRANSACTION_STATE_TOPIC]
            broker.parts.own.obey(UpdateMetadata(0, 1, brokers, {"a": topic, TRANSACTION_STATE_TOPIC: states}))

    async def transaction(self) -> Producer:
        """An open transaction, with a record in each of the partitions."""
        producer = self.producer
        await producer.send("a", b"here")
        assert await producer.add("a", 1) == [NONE]
        producer.broker = self.other
        assert await producer.write("a", b"there", partition=1) is NONE
        producer.broker = self.coordinator
        return producer

    async def committed(self) -> list[bytes]:
        return await committed(self.coordinator, "a") + await committed(self.other, "a", partition=1)


@pytest.fixture
async def pair(make_broker: MakeBroker) -> Pair:
    coordinator, other = make_broker(**FEW), make_broker(broker_id=1)
    await coordinator.create_topic("a", 2)
    made = Pair(coordinator, other, await started(coordinator))
    for broker in (coordinator, other):
        made.decide(broker, 1, 5)
    made.show(1)
    return made


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_ends_in_the_partitions_of_all_leaders(pair: Pair, is_commit: bool) -> None:
    producer = await pair.transaction()
    assert await producer.end(is_commit=is_commit) is NONE
    await trio.sleep(0.1)

    assert state_of(pair.coordinator) is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    assert await pair.committed() == ([b"here", b"there"] if is_commit else [])
    assert pair.line.connected == [(1, "broker-0-txn-marker-sender")]
    (request,) = pair.line.asked
    coordinator_epoch = request.markers[0].coordinator_epoch
    assert request.markers == [(producer.producer_id, producer.epoch, is_commit, [("a", [1])], coordinator_epoch, 0)]


async def test_markers_are_sent_again_until_their_leader_writes_them(pair: Pair) -> None:
    producer = await pair.transaction()
    pair.line.failures = [REFUSED, REFUSED]
    assert await producer.end() is NONE
    await trio.sleep(0.6)
    assert (state_of(pair.coordinator), await committed(pair.coordinator, "a")) == (PREPARE_COMMIT, [b"here"])
    await trio.sleep(2)

    assert state_of(pair.coordinator) is COMPLETE_COMMIT
    assert await pair.committed() == [b"here", b"there"]
    assert [broker_id for broker_id, _ in pair.line.connected] == [1, -1, 1, -1, 1]


async def test_markers_follow_a_partition_to_its_next_leader(pair: Pair) -> None:
    producer = pair.producer
    assert await producer.add("a", 1) == [NONE]
    pair.decide(pair.other, 0, 6)  # it leads no longer
    assert await producer.end() is NONE
    await trio.sleep(2)
    assert state_of(pair.coordinator) is PREPARE_COMMIT

    pair.decide(pair.coordinator, 0, 6)
    pair.show(0)
    await trio.sleep(1)

    assert state_of(pair.coordinator) is COMPLETE_COMMIT
    assert pair.coordinator.log_of("a", 1).log_end_offset == 1


async def test_a_leader_that_does_not_know_yet_that_it_leads_is_asked_again(pair: Pair) -> None:
    producer = pair.producer
    assert not pair.other.parts.own.obey(StopReplica(0, 1, True, [THERE])).failures
    assert await producer.add("a", 1) == [NONE]
    pair.other.parts.own.obey(UpdateMetadata(0, 1, pair.other.parts.metadata_cache.brokers, {"a": None}))
    assert await producer.end() is NONE
    await trio.sleep(2)
    assert state_of(pair.coordinator) is PREPARE_COMMIT

    pair.decide(pair.other, 1, 7)
    await trio.sleep(1)
    assert state_of(pair.coordinator) is COMPLETE_COMMIT


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_partition_elsewhere_takes_part_with_its_first_records(pair: Pair, is_commit: bool) -> None:
    producer, (state,) = pair.producer, pair.coordinator.parts.transactions.transactions.values()
    producer.broker = pair.other
    assert await producer.write("a", b"1", partition=1, version=12) is NONE
    assert await producer.write("a", b"2", partition=1, version=12) is NONE
    assert state.metadata.partitions == {THERE}
    assert [[row[3] for row in request.transactions] for request in pair.line_back.asked] == [[False]]
    producer.broker = pair.coordinator
    body = producer.identity() | {"is_commit": is_commit}
    assert (await pair.coordinator.call(ApiKey.END_TXN, 5, **body)).producer_epoch == 1
    await trio.sleep(1)
    assert await pair.committed() == ([b"1", b"2"] if is_commit else [])
    producer.broker = pair.other
    assert await producer.write("a", b"late", partition=1, version=12) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_partition_elsewhere_that_was_not_added_is_refused(pair: Pair) -> None:
    producer = pair.producer
    producer.broker = pair.other
    assert await producer.write("a", b"1", partition=1, version=10) is ErrorCode.INVALID_TXN_STATE
    assert await producer.write("a", b"1", partition=1, version=11) is ErrorCode.TRANSACTION_ABORTABLE
    pair.line_back.failures.append(REFUSED)
    assert await producer.write("a", b"1", partition=1, version=11) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert [row[3] for request in pair.line_back.asked for row in request.transactions] == [True] * 3


async def test_a_transaction_that_ends_while_its_coordinator_answers_is_looked_for_again(
    pair: Pair, nursery: trio.Nursery
) -> None:
    """Else the record would come behind the marker, and stay open."""
    producer = pair.producer
    assert await producer.add("a", 1) == [NONE]
    found: list[ErrorCode] = []

    async def write() -> None:
        found.append(await producer.write("a", b"late", partition=1, version=10))

    producer.broker = pair.other
    nursery.start_soon(write)
    while not pair.line_back.asked:
        await trio.lowlevel.checkpoint()
    pair.line_back.delay_seconds = 5
    assert await pair.coordinator.call(ApiKey.END_TXN, 4, **producer.identity(), is_commit=False)
    await trio.sleep(20)
    assert found == [ErrorCode.INVALID_TXN_STATE]


async def test_markers_that_wait_for_an_answer_go_in_one_request(nursery: trio.Nursery) -> None:
    async def answer(api_key: int, version: int, request: Any) -> Any:
        rows = [(marker[0], [("a", [(0, 7), (1, 1234)])]) for marker in request.markers]
        response = API_TABLE[api_key].response
        return response.decode(version, b"".join(response.encode(version, response(markers=rows))))[0]

    line = Line(answer)
    channels = MarkerChannels(line.connect_to, client_id="marker")
    markers = [Marker(producer_id, 0, 3, True, {HERE, THERE}) for producer_id in range(3)]
    first = channels.send(1, markers[0])
    channels.start(nursery)
    await trio.sleep(0.005)
    others = [channels.send(1, marker) for marker in markers[1:]]

    expected = {HERE: ErrorCode.REQUEST_TIMED_OUT, THERE: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert [await each.wait() for each in (first, *others)] == [expected] * 3
    assert [len(request.markers) for request in line.asked] == [1, 2]
    nursery.cancel_scope.cancel()
