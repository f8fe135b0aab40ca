"""Produce and InitProducerId at the handlers: acks, refusals, what becomes of a failed one.

What versions up to 6 refuse is in tests/fetch_path (rows 79-83) and tests/conformance/scripts/producing.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.pending import Pending
from minibroker.protocol.api import ApiKey
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import batch_of
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker


async def produced(broker: InMemoryBroker, batch: bytes | bytearray, *, version: int = 7) -> Any:
    topics = [("t", [(0, batch)])]
    answer = await broker.call(ApiKey.PRODUCE, version, acks=1, timeout_ms=1000, topics=topics)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("records", [b"", batch_of() + batch_of()], ids=["none", "two"])
async def test_new_versions_carry_exactly_one_batch(broker: InMemoryBroker, records: bytes) -> None:
    await broker.create_topic("t")

    with pytest.raises(KafkaProtocolError):
        await produced(broker, records)


async def test_flush_messages_fsyncs_before_the_answer(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", flush_messages=1)

    await produced(broker, batch_of())

    log = broker.log_of("t")
    assert log.recovery_point == log.log_end_offset == log.high_watermark == 1


async def test_records_that_a_start_finds_are_served_before_they_are_fsynced_again(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tmp_path / "one")
    await broker.create_topic("t", flush_messages=1)
    await produced(broker, batch_of())

    again = make_broker(shutil.copytree(tmp_path / "one", tmp_path / "crashed"))

    assert (again.log_of("t").recovery_point, again.log_of("t").high_watermark) == (0, 1)


async def test_an_append_of_nothing_commits_no_records_that_wait_for_their_fsync(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", flush_messages=1)
    replica_manager, where = broker.parts.replica_manager, TopicPartition("t", 0)

    appends = [
        replica_manager.append({where: memoryview(records)}, required_acks=1, timeout_ms=1000)
        for records in (batch_of(), bytearray())
    ]

    assert broker.log_of("t").high_watermark == 0
    for each in appends:
        assert isinstance(each, Pending)
        await each.wait()
    assert broker.log_of("t").high_watermark == 1


@pytest.mark.parametrize("version", range(3, 10))
async def test_zstd_may_be_sent_from_version_7_on(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")

    row = await produced(broker, batch_of(b"v" * 1000, codec=Codec.ZSTD), version=version)

    if version >= 7:
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
    else:
        assert (row.error_code, row.base_offset) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
        assert broker.log_of("t").log_end_offset == 0


async def test_zstd_cannot_be_stored_in_a_format_that_is_older(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_format_version="0.10.2")

    row = await produced(broker, batch_of(codec=Codec.ZSTD))

    assert row.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize("version", range(3, 10))
async def test_from_version_8_on_it_is_told_which_records_are_wrong(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", cleanup_policy="compact")
    keys = [b"k", None, b"k", None]
    batch = build_batch([Record(offset, NOW_MS, key, b"v") for offset, key in enumerate(keys)])

    row = await produced(broker, batch, version=version)

    reason = "Compacted topic cannot accept message without key."
    if version >= 8:
        assert row.error_code == ErrorCode.INVALID_RECORD
        assert [tuple(each) for each in row.record_errors] == [(1, reason), (3, reason)]
        assert row.error_message == reason
    else:
        assert row.error_code == ErrorCode.CORRUPT_MESSAGE
    assert broker.log_of("t").log_end_offset == 0


async def test_a_wrong_timestamp_is_told_of_its_record(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_timestamp_difference_max_ms=1000)
    batch = build_batch([Record(0, NOW_MS, None, b"v"), Record(1, NOW_MS - 2000, None, b"v")], codec=Codec.GZIP)

    row = await produced(broker, batch, version=9)

    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in row.record_errors] == [1]


async def test_no_more_than_a_hundred_wrong_records_are_told(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", cleanup_policy="compact")
    batch = build_batch([Record(offset, NOW_MS, None, b"") for offset in range(5000)])

    row = await produced(broker, batch, version=9)

    assert [each.batch_index for each in row.record_errors] == list(range(100))


async def deleted_all(broker: InMemoryBroker, topic: str = "t") -> None:
    answer = await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[(topic, [(0, -1)])], timeout_ms=1000)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("version", "sequence", "epoch", "error", "offset"),
    [
        (7, 1, 5, ErrorCode.UNKNOWN_PRODUCER_ID, -1),
        (7, 0, 5, ErrorCode.NONE, 1),  # and not as a duplicate
        (7, 0, 4, ErrorCode.INVALID_PRODUCER_EPOCH, -1),
        (8, 1, 5, ErrorCode.NONE, 1),
        (9, 1, 5, ErrorCode.NONE, 1),
        (8, 0, 5, ErrorCode.NONE, 0),  # a duplicate
        (8, 3, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (8, 0, 4, ErrorCode.INVALID_PRODUCER_EPOCH, -1),
        (8, 0, 6, ErrorCode.NONE, 1),
        (8, 1, 6, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
    ],
)
async def test_a_producer_whose_records_are_deleted_stays_known_from_version_8_on(
    make_broker: MakeBroker, version: int, sequence: int, epoch: int, error: ErrorCode, offset: int, restarts: bool
) -> None:
    broker = make_broker()
    await broker.create_topic("t")
    await produced(broker, batch_of(producer_id=7, producer_epoch=5, base_sequence=0))
    await deleted_all(broker)
    if restarts:
        broker.close()
        broker = make_broker(broker.log_of("t").directory.parent)

    row = await produced(broker, batch_of(producer_id=7, producer_epoch=epoch, base_sequence=sequence), version=version)

    assert (row.error_code, row.base_offset) == (error, offset)


@pytest.mark.parametrize(("version", "error"), [(7, ErrorCode.UNKNOWN_PRODUCER_ID), (8, ErrorCode.NONE)])
async def test_a_producer_that_is_not_known_may_begin_anywhere_from_version_8_on(
    broker: InMemoryBroker, version: int, error: ErrorCode
) -> None:
    await broker.create_topic("t")
    batches = [batch_of(producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (4, 5)]

    rows = [await produced(broker, batch, version=version) for batch in batches]

    assert [row.error_code for row in rows] == [error, error]
