"""The state of a cluster in a real ZooKeeper, as two brokers of ours have it."""

from __future__ import annotations

import select
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks.apache_kafka import ApacheKafka
from minibroker.broker.app import SECTIONS_OF_WINGS
from minibroker.broker.cluster.sections import BEING_DELETED, BROKER_CONFIGS, NEXT_PRODUCER_ID, OLD_OFFSETS, Section
from minibroker.broker.cluster.state import (
    NO_CONTROLLER,
    BrokerGone,
    BrokerReturned,
    Change,
    ControllerChanged,
)
from minibroker.broker.replica.decisions import PartitionState
from minibroker.broker.wings.quotas.entities import DEFAULT, Entity
from minibroker.broker.wings.quotas.quota_apis import CLIENT_QUOTAS
from minibroker.broker.wings.security.acls.acl_store import ACLS
from minibroker.broker.wings.security.sasl.users import CREDENTIALS
from minibroker.broker.wings.zookeeper_nodes import nodes, zookeeper_state
from minibroker.broker.wings.zookeeper_nodes.member import ZooKeeperMember
from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperState, ZooKeeperStateError
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.scram import ScramCredential
from minibroker.zookeeper import messages
from minibroker.zookeeper.messages import Create, Exists, SetData
from minibroker.zookeeper.session import Ensemble, SessionExpired, ZooKeeperClient
from tests.broker.state_promises import PROMISES, TOPIC, Promise, broker_at, with_isr

SESSION_MS = 4000
SHOWN_SECONDS = 10.0
POLL_SECONDS = 0.05
Joined = Callable[..., ZooKeeperState]


@pytest.fixture(scope="module")
def zookeeper(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a ZooKeeper."""
    kafka = ApacheKafka(jars, tmp_path_factory.mktemp("zookeeper"))
    try:
        kafka.start_zookeeper()
        yield kafka.zookeeper_port
    finally:
        kafka.kill()


@pytest.fixture
def joined(zookeeper: int, request: pytest.FixtureRequest) -> Iterator[Joined]:
    """Opens the state for a broker of the test's own cluster, and shows the broker to it."""
    opened: list[ZooKeeperState] = []
    ensemble = Ensemble([("127.0.0.1", zookeeper)], f"/{uuid.uuid4().hex}/kafka")

    def join(broker_id: int, session_timeout_ms: int = SESSION_MS) -> ZooKeeperState:
        state = ZooKeeperState(
            ensemble,
            broker_id,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=20_000,
            has_acls=True,
            sections=SECTIONS_OF_WINGS,
        )
        opened.append(state)
        state.load([])
        assert state.register(broker_at(broker_id))
        return state

    yield join
    for each in opened:
        each.close()


def shown(state: ZooKeeperState, is_shown: Callable[[], object]) -> None:
    """Take what the watches show, until it is what is waited for."""
    deadline = time.monotonic() + SHOWN_SECONDS
    state.look()
    while not is_shown():
        assert time.monotonic() < deadline, "the watches have not shown it"
        select.select([state.client], [], [], POLL_SECONDS)  # or the condition itself has read an event
        state.client.receive()
        state.look()


def stat_of(state: ZooKeeperState, path: str) -> object:
    return state.client.ask_all([Exists(path)])[0]


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_to_brokers_is_kept(joined: Joined, promise: Promise) -> None:
    promise(joined, shown)


def test_a_topic_that_is_made_again_has_another_id(joined: Joined) -> None:
    state = joined(1)
    ids = set()
    for _ in range(2):
        assert state.save("the topic", Change({"orders": TOPIC}))
        ids.add(state.topics["orders"].topic_id)
        assert state.save("the deletion", Change({"orders": None}))
        assert not state.topics
    assert len(ids) == 2
    assert state.client.children(nodes.TOPICS) == []
    assert state.client.children("/config/topics") == []


def test_changes_of_leaders_are_news_and_notifications(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_state, "ISR_QUIET_SECONDS", 0)
    controller, leader = joined(1), joined(2)
    assert controller.claim_controller()
    epoch = controller.controller_epoch
    controller.save("the topic", Change({"orders": TOPIC}, controller_epoch=epoch))
    shown(leader, lambda: leader.topics and leader.topics["orders"].partitions[1].state_version == 0)
    shown(controller, lambda: True)
    controller.take_news()
    assert leader.save("the ISR", Change({"orders": with_isr(leader.topics["orders"], 1, (2,))}))
    shown(controller, lambda: controller.has_news)
    assert controller.take_news() == [Change({"orders": leader.topics["orders"]})]
    leader.show_changed_isrs()
    shown(controller, lambda: not controller.client.children(nodes.ISR_CHANGES))
    leader.show_changed_isrs()
    assert stat_of(leader, nodes.ISR_CHANGES).children_version == 2  # type: ignore[attr-defined]


def test_the_first_claim_wins_and_a_controller_before_changes_nothing(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    assert first.claim_controller()
    assert not second.claim_controller()
    assert (first.controller_epoch, second.controller_id, second.is_controller) == (1, 1, False)
    assert not first.save("the topic", Change({"orders": TOPIC}, controller_epoch=0))
    second.client.ask(SetData(nodes.CONTROLLER_EPOCH, b"2"))  # as one that is elected while this one stands still
    assert not first.save("the topic", Change({"orders": TOPIC}, controller_epoch=1))
    assert not first.topics
    assert first.controller_epoch == 2


def test_a_broker_is_gone_with_its_session_and_its_id_is_free_then(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    second.claim_controller()
    shown(first, lambda: first.controller_id == 2)
    first.take_news()
    lost = ZooKeeperState(
        first.ensemble,
        2,
        session_timeout_ms=SESSION_MS,
        connection_timeout_ms=20_000,
        has_acls=True,
        sections=SECTIONS_OF_WINGS,
    )
    lost.load([])
    assert not lost.register(broker_at(2))  # the id of a broker that lives
    second.close()
    shown(lost, lambda: 2 not in lost.brokers)
    assert lost.register(broker_at(2)._replace(rack="other"))
    shown(first, lambda: first.brokers.get(2) and first.brokers[2].rack == "other")
    assert {*first.take_news()} == {BrokerGone(2), ControllerChanged(NO_CONTROLLER), BrokerReturned(2)}
    lost.close()


def test_an_expired_session_ends_the_registration_and_the_control(joined: Joined) -> None:
    state, other = joined(1), joined(2)
    state.claim_controller()
    thief = ZooKeeperClient(state.ensemble.root, session_timeout_ms=SESSION_MS)
    thief.resume(state.client)
    thief.connect(state.ensemble.servers, timeout_ms=20_000)
    thief.close()  # ends the session of the first
    shown(other, lambda: 1 not in other.brokers and other.controller_id == NO_CONTROLLER)
    with pytest.raises(KafkaError, match="cannot store the topic"):
        state.save("the topic", Change({"orders": TOPIC}, controller_epoch=1))
    with pytest.raises(SessionExpired):
        state.client.connect(state.ensemble.servers, timeout_ms=20_000)
    state.on_expired()
    assert not (state.is_controller or state.is_registered)
    state.client.connect(state.ensemble.servers, timeout_ms=20_000)
    state.reload()
    assert state.register(broker_at(1))
    assert state.claim_controller()
    assert state.controller_epoch == 2


def test_a_lost_connection_keeps_the_session_and_shows_missed_changes(joined: Joined) -> None:
    state, other = joined(1), joined(2)
    state.claim_controller()
    state.client.disconnect()
    with pytest.raises(KafkaError, match="cannot store the topic: there is no connection to ZooKeeper"):
        state.save("the topic", Change({"orders": TOPIC}))
    other.save("the topic", Change({"orders": TOPIC}))
    state.client.connect(state.ensemble.servers, timeout_ms=20_000)
    state.take_news()
    state.reload()
    assert state.is_controller
    assert state.is_registered
    assert [list(news.topics) for news in state.take_news() if isinstance(news, Change)] == [["orders"]]


def test_a_member_connects_again_each_time_that_its_connection_is_lost(joined: Joined) -> None:
    state, lost = joined(1), list(range(10))

    async def live() -> None:
        with trio.fail_after(SHOWN_SECONDS):
            async with trio.open_nursery() as nursery:

                def on_connected() -> None:
                    if lost:
                        lost.pop()
                        state.client.disconnect()
                    else:
                        nursery.cancel_scope.cancel()

                member = ZooKeeperMember(
                    state,
                    broker_id=1,
                    broker=lambda: broker_at(1),
                    on_news=lambda news: None,
                    on_connected=on_connected,
                )
                nursery.start_soon(member.run)

    trio.run(live)
    assert state.is_registered


def test_a_topic_without_leaders_gets_its_states_from_the_controller(joined: Joined) -> None:
    controller, other = joined(1), joined(2)
    controller.claim_controller()
    leaderless = PartitionState(NO_LEADER, 0, (), (2, 1))
    other.save("the topic", Change({"orders": TOPIC._replace(partitions={0: leaderless})}))
    shown(controller, lambda: controller.topics)
    known = controller.topics["orders"]
    assert known.partitions == {0: leaderless._replace(state_version=-1)}
    elected = PartitionState(2, 0, (2, 1), (2, 1), 0, 1)
    assert controller.save(
        "the leaders", Change({"orders": known._replace(partitions={0: elected})}, controller_epoch=1)
    )
    shown(other, lambda: other.topics["orders"].partitions == {0: elected})


def test_partitions_are_added_and_a_deletion_waits_for_the_controller(joined: Joined) -> None:
    state, other = joined(1), joined(2)
    state.save("the topic", Change({"orders": TOPIC}))
    grown = state.topics["orders"]
    added = PartitionState(1, 0, (1,), (1, 2))
    state.save("the partition", Change({"orders": grown._replace(partitions={**grown.partitions, 2: added})}))
    shown(other, lambda: other.topics and other.topics["orders"].partitions.get(2) == added)
    other.client.ask(Create(f"{nodes.DELETE_TOPICS}/orders"))  # as Kafka's tool
    shown(state, lambda: state.get(BEING_DELETED) == {"orders"})
    assert state.save("the deletion", Change({"orders": None}, {BEING_DELETED: frozenset()}))
    shown(other, lambda: not other.topics and not other.get(BEING_DELETED))


def test_settings_of_one_broker_are_those_of_all(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    first.save("the topic", Change({"orders": TOPIC}))
    quotas = {Entity("alice", DEFAULT): {"consumer_byte_rate": 5.0}, Entity(None, "app"): {"request_percentage": 12.5}}
    credentials = {"alice": {"SCRAM-SHA-256": ScramCredential(b"salt", b"stored", b"server", 4096)}}
    acls = [
        {
            "resource_type": "Topic",
            "name": "orders",
            "pattern": pattern,
            "principal": "User:alice",
            "host": "*",
            "operation": "Read",
            "permission": "ALLOW",
        }
        for pattern in ("LITERAL", "PREFIXED")
    ]
    configs = {"1": {"log.cleaner.threads": "2"}, "": {"log.retention.ms": "7"}}
    settings: dict[Section[Any], object] = {BROKER_CONFIGS: configs, CLIENT_QUOTAS: quotas, CREDENTIALS: credentials}
    assert first.save("all", Change(sections=settings))
    assert first.save("the ACLs", Change(sections={ACLS: acls}))
    assert first.save("a block", Change(sections={NEXT_PRODUCER_ID: 1000}))
    orders = first.topics["orders"]
    assert first.save("the configs", Change({"orders": orders._replace(configs={"retention.ms": "9"})}))
    shown(second, lambda: second.get(ACLS) and second.topics["orders"].configs == {"retention.ms": "9"})
    for each in (second, joined(3)):
        assert {section: each.get(section) for section in (*settings, ACLS)} == {**settings, ACLS: acls}
    assert not second.save("a block", Change(sections={NEXT_PRODUCER_ID: 1000}))  # that of the first
    assert second.save("a block", Change(sections={NEXT_PRODUCER_ID: second.get(NEXT_PRODUCER_ID) + 1000}))
    assert joined(4).get(NEXT_PRODUCER_ID) == 2000
    assert first.save("none", Change(sections={CLIENT_QUOTAS: {}, ACLS: acls[:1]}))
    shown(second, lambda: not second.get(CLIENT_QUOTAS) and second.get(ACLS) == acls[:1])


def test_offsets_of_version_zero_are_nodes(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    rows = {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 6}
    assert first.save("the offsets", Change(sections={OLD_OFFSETS: {"group": rows}}))
    assert [*second.get(OLD_OFFSETS).items()] == [("group", rows)]
    assert second.save(
        "the offsets", Change(sections={OLD_OFFSETS: {"group": {**rows, TopicPartition("orders", 1): 7}}})
    )
    assert first.get(OLD_OFFSETS)["group"][TopicPartition("orders", 1)] == 7
    assert first.client.data("/consumers/group/offsets/orders/1").data == b"7"


def test_a_large_topic_is_stored_in_several_steps(joined: Joined) -> None:
    # The other's session waits in silence until all is written.
    state, other = joined(1), joined(2, 10 * SESSION_MS)
    partitions = {number: PartitionState(1, 0, (1,), (1,)) for number in range(5000)}
    state.save("the topic", Change({"large": TOPIC._replace(name="large", partitions=partitions)}))
    shown(other, lambda: "large" in other.topics and other.topics["large"].partitions == partitions)


def test_nodes_with_acls_are_named_with_the_tool_that_opens_them(
    joined: Joined, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only = messages.WORLD_ANYONE.replace(b"\x1f", b"\x01")  # as those that another user has created
    monkeypatch.setattr(messages, "WORLD_ANYONE", read_only)
    with pytest.raises(ZooKeeperStateError, match=r"NO_AUTH; its nodes have ACLs, .* zookeeper-security-migration\.sh"):
        joined(1)


def test_an_address_without_a_zookeeper_is_named(tmp_path: Path) -> None:
    state = ZooKeeperState(
        Ensemble([("127.0.0.1", 1)]), 1, session_timeout_ms=1000, connection_timeout_ms=1, has_acls=False
    )
    with pytest.raises(ZooKeeperStateError, match=r"cannot use ZooKeeper at 127\.0\.0\.1:1: .*; start it, or name"):
        state.load([])
