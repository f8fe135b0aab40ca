"""Formats turned into others: downwards as Kafka 2.0.1 answered old Fetch requests, upwards as it appends."""

from __future__ import annotations

import gzip
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.api import ApiKey, decode_request, decode_response
from minibroker.protocol.batches import find_offset
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import build_records, down_convert
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_set import build_message_set, read_message_header
from minibroker.protocol.record import NO_TIMESTAMP, Record
from minibroker.protocol.record_batch import TimestampType, build_batch, read_header
from tests.conftest import GOLDEN
from tests.protocol.batch_bytes import LIMIT, commit_marker, offsets_in, records_in, views_of
from tests.protocol.golden_logs import golden_segments
from tests.protocol.record_strategies import PROPERTY, RECORDS, record_lists
from tests.refusals import refusal_of

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


class RecordedFetch(NamedTuple):
    """A question of one partition, in versions 0 to 3, and the bytes of records it was answered with."""

    version: int
    topic_partition: str
    fetch_offset: int
    records: bytes


def recorded_fetches() -> list[RecordedFetch]:
    fetches = []
    with gzip.open(GOLDEN / "kafka-2.0.1-frames.jsonl.gz", "rt") as lines:
        for line in lines:
            frame = json.loads(line)
            if (frame["scenario"], frame["api"]) == ("old_formats", "Fetch") and frame["version"] <= 3:
                request, response = bytes.fromhex(frame["request"]), bytes.fromhex(frame["response"])
                fetches.append(read_fetch(frame["version"], request, response))
    return fetches


def read_fetch(version: int, request: bytes, response: bytes) -> RecordedFetch:
    (topic,) = decode_request(request).body.topics
    (asked,) = topic.partitions
    (answered,) = decode_response(ApiKey.FETCH, version, response)[1].topics[0].partitions
    return RecordedFetch(version, f"{topic.topic}-{asked.partition}", asked.fetch_offset, bytes(answered.records))


def down(data: bytes | bytearray, to_magic: int, first_offset: int = 0, limit: int = LIMIT) -> bytearray:
    return down_convert(data, 0, len(data), to_magic=to_magic, first_offset=first_offset, max_decompressed_bytes=limit)


@pytest.mark.parametrize("fetch", recorded_fetches(), ids=lambda fetch: f"v{fetch[0]}-{fetch[1]}-{fetch[2]}")
def test_kafkas_answers_in_old_formats_are_converted_to_the_byte(fetch: RecordedFetch) -> None:
    name = f"{fetch.topic_partition}/00000000000000000000.log"
    log = golden_segments()[name]
    found = find_offset(log, 0, len(log), fetch.fetch_offset)
    assert found is not None

    converted = down_convert(
        log,
        found[1],
        len(log),
        to_magic=0 if fetch.version < 2 else 1,
        first_offset=fetch.fetch_offset,
        max_decompressed_bytes=LIMIT,
    )

    # Kafka sends as many bytes as the log had: what has grown is cut, what has shrunk is filled up.
    length = min(len(converted), len(fetch.records))
    assert fetch.records[:length] == converted[:length]
    assert length > 700


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("to_magic", [0, 1])
@PROPERTY
@given(records=record_lists(headers=True))
def test_records_keep_offset_key_and_value_on_the_way_down(to_magic: int, codec: Codec, records: list[Record]) -> None:
    batch = build_batch(records, base_offset=records[0].offset, codec=codec)

    converted = down(batch, to_magic)

    views = views_of(converted)
    assert {(view.magic, view.codec) for view in views} == {(to_magic, codec)}
    assert len(views) == (len(records) if codec is Codec.NONE else 1)
    expected = [record._replace(headers=()) for record in records]
    if to_magic == 0:
        expected = [record._replace(timestamp_ms=NO_TIMESTAMP) for record in expected]
    assert records_in(converted) == expected


@pytest.mark.parametrize("codec", CODECS)
def test_magic_1_goes_down_to_magic_0_too_and_older_formats_keep_their_bytes(codec: Codec) -> None:
    old = build_message_set(RECORDS, magic=0, codec=codec)
    new = build_message_set(RECORDS, magic=1, codec=codec)
    batch = build_batch(RECORDS)

    converted = down(new, 0)

    assert offsets_in(converted) == [20, 21, 24]
    assert {view.magic for view in views_of(converted)} == {0}
    assert down(old + new, 1, first_offset=24) == old + new
    assert down(old + new + batch, 2, first_offset=24) == old + new + batch


def test_control_batches_are_left_out_of_old_formats_only() -> None:
    marker = commit_marker(25)
    log = build_batch(RECORDS, base_offset=20) + marker

    assert offsets_in(down(log, 1)) == [20, 21, 24]
    assert down(marker, 0) == b""
    assert down(log, 2) == log


def test_records_before_the_asked_one_are_left_out_unless_they_are_compressed() -> None:
    plain = build_batch(RECORDS, base_offset=20)
    compressed = build_batch(RECORDS, base_offset=20, codec=Codec.SNAPPY)

    assert offsets_in(down(plain, 1, first_offset=21)) == [21, 24]
    assert offsets_in(down(compressed, 1, first_offset=21)) == [20, 21, 24]
    assert down(plain, 1, first_offset=25) == b""


def test_append_time_stays_append_time_on_the_way_down() -> None:
    batch = build_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=77)

    converted = down(batch, 1)

    assert read_message_header(converted).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp_ms for record in records_in(converted)} == {77}


def test_a_batch_that_is_cut_off_is_passed_over() -> None:
    batch = build_batch(RECORDS)

    assert down(batch + batch[:-1], 1) == down(batch, 1)


@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize(
    ("codec", "code"),
    [(Codec.GZIP, ErrorCode.MESSAGE_TOO_LARGE), (Codec.ZSTD, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)],
    ids=["over the limit", "of a codec that is not looked into"],
)
def test_a_batch_that_cannot_be_converted_is_refused(to_magic: int, codec: Codec, code: ErrorCode) -> None:
    batch = build_batch([Record(0, 5, None, bytes(50_000))], codec=codec)
    if codec is Codec.ZSTD:
        batch[-3:] = b"???"

    assert refusal_of(lambda: down(batch, to_magic, limit=1000)) is code


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@PROPERTY
@given(records=record_lists(headers=False, dense=True), leader_epoch=st.integers(0, 9))
def test_any_format_is_built_into_magic_2(magic: int, codec: Codec, records: list[Record], leader_epoch: int) -> None:
    stored = records_in(build_message_set(records, magic=magic, codec=codec))

    batch = build_records(stored, magic=2, base_offset=stored[0].offset, codec=codec, leader_epoch=leader_epoch)

    header = read_header(batch)
    assert (header.size_bytes, header.codec, header.partition_leader_epoch) == (len(batch), codec, leader_epoch)
    assert header.max_timestamp == max(record.timestamp_ms for record in stored)
    assert records_in(batch) == stored


def test_building_passes_everything_on_to_the_format() -> None:
    given: dict[str, Any] = {
        "codec": Codec.LZ4,
        "timestamp_type": TimestampType.LOG_APPEND_TIME,
        "log_append_time_ms": 77,
        "leader_epoch": 3,
        "producer_id": 9,
        "producer_epoch": 1,
        "base_sequence": 5,
        "is_transactional": True,
    }

    assert build_records(RECORDS, magic=2, base_offset=20, **given) == build_batch(RECORDS, base_offset=20, **given)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("field", [{"producer_id": 5}, {"is_transactional": True}, {"is_control": True}])
def test_old_formats_have_no_producers(magic: int, field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no producer"):
        build_records(RECORDS, magic=magic, base_offset=20, **field)
