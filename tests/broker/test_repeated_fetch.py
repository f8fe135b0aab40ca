"""A fetch asked again byte for byte: the same answer while nothing has moved, a new one as soon as something has."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker


def fetch_frame(offset: int, *, correlation_id: int = 1, version: int = 8) -> bytes:
    message = API_TABLE[ApiKey.FETCH].request
    row = message.row("topics.partitions")
    rows = [row(partition=partition, fetch_offset=offset, max_bytes=1 << 20) for partition in range(2)]
    body = message(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, topics=[("topic", rows)])
    return encode_request(ApiKey.FETCH, version, correlation_id, "consumer", body)[4:]


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    broker = make_broker()
    await broker.create_topic("topic", 2)
    await ask(broker, fetch_frame(0))
    return broker


async def ask(broker: InMemoryBroker, frame: bytes, version: int = 8) -> tuple[int, Any]:
    answer = await broker.answer(frame)
    assert answer is not None
    return decode_response(ApiKey.FETCH, version, answer)


async def test_it_is_answered_without_being_decoded_again(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await ask(broker, fetch_frame(0))
    monkeypatch.setattr("minibroker.broker.apis.registry.decode_request", None)

    correlation_id, again = await ask(broker, fetch_frame(0, correlation_id=77))

    assert correlation_id == 77
    assert again == first[1]


async def test_a_record_in_one_of_its_partitions_is_seen(broker: InMemoryBroker) -> None:
    await broker.produce("topic", [b"new"], partition=1)

    _, answer = await ask(broker, fetch_frame(0))

    assert [len(bytes(row.records)) > 0 for row in answer.topics[0].partitions] == [False, True]
    assert [row.high_watermark for row in answer.topics[0].partitions] == [0, 1]


async def test_another_offset_or_version_is_another_question(broker: InMemoryBroker) -> None:
    _, beyond = await ask(broker, fetch_frame(5))
    _, old = await ask(broker, fetch_frame(0, version=4), version=4)

    assert {row.error_code for row in beyond.topics[0].partitions} == {ErrorCode.OFFSET_OUT_OF_RANGE}
    assert {row.error_code for row in old.topics[0].partitions} == {ErrorCode.NONE}


async def test_a_deleted_topic_is_not_answered_from_memory(broker: InMemoryBroker) -> None:
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["topic"], timeout_ms=1000)

    _, answer = await ask(broker, fetch_frame(0))

    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_moved_log_start_is_seen(broker: InMemoryBroker) -> None:
    await broker.produce("topic", [b"old"])
    await broker.produce("topic", [b"old"], partition=1)
    await ask(broker, fetch_frame(1))
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("topic", [(0, 1)])], timeout_ms=1000)

    _, answer = await ask(broker, fetch_frame(1))

    assert [row.log_start_offset for row in answer.topics[0].partitions] == [1, 0]


async def test_a_log_that_refuses_is_not_answered_from_memory(broker: InMemoryBroker) -> None:
    broker.log_of("topic", 1).refuse(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is gone")

    _, answer = await ask(broker, fetch_frame(0))

    assert [row.error_code for row in answer.topics[0].partitions] == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
