"""Transactions through a whole broker: answers to producers, markers from outside, offsets, descriptions.

What Apache Kafka 2.0.1 answers to producers and consumers is in tests/conformance/scripts/transactions.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.transaction.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.group_clients import GroupClient
from tests.broker.transactional import (
    FEW,
    Producer,
    committed,
    last_stable_offset,
    started,
    state_of,
    with_open_transaction,
)


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    return make_broker(**FEW)


async def test_without_its_topic_there_is_no_coordinator(broker: InMemoryBroker) -> None:
    producer = Producer(broker)

    assert await producer.initialize() is ErrorCode.NOT_COORDINATOR
    assert await producer.add("a") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.end() is ErrorCode.NOT_COORDINATOR


async def test_the_longest_timeout_of_a_transaction(broker: InMemoryBroker) -> None:
    broker.parts.topic_admin.ensure_internal_topic("__transaction_state")

    assert await Producer(broker, timeout_ms=900_001).initialize() is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert await Producer(broker, timeout_ms=900_000).initialize() is ErrorCode.NONE


@pytest.mark.parametrize("half", [{"producer_id": 5}, {"producer_epoch": 5}])
async def test_half_an_identity_is_an_invalid_request(broker: InMemoryBroker, half: dict[str, Any]) -> None:
    answer = await broker.call(ApiKey.INIT_PRODUCER_ID, 3, transactional_id=None, transaction_timeout_ms=1000, **half)

    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_producers_without_transactions_get_ids_of_their_own(broker: InMemoryBroker) -> None:
    answers = [
        await broker.call(ApiKey.INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout_ms=0)
        for version in range(5)
    ]

    assert {each.error_code for each in answers} == {ErrorCode.NONE}
    assert len({each.producer_id for each in answers}) == 5


async def test_older_versions_are_told_of_the_epoch(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    first = await started(broker)
    await Producer(broker).initialize()
    old, new = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED

    assert [await first.add("a", version=version) for version in range(4)] == [[old], [old], [new], [new]]
    assert [await first.end(version=version) for version in (1, 2)] == [old, new]
    await Producer(broker).initialize()
    assert [await first.initialize(version=version, resume=True) for version in (3, 4)] == [old, new]


async def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producer = await started(broker)
    producer_id = producer.producer_id

    assert await producer.initialize(resume=True) is ErrorCode.NONE

    assert (producer.producer_id, producer.epoch) == (producer_id, 1)
    await producer.send("a", b"1")
    assert await producer.end() is ErrorCode.NONE


async def test_the_markers_follow_the_answer_to_the_decision(broker: InMemoryBroker) -> None:
    producer = await with_open_transaction(broker)

    broker.parts.afterwards.begin_pass()
    assert await producer.end() is ErrorCode.NONE
    assert (state_of(broker), await committed(broker, "a")) == (PREPARE_COMMIT, [])
    broker.parts.afterwards.end_pass()

    assert (state_of(broker), await committed(broker, "a")) == (COMPLETE_COMMIT, [b"1"])


@pytest.mark.parametrize(
    ("settings", "interval_seconds"),
    [({}, 10), ({"transaction_abort_timed_out_transaction_cleanup_interval_ms": 60_000}, 60)],
)
async def test_an_open_transaction_is_aborted_at_its_timeout(
    make_broker: MakeBroker, autojump_clock: MockClock, settings: dict[str, int], interval_seconds: int
) -> None:
    producer = await with_open_transaction(broker := make_broker(**FEW, **settings), timeout_ms=5000)
    await trio.sleep(1 + interval_seconds - 0.1)  # the first look comes a second after the start
    assert state_of(broker) is ONGOING
    broker.clock.wall_now_ms += 5001

    await trio.sleep(0.2)

    assert state_of(broker) is COMPLETE_ABORT
    assert (await committed(broker, "a"), await last_stable_offset(broker, "a")) == ([], 2)
    assert await producer.end() is ErrorCode.PRODUCER_FENCED
    assert await producer.initialize() is ErrorCode.NONE
    assert producer.epoch == 2


async def test_an_idle_id_is_forgotten(make_broker: MakeBroker, tmp_path: Path, autojump_clock: MockClock) -> None:
    broker = make_broker(tmp_path / "one", **FEW, transactional_id_expiration_ms=1000)
    for name in ("idle", "busy"):
        await started(broker, name)
    broker.clock.wall_now_ms += 1000
    busy = Producer(broker, "busy")
    await busy.initialize()

    await trio.sleep(3601)
    assert list(broker.parts.transactions.transactions) == ["busy"]
    broker.close()

    again = make_broker(tmp_path / "one", **FEW)
    assert list(again.parts.transactions.transactions) == ["busy"]


async def write_markers(broker: InMemoryBroker, *markers: tuple[Any, ...], version: int = 1) -> list[Any]:
    answer = await broker.call(ApiKey.WRITE_TXN_MARKERS, version, markers=list(markers))
    return [
        (marker.producer_id, topic.name, row.partition, ErrorCode(row.error_code))
        for marker in answer.markers
        for topic in marker.topics
        for row in topic.partitions
    ]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_marker_from_outside_ends_a_partitions_transaction(broker: InMemoryBroker, version: int) -> None:
    producer = await with_open_transaction(broker)

    marker = (producer.producer_id, producer.epoch, True, [("a", [0])], 5)
    answer = await write_markers(broker, marker, version=version)

    assert answer == [(producer.producer_id, "a", 0, ErrorCode.NONE)]
    assert (await committed(broker, "a"), await last_stable_offset(broker, "a")) == ([b"1"], 2)


async def test_a_marker_of_no_producer_is_not_written_and_no_marker_has_no_answer(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")

    answer = await write_markers(broker, (7, 0, True, [("a", [0])], 0), (-1, 0, True, [("a", [0])], 0))

    assert {row[3] for row in answer} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert broker.log_of("a").log_end_offset == 0
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


@pytest.mark.pure
async def test_offsets_that_were_decided_count_after_a_restart(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(tmp_path / "one", **FEW)
    await broker.create_topic("a")
    await GroupClient(broker, "g").find()
    producer = await started(broker)
    await producer.add_offsets("g")
    await producer.commit_offset("g", "a", 5)
    monkeypatch.setattr(broker.parts.transactions, "_write_markers", lambda transaction: None)  # killed here
    assert await producer.end() is ErrorCode.NONE
    broker.close()

    again = make_broker(tmp_path / "one", **FEW)

    assert state_of(again) is COMPLETE_COMMIT
    assert await GroupClient(again, "g").offset("a") == 5


@pytest.mark.parametrize(
    ("member", "error"),
    [({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID), ({"generation_id": 3}, ErrorCode.ILLEGAL_GENERATION)],
)
async def test_unknown_members_may_not_commit(broker: InMemoryBroker, member: dict[str, Any], error: ErrorCode) -> None:
    """From v3 on the producer says which member it read as."""
    await broker.create_topic("a")
    await GroupClient(broker, "g").find()
    producer = await started(broker)
    await producer.add_offsets("g")

    assert await producer.commit_offset("g", "a", 5, **member) is error


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
        (1001, 4, -1, NOW_MS, 6, -1),
    ]
    assert (unknown.error_code, list(unknown.active_producers)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
