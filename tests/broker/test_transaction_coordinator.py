"""Transactions through a whole broker: what producers are told, what consumers see, what a restart finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from minibroker.broker.transaction.transaction import COMPLETE_ABORT, COMPLETE_COMMIT
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.transactional import FEW, READ_COMMITTED, Producer, committed, last_stable_offset, started


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    return make_broker(**FEW)


def state_of(broker: InMemoryBroker, transactional_id: str = "t") -> object:
    return broker.parts.transactions.transactions[transactional_id].state


# -- what consumers see -------------------------------------------------------------------------------------------


async def test_what_is_committed_is_seen_from_the_commit_on(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producer = await started(broker)

    await producer.send("a", b"1", b"2")
    assert (await committed(broker, "a"), await last_stable_offset(broker, "a")) == ([], 0)
    assert await producer.end() is ErrorCode.NONE

    assert (await committed(broker, "a"), await last_stable_offset(broker, "a")) == ([b"1", b"2"], 3)
    assert state_of(broker) is COMPLETE_COMMIT


async def test_what_is_aborted_is_never_seen(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producer = await started(broker)

    for number in range(4):
        await producer.send("a", b"%d" % number)
        assert await producer.end(is_commit=number % 2 == 0) is ErrorCode.NONE

    assert await committed(broker, "a") == [b"0", b"2"]
    assert await last_stable_offset(broker, "a") == 8


async def test_the_last_stable_offset_is_the_first_open_transaction(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    one, other = await started(broker, "one"), await started(broker, "other")

    await one.send("a", b"1")
    await other.send("a", b"2")
    await other.end()
    assert (await last_stable_offset(broker, "a"), await committed(broker, "a")) == (0, [])
    await one.end(is_commit=False)

    assert (await last_stable_offset(broker, "a"), await committed(broker, "a")) == (4, [b"2"])


async def test_a_parked_read_committed_fetch_is_woken_by_the_marker(
    broker: InMemoryBroker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    await broker.create_topic("a")
    producer = await started(broker)
    await producer.send("a", b"1")
    answers = []

    async def fetch() -> None:
        answers.append(await broker.fetch(("a", 0, 0), isolation_level=READ_COMMITTED, max_wait_ms=600_000))

    nursery.start_soon(fetch)
    await trio.sleep(1)
    assert answers == []
    begun = trio.current_time()
    await producer.end()
    await wait_all_tasks_blocked()

    assert len(answers) == 1 and answers[0].topics[0].partitions[0].last_stable_offset == 2
    assert trio.current_time() - begun < 1


async def test_a_transaction_ends_in_all_its_partitions(broker: InMemoryBroker) -> None:
    await broker.create_topic("a", 3)
    producer = await started(broker)

    await producer.add("a", 0, 1, 2)
    for partition in (0, 2):
        assert await producer.write("a", b"%d" % partition, partition=partition) is ErrorCode.NONE
    await producer.end()

    assert [await committed(broker, "a", partition=each) for each in range(3)] == [[b"0"], [], [b"2"]]
    assert [broker.log_of("a", each).log_end_offset for each in range(3)] == [2, 1, 2]


# -- what producers are told --------------------------------------------------------------------------------------


async def test_without_its_topic_there_is_no_coordinator(broker: InMemoryBroker) -> None:
    producer = Producer(broker)

    assert await producer.initialize() is ErrorCode.NOT_COORDINATOR
    assert await producer.add("a") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.end() is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("timeout_ms", "error"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_000, ErrorCode.NONE),
    ],
)
async def test_timeouts_have_bounds(broker: InMemoryBroker, timeout_ms: int, error: ErrorCode) -> None:
    broker.parts.transactions.ensure_topic()

    assert await Producer(broker, timeout_ms=timeout_ms).initialize() is error


async def test_an_empty_id_is_an_invalid_request(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    broker.parts.transactions.ensure_topic()
    producer = Producer(broker, "")

    assert await producer.initialize() is ErrorCode.INVALID_REQUEST
    assert await producer.add("a") == [ErrorCode.INVALID_REQUEST]
    assert await producer.end() is ErrorCode.INVALID_REQUEST


async def test_an_id_nobody_initialized_is_not_mapped(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    broker.parts.transactions.ensure_topic()
    producer = Producer(broker)

    assert await producer.add("a") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await producer.add_offsets("g") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await producer.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_one_unknown_partition_keeps_all_out(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producer = await started(broker)

    assert await producer.add("a", 0, 9) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.add("__transaction_state") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await producer.end() is ErrorCode.INVALID_TXN_STATE


async def test_ending_twice_is_told_as_before_and_otherwise_refused(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producer = await started(broker)
    await producer.send("a", b"1")

    answers = [await producer.end(), await producer.end(), await producer.end(is_commit=False)]

    assert answers == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]


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


# -- fencing ------------------------------------------------------------------------------------------------------


async def test_a_second_producer_shuts_out_the_first(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    first = await started(broker)
    await first.send("a", b"1")
    second = Producer(broker)

    assert await second.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS  # while the first's is aborted
    assert await second.initialize() is ErrorCode.NONE
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 2)
    assert await first.add("a") == [ErrorCode.PRODUCER_FENCED]
    assert await first.end() is ErrorCode.PRODUCER_FENCED
    assert await first.write("a", b"2") is ErrorCode.INVALID_PRODUCER_EPOCH
    await second.send("a", b"3")
    await second.end()

    assert await committed(broker, "a") == [b"3"]


async def test_older_versions_are_told_of_the_epoch(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    first = await started(broker)
    await Producer(broker).initialize()

    assert [await first.add("a", version=version) for version in range(4)] == [
        [ErrorCode.INVALID_PRODUCER_EPOCH],
        [ErrorCode.INVALID_PRODUCER_EPOCH],
        [ErrorCode.PRODUCER_FENCED],
        [ErrorCode.PRODUCER_FENCED],
    ]
    assert await first.end(version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await first.end(version=2) is ErrorCode.PRODUCER_FENCED
    await Producer(broker).initialize()
    assert await first.initialize(version=3, resume=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await first.initialize(version=4, resume=True) is ErrorCode.PRODUCER_FENCED


async def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")
    producer = await started(broker)
    producer_id = producer.producer_id

    assert await producer.initialize(resume=True) is ErrorCode.NONE

    assert (producer.producer_id, producer.epoch) == (producer_id, 1)
    await producer.send("a", b"1")
    assert await producer.end() is ErrorCode.NONE


# -- time ---------------------------------------------------------------------------------------------------------


async def test_an_open_transaction_is_aborted_after_its_timeout(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await broker.create_topic("a")
    producer = await started(broker, timeout_ms=5000)
    await producer.send("a", b"1")
    broker.clock.wall_now_ms += 5001

    await trio.sleep(61)

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
