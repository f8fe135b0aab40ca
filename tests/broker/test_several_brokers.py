"""A broker beside others, which are named but not there: topics that it makes, and what it leaves to the controller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.replica.decisions import Broker, PartitionState
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.conftest import InMemoryBroker, MakeBroker

pytestmark = pytest.mark.pure

NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
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
