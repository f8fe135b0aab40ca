"""Transactions through a whole broker: answers to producers, markers from outside, offsets, descriptions.

What Apache Kafka 2.0.1 answers to producers and consumers is in
tests/golden/conversations/kafka-2.0.1/transactions.txt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.transaction.participation import RETRY_MS
from minibroker.broker.transaction.transaction import COMPLETE_COMMIT, PREPARE_COMMIT, Transaction
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.group_clients import GroupClient
from tests.broker.transactional import FEW, committed, started, state_of, with_open_transaction


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    return make_broker(**FEW)


async def test_the_markers_follow_the_answer_to_the_decision(broker: InMemoryBroker) -> None:
    producer = await with_open_transaction(broker)

    broker.parts.afterwards.begin_pass()
    assert await producer.end() is ErrorCode.NONE
    assert (state_of(broker), await committed(broker, "a")) == (PREPARE_COMMIT, [])
    broker.parts.afterwards.end_pass()

    assert (state_of(broker), await committed(broker, "a")) == (COMPLETE_COMMIT, [b"1"])


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
    await write_markers(broker, (producer.producer_id, 0, True, [("a", [0])], 99, 0))

    assert await producer.end(is_commit=False) is ErrorCode.NONE

    assert await producer.add("a") == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert await committed(broker, "a") == [b"1"]
    assert "t stays PrepareAbort: a-0 answered TRANSACTION_COORDINATOR_FENCED" in caplog.text


@pytest.mark.pure
async def test_records_are_added_once_the_transaction_before_has_ended(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await with_open_transaction(broker)
    decided: list[Transaction] = []
    write_markers = broker.parts.transactions._write_markers
    monkeypatch.setattr(broker.parts.transactions, "_write_markers", decided.append)
    assert await producer.end(version=5) is ErrorCode.NONE
    producer.epoch, producer.sequences = producer.epoch + 1, {}  # as the answer says

    written = await broker.park(producer.write, "a", b"2", version=12)
    write_markers(decided.pop())
    await trio.sleep(RETRY_MS / 1000)

    assert await written.seen() is ErrorCode.NONE


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
