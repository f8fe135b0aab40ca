"""The controller's channels to other brokers: what they send, in which order, and what they do until it is answered."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.cluster.controller import (
    Image,
    Plan,
    brokers_changed,
    create_topics,
    delete_topics,
    new_partition,
)
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.state import TopicState
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
from minibroker.broker.wings.several.broker_channels import BrokerChannels
from minibroker.broker.wings.several.decision_messages import (
    PLAINTEXT,
    Shown,
    leader_and_isr_of,
    stop_replica_of,
    update_metadata_of,
)
from minibroker.broker.wings.several.peer import Peer
from minibroker.protocol.api import API_TABLE, ApiKey, decode_request, joined
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import MakeBroker
from tests.broker.following_brokers import make_cluster
from tests.protocol.recordings import BETWEEN_BROKERS, recordings_of

pytestmark = pytest.mark.time_jumps

DECISION_APIS: dict[str, Callable[[Any], Decision]] = {
    "LeaderAndIsr": leader_and_isr_of,
    "StopReplica": stop_replica_of,
}


def taken(cache: MetadataCache, body: Any) -> UpdateMetadata:
    update = update_metadata_of(body, cache.topics)
    cache.update(update)
    return update


def clients_see(cache: MetadataCache) -> Any:
    """The brokers, and each partition with the replicas that are offline."""
    partitions = {
        (name, number): (
            state,
            [
                each
                for each in state.replicas
                if each not in cache.brokers or each in topic.offline_replicas.get(number, ())
            ],
        )
        for name, topic in cache.topics.items()
        for number, state in topic.partitions.items()
    }
    return cache.brokers, partitions


def test_brokers_learn_of_all_that_apache_kafka_lets_them_know() -> None:
    """The messages of recorded decisions: to the byte, but that UpdateMetadata leaves out what has not changed."""
    channels: dict[tuple[int, int], tuple[Shown, MetadataCache, MetadataCache]] = {}
    rows = kafkas_rows = 0
    for recording in recordings_of(BETWEEN_BROKERS):
        if recording["api"] not in (*DECISION_APIS, "UpdateMetadata") or recording["from"] == "client":
            continue
        request = decode_request(bytearray.fromhex(recording["request"]))
        ends = recording["from"], recording["to"]
        if ends not in channels or request.correlation_id == 0:
            channels[ends] = Shown(), MetadataCache(""), MetadataCache("")
        shown, theirs, ours = channels[ends]
        if recording["api"] in DECISION_APIS:
            made = shown.message_of(DECISION_APIS[recording["api"]](request.body), PLAINTEXT)
            assert encoded(request.api_key, request.api_version, request.body) == encoded(*made), recording["event"]
            continue
        update = taken(theirs, request.body)
        made = shown.message_of(update, PLAINTEXT)
        shown.note_obeyed(update)
        taken(ours, API_TABLE[made.api_key].request.decode(made.version, encoded(*made))[0])
        assert made[:2] == (request.api_key, request.api_version)
        assert clients_see(ours) == clients_see(theirs), recording["event"]
        rows, kafkas_rows = rows + len(made.body.partition_states), kafkas_rows + len(request.body.partition_states)
    assert 0 < rows < kafkas_rows * 2 / 3


def test_a_partition_is_shown_again_when_a_replica_goes_offline() -> None:
    def rows(alive: set[int], topic: TopicMetadata | None) -> list[tuple[Any, ...]]:
        brokers = {each: Broker({PLAINTEXT: ("h", each)}) for each in alive}
        update = UpdateMetadata(1, 5, brokers, {"t": topic})
        message = shown.message_of(update, PLAINTEXT)
        assert shown.message_of(update, PLAINTEXT) == message, "it has not obeyed"
        shown.note_obeyed(update)
        return [(*row[:2], row[3], row[-1]) for row in message.body.partition_states]

    shown = Shown()
    states = {number: PartitionState(1, 4, (1,), replicas) for number, replicas in enumerate([(1, 2), (1, 3)])}
    topic = TopicMetadata("t", NO_TOPIC_ID, states)

    assert rows({1, 2, 3}, topic) == [("t", 0, 1, ()), ("t", 1, 1, ())]
    assert rows({1, 2, 3}, topic) == []
    assert rows({1, 3}, topic) == [("t", 0, 1, (2,))]
    assert rows({1, 3}, topic._replace(offline_replicas={1: (3,)})) == [("t", 1, 1, (3,))]
    assert rows({1, 3}, None) == [("t", 0, -2, (2,)), ("t", 1, -2, ())]
    assert rows({1, 3}, None) == []


def encoded(api_key: int, version: int, body: Any) -> bytes:
    return joined(API_TABLE[api_key].request.encode(version, body))


# -- over connections -----------------------------------------------------------------------------------------------

T0 = TopicPartition("t", 0)
STOP = StopReplica(1, 5, False, [T0])
LEAD = LeaderAndIsr(1, 5, {T0: PartitionState(2, 4, (2,), (2,))})
STALE = ErrorCode.STALE_CONTROLLER_EPOCH
ANSWERS = {
    ApiKey.STOP_REPLICA: API_TABLE[ApiKey.STOP_REPLICA].response(partition_errors=[]),
    ApiKey.LEADER_AND_ISR: API_TABLE[ApiKey.LEADER_AND_ISR].response(
        partition_errors=[API_TABLE[ApiKey.LEADER_AND_ISR].response.row("partition_errors")("t", 0, STALE)]
    ),
    ApiKey.UPDATE_METADATA: API_TABLE[ApiKey.UPDATE_METADATA].response(error_code=1234),
}


class Cluster:
    """Broker 2, which answers while it is up, behind channels of broker 1."""

    def __init__(self) -> None:
        self.is_up = True
        self.received: list[tuple[str, ApiKey]] = []  # by host
        self.answers: list[tuple[int, str, Obeyed]] = []
        self.channels = BrokerChannels(own_id=1, connect=self.connect, listener=PLAINTEXT, on_answer=self.on_answer)
        self.at("first")

    def at(self, host: str, listener: str = PLAINTEXT) -> None:
        brokers = {1: Broker({PLAINTEXT: ("own", 1)}), 2: Broker({listener: (host, 2)})}
        self.channels.set_brokers(brokers)

    def connect(self, host: str, port: int) -> Connection:
        return Connection(self, host)

    def on_answer(self, broker_id: int, decision: Decision, obeyed: Obeyed) -> None:
        self.answers.append((broker_id, type(decision).__name__, obeyed))


class Connection:
    """A connection to broker 2 at one of its hosts."""

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self._is_open = True

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        self._cluster.received.append((self._host, ApiKey(api_key)))
        await trio.sleep(0.01)
        if not self._is_open or not self._cluster.is_up:
            raise ConnectionError("down")
        return ANSWERS[ApiKey(api_key)]

    def close(self) -> None:
        self._is_open = False


@pytest.fixture
async def cluster(nursery: trio.Nursery) -> AsyncIterator[Cluster]:
    made = Cluster()
    nursery.start_soon(made.channels.run)
    await wait_all_tasks_blocked()
    yield made
    nursery.cancel_scope.cancel()


async def test_decisions_are_sent_in_order_and_their_answers_come_back(cluster: Cluster) -> None:
    update = UpdateMetadata(1, 5, {}, {})
    cluster.channels.send(2, [STOP, LEAD])
    cluster.channels.send(2, [update])
    cluster.channels.send(1, [STOP])
    cluster.channels.send(3, [STOP])
    await trio.sleep(1)

    keys = [ApiKey.STOP_REPLICA, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA]
    assert cluster.received == [("first", key) for key in keys]
    (stopped, led, updated) = cluster.answers
    assert stopped == (2, "StopReplica", Obeyed(ErrorCode.NONE, {}))
    assert (led[:2], led[2].error) == ((2, "LeaderAndIsr"), ErrorCode.NONE)
    assert [(each, error.code) for each, error in led[2].failures.items()] == [(T0, STALE)]
    assert updated == (2, "UpdateMetadata", Obeyed(ErrorCode.UNKNOWN_SERVER_ERROR, {}))


async def test_a_decision_is_sent_until_it_is_answered(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.is_up = False
    cluster.channels.send(2, [STOP, LEAD])
    await trio.sleep(1.05)
    assert cluster.received == [("first", ApiKey.STOP_REPLICA)] * 10
    cluster.is_up = True
    await trio.sleep(1)

    assert [name for _, name, _ in cluster.answers] == ["StopReplica", "LeaderAndIsr"]
    assert [each.message for each in caplog.records] == ["broker 2 has not got STOP_REPLICA: down"]


LEFT: list[tuple[Callable[[Cluster], None], list[str]]] = [
    (lambda cluster: cluster.at("second"), ["second"] * 2),
    (lambda cluster: cluster.at("second", "OTHER"), []),
    (lambda cluster: cluster.channels.forget(2), []),
    (lambda cluster: cluster.channels.close(), []),
]


@pytest.mark.parametrize(("leave", "hosts"), LEFT)
async def test_a_channel_goes_where_its_broker_goes(
    cluster: Cluster, leave: Callable[[Cluster], None], hosts: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.channels.send(2, [STOP, LEAD])
    await trio.sleep(0.005)  # the first is under way
    leave(cluster)
    await trio.sleep(1)

    assert [host for host, _ in cluster.received] == ["first", *hosts]
    assert len(cluster.answers) == len(hosts)
    assert "down" not in caplog.text, "the channel has closed the connection itself"


async def test_a_broker_that_came_back_is_shown_everything(cluster: Cluster) -> None:
    cluster.is_up = False
    cluster.channels.send(2, [STOP])
    await trio.sleep(0.05)
    cluster.channels.forget(2)
    cluster.is_up = True
    cluster.at("second")
    cluster.channels.send(2, [LEAD])
    await trio.sleep(1)

    assert cluster.received[1:] == [("second", ApiKey.LEADER_AND_ISR)]


async def test_other_brokers_lead_and_follow_as_a_controller_plans(
    make_broker: MakeBroker, in_cluster: None, nursery: trio.Nursery
) -> None:
    """Over sockets: a topic is made, its leader ends, the topic is deleted."""
    sides = make_cluster(make_broker, nursery, 2).sides
    alive = {side.id: Broker({PLAINTEXT: side.address}) for side in sides}
    answers: list[Obeyed] = []
    channels = BrokerChannels(
        own_id=9,
        connect=partial(Peer, client_id="9"),
        listener=PLAINTEXT,
        on_answer=lambda broker_id, decision, obeyed: answers.append(obeyed),
    )
    nursery.start_soon(channels.run)

    async def perform(event: Callable[[Image], Plan], topics: dict[str, TopicState]) -> dict[str, TopicState]:
        channels.set_brokers(alive)
        plan = event(Image(9, 5, alive, topics))
        for broker_id, decisions in plan.decisions.items():
            channels.send(broker_id, decisions)
        await trio.sleep(2)
        changed = {} if plan.change is None else plan.change.topics
        return {name: topic for name, topic in {**topics, **changed}.items() if topic is not None}

    states = {0: new_partition(Image(9, 5, alive, {}), [0, 1])}
    made = {"t": TopicState("t", states, {}, uuid.UUID(int=3))}
    await perform(partial(brokers_changed, returned=[0, 1]), {})
    topics = await perform(partial(create_topics, topics=made), {})
    answer = await sides[0].broker.produce("t", [b"1", b"2"], acks=-1)
    assert (answer.error_code, answer.base_offset, sides[1].log(T0).log_end_offset) == (ErrorCode.NONE, 0, 2)

    del alive[0]
    topics = await perform(partial(brokers_changed, gone=[0]), topics)
    assert (await sides[1].broker.produce("t", [b"3"], acks=-1)).base_offset == 2
    seen = sides[1].broker.parts.metadata_cache
    assert (seen.controller_id, seen.brokers, seen.topics["t"].partitions) == (9, alive, topics["t"].partitions)

    assert await perform(partial(delete_topics, names=["t"]), topics) == {}
    assert (seen.topics, sides[1].broker.parts.replica_manager.partitions.items()) == ({}, [])
    assert len(answers) == 10 and all(obeyed == Obeyed(ErrorCode.NONE, {}) for obeyed in answers)
    channels.close()
    for side in sides:
        side.close()
    nursery.cancel_scope.cancel()
