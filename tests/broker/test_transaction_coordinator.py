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
from tests.broker.conftest import InMemoryBroker, MakeBroker
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
