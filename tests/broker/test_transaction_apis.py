"""The handlers around transactions: markers from outside, offsets that go with a transaction, what is described."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.transaction.transaction import COMPLETE_ABORT, COMPLETE_COMMIT
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.transactional import FEW, Producer, committed, last_stable_offset, started


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    return make_broker(**FEW)


# -- WriteTxnMarkers ----------------------------------------------------------------------------------------------


async def write_markers(broker: InMemoryBroker, *markers: tuple[Any, ...], version: int = 1) -> list[Any]:
    answer = await broker.call(ApiKey.WRITE_TXN_MARKERS, version, markers=list(markers))
    return [
        (marker.producer_id, topic.name, row.partition, ErrorCode(row.error_code))
        for marker in answer.markers
        for topic in marker.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_marker_from_outside_ends_the_transaction_of_its_partition(
    broker: InMemoryBroker, version: int
) -> None:
    await broker.create_topic("a")
    producer = await started(broker)
    await producer.send("a", b"1")

    marker = (producer.producer_id, producer.epoch, True, [("a", [0])], 5)
    answer = await write_markers(broker, marker, version=version)

    assert answer == [(producer.producer_id, "a", 0, ErrorCode.NONE)]
    assert (await committed(broker, "a"), await last_stable_offset(broker, "a")) == ([b"1"], 2)


async def test_each_partition_has_an_error_of_its_own(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    await broker.create_topic("old", message_format_version="0.10.2")

    answer = await write_markers(broker, (7, 0, False, [("a", [0, 5]), ("old", [0]), ("nope", [0])], 0))

    assert sorted(answer) == [
        (7, "a", 0, ErrorCode.NONE),
        (7, "a", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (7, "nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (7, "old", 0, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ]


async def test_an_older_coordinator_and_an_older_producer_are_shut_out(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    assert await write_markers(broker, (7, 3, True, [("a", [0])], 5)) == [(7, "a", 0, ErrorCode.NONE)]

    older_coordinator = await write_markers(broker, (7, 3, True, [("a", [0])], 4))
    older_producer = await write_markers(broker, (7, 2, True, [("a", [0])], 5))

    assert older_coordinator == [(7, "a", 0, ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
    assert older_producer == [(7, "a", 0, ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert broker.log_of("a").log_end_offset == 1


@pytest.mark.parametrize("producer", [(-1, 0), (0, -1)])
async def test_a_marker_of_no_producer_is_not_written(broker: InMemoryBroker, producer: tuple[int, int]) -> None:
    await broker.create_topic("a")

    answer = await write_markers(broker, (7, 0, True, [("a", [0])], 0), (*producer, True, [("a", [0])], 0))

    assert {row[3] for row in answer} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert broker.log_of("a").log_end_offset == 0


async def test_no_markers_are_answered_with_none(broker: InMemoryBroker) -> None:
    assert await write_markers(broker) == []
    assert await write_markers(broker, (7, 0, True, [], 0)) == []


async def test_a_marker_a_coordinator_may_not_write_leaves_its_transaction_undone(
    broker: InMemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer coordinator has been at the partition: it is not for this one to end the transaction."""
    await broker.create_topic("a")
    producer = await started(broker)
    await producer.send("a", b"1")
    await write_markers(broker, (producer.producer_id, 0, True, [("a", [0])], 99))

    assert await producer.end(is_commit=False) is ErrorCode.NONE

    assert await producer.add("a") == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await committed(broker, "a") == [b"1"]
    assert "t stays PrepareAbort: a-0 answered TRANSACTION_COORDINATOR_FENCED" in caplog.text


# -- offsets ------------------------------------------------------------------------------------------------------


async def committed_offset(broker: InMemoryBroker, group_id: str) -> int:
    answer = await broker.call(ApiKey.OFFSET_FETCH, 5, group_id=group_id, topics=[("a", [0])])
    assert answer.error_code == ErrorCode.NONE
    return int(answer.topics[0].partitions[0].committed_offset)


async def find_group(broker: InMemoryBroker, group_id: str) -> None:
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key=group_id, key_type=0)


async def test_offsets_count_when_their_transaction_is_committed(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    await find_group(broker, "g")
    producer = await started(broker)
    seen = []

    for offset, is_commit in ((5, True), (9, False), (7, True)):
        assert await producer.add_offsets("g") is ErrorCode.NONE
        assert await producer.commit_offset("g", "a", offset) is ErrorCode.NONE
        seen.append(await committed_offset(broker, "g"))
        assert await producer.end(is_commit=is_commit) is ErrorCode.NONE
        seen.append(await committed_offset(broker, "g"))

    assert seen == [-1, 5, 5, 5, 5, 7]


async def test_offsets_that_were_decided_count_after_a_restart(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(tmp_path / "one", **FEW)
    await broker.create_topic("a")
    await find_group(broker, "g")
    producer = await started(broker)
    await producer.add_offsets("g")
    await producer.commit_offset("g", "a", 5)
    monkeypatch.setattr(broker.parts.transactions, "_write_markers", lambda transaction: None)  # killed here
    assert await producer.end() is ErrorCode.NONE
    broker.close()

    again = make_broker(tmp_path / "one", **FEW)

    assert again.parts.transactions.transactions["t"].state is COMPLETE_COMMIT
    assert await committed_offset(again, "g") == 5


async def test_offsets_of_a_partition_there_is_not_are_refused_alone(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    await find_group(broker, "g")
    producer = await started(broker)
    await producer.add_offsets("g")

    answer = await broker.call(
        ApiKey.TXN_OFFSET_COMMIT,
        2,
        **producer.identity(),
        group_id="g",
        topics=[("a", [(0, 5, -1, None), (9, 5, -1, None)]), ("nope", [(0, 1, -1, "")])],
    )
    await producer.end()

    assert {(topic.name, row.partition): row.error_code for topic in answer.topics for row in topic.partitions} == {
        ("a", 0): ErrorCode.NONE,
        ("a", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await committed_offset(broker, "g") == 5


@pytest.mark.parametrize(
    ("member", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 3}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
async def test_a_member_that_is_none_may_not_commit(
    broker: InMemoryBroker, member: dict[str, Any], error: ErrorCode
) -> None:
    """From v3 on the producer says which member it read as."""
    await broker.create_topic("a")
    await find_group(broker, "g")
    producer = await started(broker)
    await producer.add_offsets("g")

    topics = [("a", [(0, 5, -1, "")])]
    answer = await broker.call(
        ApiKey.TXN_OFFSET_COMMIT, 3, **producer.identity(), group_id="g", topics=topics, **member
    )

    assert answer.topics[0].partitions[0].error_code == error


# -- what is described --------------------------------------------------------------------------------------------


async def test_transactions_are_described(broker: InMemoryBroker) -> None:
    await broker.create_topic("a", 2)
    producer = await started(broker)
    await producer.add("a", 1, 0)

    answer = await broker.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t", "nope", ""])

    found, unknown, empty = answer.transactions
    assert (found.error_code, found.transactional_id, found.state) == (ErrorCode.NONE, "t", "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, 0)
    assert (found.timeout_ms, found.start_time_ms) == (60_000, NOW_MS)
    assert [tuple(topic) for topic in found.topics] == [("a", [0, 1])]
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == ErrorCode.INVALID_REQUEST


async def test_transactions_are_listed_by_state_and_producer(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producers = {name: await started(broker, name) for name in ("empty", "open", "done")}
    await producers["open"].add("a")
    await producers["done"].add("a")
    await producers["done"].end(is_commit=False)

    async def listed(*states: str, producer_ids: tuple[int, ...] = ()) -> dict[str, str]:
        answer = await broker.call(
            ApiKey.LIST_TRANSACTIONS, 0, state_filters=list(states), producer_id_filters=list(producer_ids)
        )
        assert list(answer.unknown_state_filters) == sorted({"Wrong"} & set(states))
        return {row.transactional_id: row.state for row in answer.transactions}

    assert await listed() == {"empty": "Empty", "open": "Ongoing", "done": COMPLETE_ABORT.title}
    assert await listed("Ongoing", "CompleteAbort") == {"open": "Ongoing", "done": "CompleteAbort"}
    assert await listed(producer_ids=(producers["empty"].producer_id, 999)) == {"empty": "Empty"}
    assert await listed("Wrong") == {}


async def test_producers_of_a_partition_are_described(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producer = await started(broker)
    await producer.send("a", b"1", b"2")
    other = Producer(broker)
    other.producer_id, other.epoch = 1000, 2
    await other.write("a", b"3", is_transactional=False)
    await write_markers(broker, (1001, 4, True, [("a", [0])], 6))

    answer = await broker.call(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[("a", [0, 9])])

    found, unknown = answer.topics[0].partitions
    assert [tuple(each) for each in found.active_producers] == [
        (producer.producer_id, 0, 1, NOW_MS, -1, 0),
        (1000, 2, 0, NOW_MS, -1, -1),
        (1001, 4, -1, -1, 6, -1),
    ]
    assert (unknown.error_code, list(unknown.active_producers)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
