"""A broker beside others, which are named but not there: topics that it makes, and what it leaves to the controller."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.cluster.sections import BEING_DELETED
from minibroker.broker.cluster.state import Change
from minibroker.broker.config.settings.table import RACK_AWARE_SELECTOR
from minibroker.broker.replica.decisions import (
    Broker,
    LeaderAndIsr,
    Obeyed,
    PartitionState,
    StopReplica,
    TopicMetadata,
    UpdateMetadata,
)
from minibroker.broker.replica.isr import IsrChange
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import ZERO_UUID, TopicPartition
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.requests import At, list_offsets_body

pytestmark = pytest.mark.pure

NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
T0 = TopicPartition("t", 0)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def beside(make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., InMemoryBroker]:
    """Make a broker of a cluster in which others are alive, by id with their racks."""

    def made(*, is_active: bool = True, others: dict[int, str | None] | None = None, **settings: Any) -> InMemoryBroker:
        monkeypatch.setattr(FileState, "is_shared", True)
        broker = make_broker(tmp_path / "data", **settings)
        image = broker.parts.controller_loop.image
        racks = {1: None, 2: None} if others is None else others
        brokers = {each: Broker({"PLAINTEXT": ("h", 9092 + each)}, rack) for each, rack in racks.items()}
        monkeypatch.setattr(ControllerLoop, "is_active", property(lambda self: is_active))
        monkeypatch.setattr(
            ControllerLoop, "image", lambda self: image()._replace(brokers={**image().brokers, **brokers})
        )
        return broker

    return made


async def created(broker: InMemoryBroker, factor: int, *, partitions: int = 3) -> Any:
    """The row of a new topic in the answer, without the configs."""
    answer = await broker.call(ApiKey.CREATE_TOPICS, 1, topics=[("t", partitions, factor, [], [])], timeout_ms=9)
    return answer.topics[0]


async def test_replicas_are_spread_over_the_live_brokers_and_their_racks(
    beside: Callable[..., InMemoryBroker],
) -> None:
    broker = beside(broker_rack="a", others={1: "a", 2: "b"})
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
        ({1: None, 2: None}, {}, {OFFSETS: (3, None), TRANSACTIONS: (3, "2")}),
        ({1: None}, {}, {OFFSETS: ErrorCode.INVALID_REPLICATION_FACTOR}),
        (
            {1: None},
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
    beside: Callable[..., InMemoryBroker], others: dict[int, None], settings: dict[str, object], made: dict[str, object]
) -> None:
    broker = beside(others=others, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1, **settings)
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


async def test_a_broker_that_is_not_the_controller_makes_topics_without_leaders(
    beside: Callable[..., InMemoryBroker],
) -> None:
    broker = beside(is_active=False, default_replication_factor=3)

    for _ in range(2):
        answer = await broker.call(ApiKey.METADATA, 4, topics=[(ZERO_UUID, "t")], allow_auto_topic_creation=True)

        assert answer.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        (state,) = broker.state.topics["t"].partitions.values()
        assert state == PartitionState(-1, 0, (), state.replicas)
        assert sorted(state.replicas) == [0, 1, 2]


async def test_only_the_controller_changes_topics_and_their_leaders(beside: Callable[..., InMemoryBroker]) -> None:
    broker = beside(is_active=False)

    assert (await created(broker, 1)).error_code == NOT_CONTROLLER
    grown = await broker.call(ApiKey.CREATE_PARTITIONS, 0, topics=[("t", 6, None)], timeout_ms=9)
    assert grown.results[0].error_code == NOT_CONTROLLER
    deleted = await broker.call(ApiKey.DELETE_TOPICS, 3, topic_names=["t"], timeout_ms=9)
    assert deleted.topics[0].error_code == NOT_CONTROLLER
    assert not broker.state.topics
    one = [("t", [0])]
    for partitions, codes in ((one, [NOT_CONTROLLER]), (None, [])):
        elected = await broker.call(ApiKey.ELECT_LEADERS, 1, topic_partitions=partitions, timeout_ms=9)
        assert elected.error_code == NOT_CONTROLLER
        assert [row.error_code for topic in elected.topics for row in topic.partitions] == codes
    moved = await broker.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=[("t", [(0, [1])])], timeout_ms=9)
    assert moved.error_code == NOT_CONTROLLER
    listed = await broker.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout_ms=9)
    assert (listed.error_code, listed.topics) == (NOT_CONTROLLER, [])


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


async def test_partitions_are_moved_listed_and_moved_back(beside: Callable[..., InMemoryBroker]) -> None:
    broker = beside()
    await stored(broker, 0, (0,), (0,))

    async def moved(replicas: list[int] | None) -> int:
        topics = [("t", [(0, replicas)]), ("u", [(0, [1])])]
        answer = await broker.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=topics)
        assert answer.error_code == ErrorCode.NONE
        assert answer.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return int(answer.topics[0].partitions[0].error_code)

    async def listed(topics: Any = None) -> list[Any]:
        answer = await broker.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=topics)
        return [(topic.name, *row) for topic in answer.topics for row in topic.partitions]

    assert await listed() == []
    assert await moved([1, 0]) == ErrorCode.NONE
    assert await listed() == await listed([("t", [0])]) == [("t", 0, [1, 0], [1], [])]
    assert await listed([("t", [1]), ("u", [0])]) == []
    grown = await broker.call(ApiKey.CREATE_PARTITIONS, 0, topics=[("t", 2, None)], timeout_ms=9)
    assert grown.results[0].error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS

    assert await moved(None) == ErrorCode.NONE
    assert (await listed(), state_of(broker)) == ([], (0, (0,), (0,)))
    assert await moved(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert await moved([1]) == ErrorCode.NONE
    state = broker.app._state.topics["t"].partitions[0]
    broker.parts.controller_loop.save_isr({T0: IsrChange((0, 1), state.leader_epoch, state.state_version)})
    broker.parts.controller_loop.on_news(Change({"t": broker.app._state.topics["t"]}))

    assert (await listed(), state_of(broker)) == ([], (1, (1,), (1,)))
    assert broker.parts.replica_manager.partitions.any(T0) is None
    assert T0 not in broker.app._log_manager.logs


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
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, object],
    is_active: bool,
    seconds: int,
    leader: int,
) -> None:
    broker = beside(**settings)
    await stored(broker, 1, (0, 1), (0, 1))
    monkeypatch.setattr(ControllerLoop, "is_active", property(lambda self: is_active))
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


def show(broker: InMemoryBroker, state: PartitionState, brokers: tuple[int, ...]) -> None:
    """Have a controller show a topic of one partition to the broker's clients, and the brokers that are alive."""
    alive = {each: Broker({"PLAINTEXT": ("h", 9092 + each)}) for each in brokers}
    topics = {"t": TopicMetadata("t", uuid.UUID(int=7), {0: state})}
    broker.parts.own.obey(UpdateMetadata(0, 1, alive, topics))


async def test_a_partition_that_is_on_other_brokers_alone_is_not_led_here(
    beside: Callable[..., InMemoryBroker],
) -> None:
    """As kafka 2.0.1 ReplicaManager.getPartitionAndLeaderReplicaIfLocal."""
    broker = beside()
    show(broker, PartitionState(1, 3, (1,), (1,)), (0, 1))
    other = ErrorCode.NOT_LEADER_FOR_PARTITION

    assert (await broker.produce("t", [b"v"])).error_code == other
    assert (await broker.fetch(("t", 0, 0))).topics[0].partitions[0].error_code == other
    listed = await broker.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[("t", [(0, -1, -1, 1)])])
    assert listed.topics[0].partitions[0].error_code == other
    deleted = await broker.call(ApiKey.DELETE_RECORDS, 0, topics=[("t", [(0, 0)])], timeout_ms=9)
    assert deleted.topics[0].partitions[0].error_code == other
    for version, code in ((1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (2, other)):
        found = await broker.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[("t", [(0, -1, 0)])])
        assert found.topics[0].partitions[0].error_code == code


@pytest.mark.parametrize(
    ("leader", "replicas", "isr", "v0", "later"),
    [
        # What kafka 2.0.1 MetadataCache answers for these states, brokers 0 and 1 being alive.
        (2, (2, 0), (2,), ("LEADER_NOT_AVAILABLE", -1, [0], []), ("LEADER_NOT_AVAILABLE", -1, [2, 0], [], [2])),
        (-1, (2, 0), (2,), ("LEADER_NOT_AVAILABLE", -1, [0], []), ("LEADER_NOT_AVAILABLE", -1, [2, 0], [], [2])),
        (0, (0, 2), (0, 2), ("REPLICA_NOT_AVAILABLE", 0, [0], [0]), ("NONE", 0, [0, 2], [0, 2], [2])),
        (0, (0, 2), (0,), ("REPLICA_NOT_AVAILABLE", 0, [0], [0]), ("NONE", 0, [0, 2], [0], [2])),
        (0, (0, 1), (0,), ("NONE", 0, [0, 1], [0]), ("NONE", 0, [0, 1], [0], [])),
    ],
)
async def test_metadata_shows_which_replicas_are_on_dead_brokers(
    beside: Callable[..., InMemoryBroker],
    leader: int,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    v0: tuple[Any, ...],
    later: tuple[Any, ...],
) -> None:
    broker = beside()
    show(broker, PartitionState(leader, 3, isr, replicas), (0, 1))

    for version in (0, 1, 5, 6, 9):
        answer = await broker.call(ApiKey.METADATA, version, topics=[(ZERO_UUID, "t")])

        ((_, _, _, _, (row,), _),) = answer.topics
        assert [each.node_id for each in answer.brokers] == [0, 1]
        found = ErrorCode(row.error_code).name, row.leader_id, list(row.replica_nodes), list(row.isr_nodes)
        assert found == (v0 if version == 0 else later[:4])
        assert version < 5 or list(row.offline_replicas) == later[4]
        assert version < 7 or row.leader_epoch == 3


@pytest.mark.parametrize(
    ("leader", "error", "node"),
    [(1, "NONE", 1), (2, "COORDINATOR_NOT_AVAILABLE", -1), (-1, "COORDINATOR_NOT_AVAILABLE", -1)],
)
async def test_the_coordinator_is_the_live_leader_of_the_partition_of_a_group(
    beside: Callable[..., InMemoryBroker], leader: int, error: str, node: int
) -> None:
    broker = beside()
    alive = {each: Broker({"PLAINTEXT": ("h", 9092 + each)}) for each in (0, 1)}
    state = PartitionState(leader, 3, (1, 2), (1, 2, 0))
    topic = TopicMetadata(OFFSETS, uuid.UUID(int=7), {0: state})
    broker.parts.own.obey(UpdateMetadata(0, 1, alive, {OFFSETS: topic}))

    found = await broker.call(ApiKey.FIND_COORDINATOR, 1, key="g", key_type=0)

    assert (ErrorCode(found.error_code).name, found.node_id) == (error, node)
    joined = await broker.call(
        ApiKey.JOIN_GROUP,
        2,
        group_id="g",
        session_timeout_ms=9999,
        member_id="",
        protocol_type="c",
        protocols=[("p", b"")],
    )
    assert joined.error_code == ErrorCode.NOT_COORDINATOR


async def following(beside: Callable[..., InMemoryBroker], **settings: object) -> InMemoryBroker:
    """Make a broker that has three records of a partition, two of them committed, and follows broker 1 now."""
    broker = beside(**settings)
    await stored(broker, 0, (0,), (0, 1))
    broker.parts.own.obey(LeaderAndIsr(0, 1, {T0: PartitionState(0, 2, (0,), (0,))}))
    await broker.produce("t", [b"a", b"b"])
    broker.parts.own.obey(LeaderAndIsr(0, 1, {T0: PartitionState(0, 3, (0, 1), (0, 1))}))
    await broker.produce("t", [b"c"])
    broker.parts.own.obey(LeaderAndIsr(0, 1, {T0: PartitionState(1, 4, (0, 1), (1, 0))}))
    return broker


@pytest.mark.parametrize(
    ("row", "replica_id", "version", "expected"),
    [
        (At("t", 0, 0), -1, 11, ("NONE", 2, True)),
        (At("t", 0, 2), -1, 11, ("NONE", 2, False)),
        (At("t", 0, 3), -1, 11, ("NONE", 2, False)),
        (At("t", 0, 4), -1, 11, ("OFFSET_OUT_OF_RANGE", -1, False)),
        (At("t", 0, 0, 4), -1, 11, ("NONE", 2, True)),
        (At("t", 0, 0, 3), -1, 11, ("FENCED_LEADER_EPOCH", -1, False)),
        (At("t", 0, 0, 5), -1, 11, ("UNKNOWN_LEADER_EPOCH", -1, False)),
        (At("t", 0, 0), -1, 10, ("NOT_LEADER_FOR_PARTITION", -1, False)),  # clients that know no racks
        (At("t", 0, 0), 1, 11, ("NOT_LEADER_FOR_PARTITION", -1, False)),  # a follower
        (At("t", 0, 0), -2, 8, ("NONE", 2, True)),  # who reads any replica
    ],
)
async def test_a_follower_serves_consumers_up_to_its_high_watermark(
    beside: Callable[..., InMemoryBroker], row: At, replica_id: int, version: int, expected: tuple[str, int, bool]
) -> None:
    broker = await following(beside)

    answer = await broker.fetch(row, replica_id=replica_id, version=version)

    found = answer.topics[0].partitions[0]
    assert (ErrorCode(found.error_code).name, found.high_watermark, bool(bytes(found.records))) == expected


@pytest.mark.parametrize(
    ("replica_id", "version", "expected"),
    [
        (-1, 2, ("NOT_LEADER_FOR_PARTITION", -1)),
        (-2, 2, ("NONE", 3)),  # the end of its log, beyond the high watermark
        (-2, 5, ("NONE", 3)),
    ],
)
async def test_a_debugger_asks_a_follower_for_the_offsets_of_its_log(
    beside: Callable[..., InMemoryBroker], replica_id: int, version: int, expected: tuple[str, int]
) -> None:
    broker = await following(beside)

    async def offset() -> tuple[str, int]:
        body = list_offsets_body("t") | {"replica_id": replica_id}
        answer = await broker.call(ApiKey.LIST_OFFSETS, version, **body)
        row = answer.topics[0].partitions[0]
        return ErrorCode(row.error_code).name, row.offset

    assert await offset() == expected
    broker.parts.own.obey(StopReplica(0, 1, False, [T0]))
    assert (await offset())[0] == ("NOT_LEADER_FOR_PARTITION" if replica_id == -1 else "REPLICA_NOT_AVAILABLE")


async def test_a_consumer_waits_at_a_follower_until_it_leads_or_has_more(
    beside: Callable[..., InMemoryBroker],
) -> None:
    broker = await following(beside)
    waiting = await broker.park(broker.fetch, ("t", 0, 2), version=11, max_wait_ms=60_000)

    role = broker.parts.replica_manager.partitions.any(T0)
    assert role is not None
    role.log.update_high_watermark(3)
    broker.parts.replica_manager.complete_delayed(T0)

    assert (await waiting.seen()).topics[0].partitions[0].high_watermark == 3
    other = await broker.park(broker.fetch, ("t", 0, 3), version=11, max_wait_ms=60_000)
    broker.parts.own.obey(StopReplica(0, 1, False, [T0]))
    assert (await other.seen()).topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_FOR_PARTITION
    read = await broker.fetch(("t", 0, 0), replica_id=-2)
    assert read.topics[0].partitions[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("rack", "offset", "preferred", "settings"),
    [
        ("b", 0, 1, {}),
        ("b", 2, -1, {}),  # it does not have that yet
        ("a", 0, -1, {}),  # the leader's own
        ("c", 0, -1, {}),
        ("", 0, -1, {}),
        ("b", 0, -1, {"replica.selector.class": ""}),
    ],
)
async def test_the_leader_sends_consumers_to_the_replica_in_their_rack(
    beside: Callable[..., InMemoryBroker], rack: str, offset: int, preferred: int, settings: dict[str, object]
) -> None:
    broker = beside(**{"replica.selector.class": RACK_AWARE_SELECTOR, "broker.rack": "a", **settings})
    await stored(broker, 0, (0, 1), (0, 1))
    alive = {each: Broker({"PLAINTEXT": ("h", 9092 + each)}, rack) for each, rack in ((0, "a"), (1, "b"))}
    broker.parts.own.obey(LeaderAndIsr(0, 1, {T0: PartitionState(0, 2, (0, 1), (0, 1))}))
    broker.parts.own.obey(UpdateMetadata(0, 1, alive, {}))
    await broker.produce("t", [b"a"])
    await broker.produce("t", [b"b"])
    await broker.fetch(At("t", 0, 1, log_start_offset=0), replica_id=1)

    answer = await broker.fetch(("t", 0, offset), version=11, rack_id=rack, max_wait_ms=60_000 if preferred > 0 else 0)

    (row,) = answer.topics[0].partitions
    assert (row.preferred_read_replica, row.error_code, row.high_watermark) == (preferred, ErrorCode.NONE, 1)
    assert bool(bytes(row.records)) is (preferred < 0 and offset == 0)
    session = await broker.fetch(("t", 0, offset), version=11, session_epoch=0, rack_id=rack)
    again = await broker.fetch(version=11, session_id=session.session_id, session_epoch=1, rack_id=rack)
    assert [each.preferred_read_replica for topic in again.topics for each in topic.partitions] == (
        [preferred] if preferred > 0 or offset == 0 else []
    )
