"""A broker beside others, which are named but not there: topics that it makes, has deleted, and leads again.

What clients are answered is in tests/golden/conversations/beside.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.cluster.controller_loop import NoChannels
from minibroker.broker.cluster.sections import BEING_DELETED
from minibroker.broker.cluster.state import BrokerGone, Change
from minibroker.broker.replica.decisions import (
    LeaderAndIsr,
    Obeyed,
    PartitionState,
    StopReplica,
)
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import ZERO_UUID, TopicPartition
from tests.books.cluster_verbs import beside_others
from tests.broker.conftest import InMemoryBroker, MakeBroker

pytestmark = pytest.mark.pure
T0 = TopicPartition("t", 0)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def beside(make_broker: MakeBroker, tmp_path: Path) -> Callable[..., InMemoryBroker]:
    """Make a broker of a cluster in which others are alive, by id with their racks."""

    def made(others: Mapping[int, str] = MappingProxyType({1: "", 2: ""}), **settings: Any) -> InMemoryBroker:
        return beside_others(others, make_broker, tmp_path / "data", **settings)

    return made


async def created(broker: InMemoryBroker, factor: int, *, partitions: int = 3) -> Any:
    """The row of a new topic in the answer, without the configs."""
    answer = await broker.call(ApiKey.CREATE_TOPICS, 1, topics=[("t", partitions, factor, [], [])], timeout_ms=9)
    return answer.topics[0]


async def test_replicas_are_spread_over_the_live_brokers_and_their_racks(
    beside: Callable[..., InMemoryBroker],
) -> None:
    broker = beside({1: "a", 2: "b"}, broker_rack="a")
    refused = await created(broker, 4)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor: 4 larger than available brokers: 3.",
    )

    assert (await created(broker, 2)).error_code == ErrorCode.NONE
    grown = await broker.call(ApiKey.CREATE_PARTITIONS, 0, topics=[("t", 6, None)], timeout_ms=9)

    assert grown.results[0].error_code == ErrorCode.NONE
    partitions = broker.state.topics["t"].partitions
    assert sorted(state.leader for state in partitions.values()) == [0, 0, 1, 1, 2, 2]
    assert all(2 in state.replicas and state.in_sync_replicas == state.replicas for state in partitions.values())


@pytest.mark.parametrize(
    ("others", "settings", "made"),
    [
        ({1: "", 2: ""}, {}, {OFFSETS: (3, None), TRANSACTIONS: (3, "2")}),
        ({1: ""}, {}, {OFFSETS: ErrorCode.INVALID_REPLICATION_FACTOR}),
        (
            {1: ""},
            {
                "offsets.topic.replication.factor": 2,
                "transaction.state.log.replication.factor": 1,
                "transaction.state.log.min.isr": 1,
            },
            {OFFSETS: (2, None), TRANSACTIONS: (1, "1")},
        ),
    ],
)
async def test_topics_of_coordinators_have_the_replicas_that_are_set_or_are_not_made(
    beside: Callable[..., InMemoryBroker], others: dict[int, str], settings: dict[str, object], made: dict[str, object]
) -> None:
    broker = beside(others, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1, **settings)
    for name, expected in made.items():
        key_type = int(name == TRANSACTIONS)
        found = await broker.call(ApiKey.FIND_COORDINATOR, 1, key="k", key_type=key_type)
        if isinstance(expected, ErrorCode):
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            asked = await broker.call(ApiKey.METADATA, 4, topics=[(ZERO_UUID, name)], allow_auto_topic_creation=True)
            assert asked.topics[0].error_code == expected
        else:
            topic = broker.state.topics[name]
            assert found.node_id == topic.partitions[0].leader
            assert (len(topic.partitions[0].replicas), topic.configs.get("min.insync.replicas")) == expected


async def stored(broker: InMemoryBroker, leader: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
    """Have the partition of a new topic in this state."""
    assigned = [(0, list(replicas))]
    await broker.call(ApiKey.CREATE_TOPICS, 1, topics=[("t", -1, -1, assigned, [])], timeout_ms=9)
    topic = broker.app._state.topics["t"]
    state = PartitionState(leader, 1, isr, replicas, topic.partitions[0].state_version + 1)
    broker.app._state.save("a test", Change({"t": topic._replace(partitions={0: state})}))


def state_of(broker: InMemoryBroker) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    state = broker.app._state.topics["t"].partitions[0]
    return state.leader, state.in_sync_replicas, state.replicas


async def test_a_topic_is_deleted_once_all_brokers_have_deleted_it(beside: Callable[..., InMemoryBroker]) -> None:
    broker = beside()
    await stored(broker, 0, (0, 1), (0, 1))
    state, loop = broker.app._state, broker.parts.controller_loop

    codes = []
    for _ in range(2):
        deleted = await broker.call(ApiKey.DELETE_TOPICS, 3, topic_names=["t"], timeout_ms=9)
        codes.append(deleted.topics[0].error_code)
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (await created(broker, 1)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    grown = await broker.call(ApiKey.CREATE_PARTITIONS, 0, topics=[("t", 2, None)], timeout_ms=9)
    assert grown.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert T0 not in broker.app._log_manager.logs
    assert "t" in state.topics

    deletion = StopReplica(0, 1, True, [T0])
    loop.on_answer(1, deletion, Obeyed(ErrorCode.STALE_CONTROLLER_EPOCH, {}))
    loop.on_answer(1, deletion, Obeyed(ErrorCode.NONE, {T0: KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)}))
    loop.on_answer(1, deletion._replace(delete_partitions=False), Obeyed(ErrorCode.NONE, {}))
    assert "t" in state.topics
    loop.on_answer(1, deletion, Obeyed(ErrorCode.NONE, {}))

    assert (state.topics, state.get(BEING_DELETED)) == ({}, frozenset())
    assert (await created(broker, 2)).error_code == ErrorCode.NONE


async def test_what_was_stored_although_the_disk_failed_is_done_with_the_next_heartbeat(
    beside: Callable[..., InMemoryBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is in the journal, and its fsync has failed: all brokers read it. Other changes come before."""
    broker = beside()
    await stored(broker, 0, (0, 1), (0, 1))
    state, loop = broker.app._state, broker.parts.controller_loop
    asked: list[tuple[int, Any]] = []
    channels = NoChannels()
    channels.send = lambda broker_id, decisions: asked.extend((broker_id, each) for each in decisions)  # type: ignore[method-assign]
    loop.reach_by(channels)
    save = state.save

    def save_and_fail(what: str, change: Change) -> bool:
        save(what, change)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, what)

    with monkeypatch.context() as failing_disk:
        failing_disk.setattr(state, "save", save_and_fail)
        deleted = await broker.call(ApiKey.DELETE_TOPICS, 3, topic_names=["t"], timeout_ms=9)
    loop.on_news(BrokerGone(2))
    asked.clear()
    loop.catch_up()
    loop.catch_up()

    assert deleted.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [each for each in asked if isinstance(each[1], StopReplica)] == [(1, StopReplica(0, 1, True, [T0]))]
    assert broker.parts.replica_manager.partitions.any(T0) is None


async def test_a_broker_that_could_not_delete_a_replica_is_asked_again(beside: Callable[..., InMemoryBroker]) -> None:
    broker = beside()
    await stored(broker, 0, (0, 1), (0, 1))
    loop = broker.parts.controller_loop
    asked: list[tuple[int, Any]] = []
    channels = NoChannels()
    channels.send = lambda broker_id, decisions: asked.extend((broker_id, each) for each in decisions)  # type: ignore[method-assign]
    loop.reach_by(channels)
    await broker.call(ApiKey.DELETE_TOPICS, 3, topic_names=["t"], timeout_ms=9)
    asked.clear()
    deletion = StopReplica(0, 1, True, [T0])

    for error in (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), None):
        loop.on_answer(1, deletion, Obeyed(ErrorCode.NONE, {} if error is None else {T0: error}))
        loop.catch_up()
        loop.catch_up()

    assert asked == [(1, deletion)]


@pytest.mark.parametrize(
    ("settings", "is_active", "seconds", "leader"),
    [
        ({}, True, 301, 0),
        ({}, True, 299, 1),
        ({"leader.imbalance.check.interval.seconds": 2}, True, 3, 0),
        ({"auto.leader.rebalance.enable": "false"}, True, 301, 1),
        ({"leader.imbalance.per.broker.percentage": 100}, True, 301, 1),
        ({}, False, 301, 1),
    ],
)
async def test_the_controller_has_preferred_replicas_lead_again(
    beside: Callable[..., InMemoryBroker],
    autojump_clock: MockClock,
    settings: dict[str, object],
    is_active: bool,
    seconds: int,
    leader: int,
) -> None:
    broker = beside(**settings)
    await stored(broker, 1, (0, 1), (0, 1))
    broker.state.is_controller = is_active
    compaction = Compaction(broker.app._config, broker.app._log_manager, broker.clock)
    broker.app._start_upkeep(broker.parts, broker.nursery, compaction)

    await trio.sleep(seconds)

    assert state_of(broker)[0] == leader


async def test_a_replica_that_moves_away_is_in_sync_until_the_controller_removes_it(
    beside: Callable[..., InMemoryBroker],
) -> None:
    broker = beside()
    await broker.create_topic("t")

    broker.parts.own.obey(LeaderAndIsr(0, 1, {T0: PartitionState(0, 5, (0, 1), (0,))}))
    broker.parts.replica_manager.drop_lagging_replicas()

    assert broker.parts.replica_manager.partitions.led(T0).in_sync_replicas == (0, 1)
