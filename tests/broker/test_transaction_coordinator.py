"""Transactions through a whole broker: what producers are told, what consumers see, what a restart finds.

What Apache Kafka 2.0.1 answers to producers and consumers is in tests/conformance/scripts/transactions.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.transaction.transaction import COMPLETE_ABORT
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.transactional import FEW, Producer, committed, last_stable_offset, started


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    return make_broker(**FEW)


def state_of(broker: InMemoryBroker, transactional_id: str = "t") -> object:
    return broker.parts.transactions.transactions[transactional_id].state


async def test_without_its_topic_there_is_no_coordinator(broker: InMemoryBroker) -> None:
    producer = Producer(broker)

    assert await producer.initialize() is ErrorCode.NOT_COORDINATOR
    assert await producer.add("a") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await producer.end() is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "error"),
    [
        ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_000, ErrorCode.NONE),
        ("", 1000, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_which_ids_and_timeouts_are_taken(
    broker: InMemoryBroker, transactional_id: str, timeout_ms: int, error: ErrorCode
) -> None:
    broker.parts.transactions.ensure_topic()
    producer = Producer(broker, transactional_id, timeout_ms=timeout_ms)

    assert await producer.initialize() is error
    assert await producer.add("__transaction_state") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert (await producer.end() is ErrorCode.INVALID_REQUEST) == (transactional_id == "")


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
