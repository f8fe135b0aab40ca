"""Produce and InitProducerId at the handlers: acks, refusals, what becomes of a failed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.protocol.api import ApiKey
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker

CRC_POSITION = 17


def one_batch(value: bytes = b"v", **options: Any) -> bytearray:
    return build_batch([Record(0, NOW_MS, None, value, ())], **options)


async def produced(
    broker: InMemoryBroker,
    batch: bytes | bytearray,
    *,
    topic: str = "t",
    acks: int = 1,
    version: int = 7,
    client_id: str = "test",
) -> Any:
    answer = await broker.call(
        ApiKey.PRODUCE, version, client_id, acks=acks, timeout_ms=1000, topics=[(topic, [(0, batch)])]
    )
    return None if answer is None else answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(3, 10))
async def test_offsets_are_given_in_order(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")

    offsets = [(await produced(broker, one_batch(), version=version)).base_offset for _ in range(3)]

    assert offsets == [0, 1, 2]


async def test_acks_zero_has_no_answer_and_is_appended(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    assert await produced(broker, one_batch(), acks=0) is None

    assert broker.log_of("t").log_end_offset == 1


async def test_a_failed_acks_zero_produce_closes_the_connection(broker: InMemoryBroker) -> None:
    with pytest.raises(CloseConnectionError):
        await produced(broker, one_batch(), topic="nope", acks=0)


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_acks_of_no_meaning_are_refused(broker: InMemoryBroker, acks: int) -> None:
    await broker.create_topic("t")

    row = await produced(broker, one_batch(), acks=acks)

    assert row.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert broker.log_of("t").log_end_offset == 0


async def test_a_wrong_crc_is_a_corrupt_message_and_appends_nothing(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = one_batch()
    batch[CRC_POSITION] ^= 1

    row = await produced(broker, batch)

    assert row.error_code == ErrorCode.CORRUPT_MESSAGE
    assert broker.log_of("t").log_end_offset == 0


async def test_a_batch_over_max_message_bytes_is_too_large(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", max_message_bytes=500)

    assert (await produced(broker, one_batch(b"x" * 600))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await produced(broker, one_batch(b"x" * 100))).error_code == ErrorCode.NONE


async def test_an_unknown_topic_and_partition_are_told_apart_from_the_rest(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    answer = await broker.call(
        ApiKey.PRODUCE,
        7,
        acks=1,
        timeout_ms=1000,
        topics=[("t", [(0, one_batch()), (9, one_batch())]), ("nope", [(0, one_batch())])],
    )

    codes = [row.error_code for topic in answer.topics for row in topic.partitions]

    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("records", [b"", one_batch() + one_batch()], ids=["none", "two"])
async def test_new_versions_carry_exactly_one_batch(broker: InMemoryBroker, records: bytes) -> None:
    await broker.create_topic("t")

    with pytest.raises(KafkaProtocolError):
        await produced(broker, records)


async def test_internal_topics_are_for_the_admin_client_only(broker: InMemoryBroker) -> None:
    await broker.create_topic("__consumer_offsets")

    refused = await produced(broker, one_batch(), topic="__consumer_offsets")
    taken = await produced(broker, one_batch(), topic="__consumer_offsets", client_id="__admin_client")

    assert (refused.error_code, taken.error_code) == (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE)


async def test_a_duplicate_batch_is_answered_with_the_first_offsets(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    first = await broker.call(ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout_ms=1000)
    identity: dict[str, Any] = {"producer_id": first.producer_id, "producer_epoch": first.producer_epoch}
    await produced(broker, one_batch())

    offsets = [
        (await produced(broker, one_batch(base_sequence=sequence, **identity))).base_offset for sequence in (0, 1, 0, 1)
    ]

    assert offsets == [1, 2, 1, 2]
    assert broker.log_of("t").log_end_offset == 3


async def test_a_gap_in_the_sequence_is_out_of_order(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    identity: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}
    await produced(broker, one_batch(base_sequence=0, **identity))

    row = await produced(broker, one_batch(base_sequence=2, **identity))

    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_producer_ids_never_repeat_not_even_after_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        broker = make_broker(tmp_path / "shared")
        for _ in range(3):
            answer = await broker.call(ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=1)
            seen.append(answer.producer_id)
        broker.close()

    assert len(set(seen)) == 6


async def test_a_flush_leaves_nothing_behind(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", flush_messages=1)

    await produced(broker, one_batch())

    assert not broker.parts.replica_manager._flusher._waiting


async def test_flush_messages_fsyncs_before_the_answer(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", flush_messages=1)

    await produced(broker, one_batch())

    log = broker.log_of("t")
    assert log.recovery_point == log.log_end_offset == log.high_watermark == 1


async def test_acks_all_is_answered_when_the_only_replica_has_it(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    row = await produced(broker, one_batch(), acks=-1)

    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)


async def test_too_few_replicas_for_min_insync_replicas(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", min_insync_replicas=2)

    assert (await produced(broker, one_batch(), acks=-1)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await produced(broker, one_batch(), acks=1)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3, 10))
async def test_zstd_may_be_sent_from_version_7_on(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")

    row = await produced(broker, one_batch(b"v" * 1000, codec=Codec.ZSTD), version=version)

    if version >= 7:
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
    else:
        assert (row.error_code, row.base_offset) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
        assert broker.log_of("t").log_end_offset == 0


async def test_zstd_cannot_be_stored_in_a_format_that_is_older(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_format_version="0.10.2")

    row = await produced(broker, one_batch(codec=Codec.ZSTD))

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
