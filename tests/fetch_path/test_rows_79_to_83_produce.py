"""Rows 79-83 of kafka 2.0.1's fetch path: what may be written, so that it can be fetched."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import NO_SEQUENCE, Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import on_disk
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.storage.logs import with_fields

NO_OFFSET = -1


def batch_of(size: int = 1, **options: Any) -> bytearray:
    return build_batch([Record(0, NOW_MS, None, b"x" * size)], **options)


async def send(
    broker: InMemoryBroker,
    records: bytes | bytearray,
    *,
    acks: int = 1,
    version: int = 7,
    topic: str = "t",
    partition: int = 0,
    client_id: str = "test",
) -> tuple[ErrorCode, int]:
    """Error and base offset."""
    topics = [(topic, [(partition, records)])]
    answer = await broker.call(ApiKey.PRODUCE, version, client_id, acks=acks, timeout_ms=1000, topics=topics)
    row = answer.topics[0].partitions[0]
    return ErrorCode(row.error_code), row.base_offset


async def test_row_79_a_batch_of_max_message_bytes_is_taken_and_a_byte_more_is_too_large(
    broker: InMemoryBroker,
) -> None:
    limit = len(batch_of(100))
    await broker.create_topic("t", max_message_bytes=limit)

    answers = [await send(broker, batch_of(size)) for size in (100, 101)]

    assert answers == [(ErrorCode.NONE, 0), (ErrorCode.MESSAGE_TOO_LARGE, NO_OFFSET)]


async def test_row_79_a_batch_that_no_segment_has_room_for_is_refused(broker: InMemoryBroker) -> None:
    limit = len(batch_of(100))
    await broker.create_topic("t", segment_bytes=limit)

    answers = [await send(broker, batch_of(size)) for size in (100, 101)]

    assert answers == [(ErrorCode.NONE, 0), (ErrorCode.RECORD_LIST_TOO_LARGE, NO_OFFSET)]


async def numbered(broker: InMemoryBroker, sequence: int, *, producer_id: int = 5, epoch: int = 0) -> Any:
    return await send(broker, batch_of(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))


async def test_row_80_the_last_five_batches_are_known_again_and_answered_with_their_offsets(
    broker: InMemoryBroker,
) -> None:
    await broker.create_topic("t")
    for sequence in range(7):
        await numbered(broker, sequence)

    again = [await numbered(broker, sequence) for sequence in range(7)]

    forgotten = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, NO_OFFSET)
    assert again == [forgotten, forgotten, *((ErrorCode.NONE, offset) for offset in (2, 3, 4, 5, 6))]
    assert broker.log_of("t").log_end_offset == 7


@pytest.mark.parametrize("sequence", [NO_SEQUENCE, 0])
async def test_row_81_control_batches_are_the_brokers_own(broker: InMemoryBroker, sequence: int) -> None:
    await broker.create_topic("t")
    marker = build_end_txn_marker(
        ControlType.ABORT, producer_id=5, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
    )

    assert await send(broker, with_fields(marker, base_sequence=sequence)) == (ErrorCode.CORRUPT_MESSAGE, NO_OFFSET)
    assert on_disk(broker, "t") == b""


async def test_row_81_a_batch_begins_at_offset_0(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    answers = [await send(broker, with_fields(batch_of(), base_offset=offset)) for offset in (1, 0)]

    assert answers == [(ErrorCode.CORRUPT_MESSAGE, NO_OFFSET), (ErrorCode.NONE, 0)]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
async def test_row_81_a_compacted_topic_takes_no_record_without_a_key(broker: InMemoryBroker, policy: str) -> None:
    await broker.create_topic("t", cleanup_policy=policy)
    records = [Record(0, NOW_MS, b"k", b"v"), Record(1, NOW_MS, None, b"v")]

    answers = [await send(broker, build_batch(records[:count])) for count in (2, 1)]

    assert answers == [(ErrorCode.CORRUPT_MESSAGE, NO_OFFSET), (ErrorCode.NONE, 0)]


@pytest.mark.parametrize("acks", [-2, 2, 32767, -32768])
async def test_row_82_acks_that_mean_nothing_are_refused_and_nothing_is_written(
    broker: InMemoryBroker, acks: int
) -> None:
    await broker.create_topic("t")

    assert await send(broker, batch_of(), acks=acks) == (ErrorCode.INVALID_REQUIRED_ACKS, NO_OFFSET)
    assert on_disk(broker, "t") == b""


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
async def test_row_83_internal_topics_are_written_by_the_admin_client_alone(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker()
    await broker.create_topic(topic)
    batch = build_batch([Record(0, NOW_MS, b"k", b"v")])

    answers = [await send(broker, bytearray(batch), topic=topic, client_id=each) for each in ("a", "__admin_client")]

    assert answers == [(ErrorCode.INVALID_TOPIC_EXCEPTION, NO_OFFSET), (ErrorCode.NONE, 0)]
