"""The three record formats by the same claims: what is built is read, by kafka-python too; damage and stamps show."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.batches import iter_all_records
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import build_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_set import message_crc_is_valid, read_message_header, stamp_message
from minibroker.protocol.record import NO_TIMESTAMP, Record
from minibroker.protocol.record_batch import TimestampType, crc_is_valid, read_header, stamp
from tests.protocol import kafka_python
from tests.protocol.batch_bytes import REFUSALS, views_of
from tests.protocol.record_strategies import CODECS, LIMIT, PROPERTY, RECORDS, record_lists
from tests.refusals import refusal_of


class Format(NamedTuple):
    """A format and a codec that it knows."""

    magic: int
    codec: Codec

    def build(self, records: list[Record], **given: Any) -> bytearray:
        return build_records(records, magic=self.magic, base_offset=records[0].offset, codec=self.codec, **given)

    def stored(self, records: list[Record]) -> list[Record]:
        """The records with what the format keeps of them."""
        if self.magic == 0:
            return [record._replace(headers=(), timestamp_ms=NO_TIMESTAMP) for record in records]
        return [record._replace(headers=()) for record in records] if self.magic == 1 else records

    @property
    def crc_at(self) -> int:
        return 17 if self.magic == 2 else 12

    def checksum(self, batch: bytes | bytearray) -> Callable[[bytes | bytearray], bool]:
        """Return what checks other bytes by the header of this batch."""
        if self.magic == 2:
            header = read_header(batch)
            return lambda data: crc_is_valid(data, 0, header)
        old = read_message_header(batch)
        return lambda data: message_crc_is_valid(data, 0, old)

    def stamp(self, batch: bytearray, timestamp_ms: int, *, log_append_time: bool = False) -> None:
        if self.magic == 2:
            time: dict[str, Any] = {"max_timestamp_ms": timestamp_ms, "log_append_time": log_append_time}
            stamp(batch, 0, base_offset=20, leader_epoch=0, **time)
        else:
            stamp_message(batch, 0, offset=20, timestamp_ms=timestamp_ms, log_append_time=log_append_time)


FORMATS = [Format(magic, codec) for magic in (0, 1, 2) for codec in CODECS if magic == 2 or codec is not Codec.ZSTD]
COMPRESSED = [each for each in FORMATS if each.codec is not Codec.NONE]
TIMED = [Format(1, Codec.NONE), Format(2, Codec.NONE)]
# kafka-python wants one more package for the old header checksum of magic 0.
KNOWN_TO_KAFKA_PYTHON = [each for each in FORMATS if each != (0, Codec.LZ4)]
every_format = pytest.mark.parametrize("form", FORMATS, ids=str)


def records_of(batches: bytes | bytearray, limit: int = LIMIT) -> list[Record]:
    views = views_of(batches)
    return [each for view in views for each in iter_all_records(batches, view, max_decompressed_bytes=limit)]


@every_format
@PROPERTY
@given(records=record_lists(headers=True))
def test_any_records_come_back(form: Format, records: list[Record]) -> None:
    batches = form.build(records)

    views = views_of(batches)
    assert records_of(batches) == form.stored(records)
    assert (views[-1].end_position, views[-1].last_offset) == (len(batches), records[-1].offset)
    assert {(view.magic, view.codec) for view in views} == {(form.magic, form.codec)}
    if form.magic:
        assert max(view.max_timestamp_ms for view in views) == max(record.timestamp_ms for record in records)


@pytest.mark.parametrize("form", KNOWN_TO_KAFKA_PYTHON, ids=str)
@PROPERTY
@given(records=record_lists(headers=True, dense=True))
def test_kafka_python_reads_built_batches(form: Format, records: list[Record]) -> None:
    theirs = kafka_python.MemoryRecords(bytes(form.build(records)))

    read = []
    while (batch := theirs.next_batch()) is not None:
        assert batch.validate_crc()
        for each in batch:
            timestamp_ms = NO_TIMESTAMP if each.timestamp is None else each.timestamp
            read.append(Record(each.offset, timestamp_ms, each.key, each.value, tuple(each.headers)))
    assert read == form.stored(records)


@pytest.mark.parametrize("form", KNOWN_TO_KAFKA_PYTHON, ids=str)
@PROPERTY
@given(records=record_lists(headers=True, dense=True))
def test_batches_of_kafka_python_are_read(form: Format, records: list[Record]) -> None:
    if form.magic == 2:
        builder = kafka_python.DefaultRecordBatchBuilder(2, form.codec, False, -1, -1, -1, LIMIT)
    else:
        builder = kafka_python.LegacyRecordBatchBuilder(form.magic, form.codec, LIMIT)
    for index, record in enumerate(form.stored(records)):
        headers = [list(record.headers)] if form.magic == 2 else []
        builder.append(index, records[index].timestamp_ms, record.key, record.value, *headers)
    batch = bytes(builder.build())

    expected = [record._replace(offset=index) for index, record in enumerate(form.stored(records))]
    assert records_of(batch) == expected
    assert form.checksum(batch)(batch)
    if form == (2, Codec.NONE):
        # kafka-python leaves the leader epoch 0, which no checksum covers.
        assert form.build(expected, leader_epoch=read_header(batch).partition_leader_epoch) == batch


@pytest.mark.parametrize("form", [each for each in FORMATS if each.magic], ids=str)
def test_append_time_is_that_of_every_record(form: Format) -> None:
    batches = form.build(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=77)

    assert {view.timestamp_type for view in views_of(batches)} == {TimestampType.LOG_APPEND_TIME}
    assert [record.timestamp_ms for record in records_of(batches)] == [77, 77, 77]
    assert form.build(RECORDS, log_append_time_ms=5) == form.build(RECORDS)


@pytest.mark.parametrize("form", TIMED, ids=str)
def test_nothing_is_built_without_records_or_without_its_append_time(form: Format) -> None:
    with pytest.raises(ValueError, match="needs a record"):
        build_records([], magic=form.magic, base_offset=0)
    with pytest.raises(ValueError, match="needs log_append_time_ms"):
        form.build(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)


@pytest.mark.parametrize("form", TIMED, ids=str)
@pytest.mark.parametrize(("timestamp_ms", "log_append_time"), [(5000, False), (1_700_000_000_000, True)])
def test_a_new_timestamp_or_type_of_it_alone_makes_a_new_checksum(
    form: Format, timestamp_ms: int, log_append_time: bool
) -> None:
    batch = form.build(RECORDS[:1])

    form.stamp(batch, timestamp_ms, log_append_time=log_append_time)

    (view,) = views_of(batch)
    assert form.checksum(batch)(batch)
    assert (view.max_timestamp_ms, view.timestamp_type) == (timestamp_ms, int(log_append_time))


@pytest.mark.parametrize("form", TIMED, ids=str)
def test_the_same_timestamp_again_leaves_even_a_wrong_checksum_alone(form: Format) -> None:
    batch = form.build(RECORDS[:1])
    struct.pack_into(">I", batch, form.crc_at, 12345)

    form.stamp(batch, RECORDS[0].timestamp_ms)

    assert struct.unpack_from(">I", batch, form.crc_at) == (12345,)


@every_format
def test_a_flipped_bit_anywhere_after_the_checksum_is_noticed(form: Format) -> None:
    batch = form.build(RECORDS[:1])
    is_valid = form.checksum(batch)

    for bit in range((form.crc_at + 4) * 8, len(batch) * 8):
        batch[bit // 8] ^= 1 << bit % 8
        assert not is_valid(batch)
        batch[bit // 8] ^= 1 << bit % 8
    assert is_valid(batch)


@every_format
def test_a_batch_cut_off_at_any_byte_is_noticed(form: Format) -> None:
    batch = form.build(RECORDS[:1])
    (view,), is_valid = views_of(batch), form.checksum(batch)

    for end in range(1, len(batch)):
        cut = batch[:end]
        assert not is_valid(cut)
        with pytest.raises(KafkaError) as refusal:
            list(iter_all_records(cut, view, max_decompressed_bytes=LIMIT))
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("form", COMPRESSED, ids=str)
def test_more_than_the_limit_once_decompressed_is_too_large(form: Format) -> None:
    batch = form.build([Record(0, 0, None, bytes(100_000))])

    assert len(records_of(batch, 101_000)) == 1
    assert refusal_of(lambda: records_of(batch, 100_000)) is ErrorCode.MESSAGE_TOO_LARGE


@every_format
@PROPERTY
@given(records=record_lists(headers=True), data=st.data())
def test_damage_is_refused_with_a_code(form: Format, records: list[Record], data: st.DataObject) -> None:
    batches = form.build(records)
    for _ in range(data.draw(st.integers(1, 3))):
        batches[data.draw(st.integers(8, len(batches) - 1))] = data.draw(st.integers(0, 255))

    try:
        records_of(batches)
    except KafkaError as refusal:
        assert refusal.code in REFUSALS
