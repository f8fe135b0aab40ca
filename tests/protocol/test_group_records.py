"""The records of `__consumer_offsets`, against bytes that Apache Kafka 2.0.1 wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from minibroker.protocol import group_records
from minibroker.protocol.group_records import (
    GroupKey,
    GroupMetadataValue,
    GroupRecord,
    MemberRecord,
    OffsetCommitValue,
    OffsetKey,
    OffsetRecord,
    UnreadableRecordError,
    group_headers,
    group_key,
    group_value,
    offset_headers,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
)
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Headers, Record
from minibroker.protocol.schema import Message
from tests.protocol.message_values import interpreted_encode

FLIGHTS_0 = TopicPartition("flights", 0)
RETENTION_MS = 7 * 24 * 3600 * 1000

# Recorded from Apache Kafka 2.0.1: a commit without a retention time, and a group of one member.
KAFKA_OFFSET_KEY = b"\x00\x01\x00\x06simple\x00\x07flights\x00\x00\x00\x00"
KAFKA_OFFSET_VALUE = bytes.fromhex("0001000000000000002a0000000001a1fe1224a0000001a2221ea8a0")
KAFKA_OFFSET = OffsetRecord(42, -1, "", 0x1A1FE1224A0, None)
KAFKA_GROUP_KEY = b"\x00\x02\x00\x07readers"
KAFKA_GROUP_VALUE = bytes.fromhex(
    "00010008636f6e73756d657200000001000572616e6765002b7265616465722d32336161613165302d306365342d34396566"
    "2d613664392d33306264626433316566653200000001002b7265616465722d32336161613165302d306365342d343965662d"
    "613664392d3330626462643331656665320006726561646572000a2f3132372e302e302e31000493e00000afc80000001d00"
    "03000000010007666c69676874730000000000000000ffffffff00000000001f0000000000010007666c6967687473000000"
    "02000000000000000100000000"
)
KAFKA_EMPTY_GROUP_VALUE = bytes.fromhex("00010008636f6e73756d657200000002ffffffff00000000")
MEMBER_ID = "reader-23aaa1e0-0ce4-49ef-a6d9-30bdbd31efe2"
KAFKA_MEMBER = MemberRecord(
    member_id=MEMBER_ID,
    group_instance_id=None,
    client_id="reader",
    client_host="/127.0.0.1",
    rebalance_timeout_ms=300_000,
    session_timeout_ms=45_000,
    subscription=bytes.fromhex("0003000000010007666c69676874730000000000000000ffffffff0000"),
    assignment=bytes.fromhex("0000000000010007666c696768747300000002000000000000000100000000"),
)
KAFKA_GROUP = GroupRecord("consumer", 1, "range", MEMBER_ID, -1, (KAFKA_MEMBER,))
EMPTY_GROUP = GroupRecord("consumer", 2, None, None, -1, ())


def a_record(value: bytes | None, headers: Headers = ()) -> Record:
    return Record(0, 0, b"", value, headers)


def value_of(message: Message, version: int, **fields: Any) -> bytes:
    """A value by the interpreted schema, its version in front."""
    return version.to_bytes(2, "big") + interpreted_encode(message, version, message(**fields))


def test_an_offset_is_written_as_kafka_writes_it_and_read() -> None:
    expires = KAFKA_OFFSET.commit_timestamp_ms + RETENTION_MS

    assert offset_key("simple", FLIGHTS_0) == KAFKA_OFFSET_KEY
    assert offset_value(KAFKA_OFFSET, RETENTION_MS) == KAFKA_OFFSET_VALUE
    assert offset_headers(KAFKA_OFFSET) == ()
    assert read_offset(a_record(KAFKA_OFFSET_VALUE)) == KAFKA_OFFSET._replace(expire_timestamp_ms=expires)
    for key in (KAFKA_OFFSET_KEY, b"\x00\x00" + KAFKA_OFFSET_KEY[2:]):  # version 0 is the same offset
        assert read_key(key) == OffsetKey("simple", FLIGHTS_0)


def test_a_group_is_written_as_kafka_writes_it_and_read() -> None:
    assert group_key("readers") == KAFKA_GROUP_KEY
    assert read_key(KAFKA_GROUP_KEY) == GroupKey("readers")
    assert group_headers(KAFKA_GROUP) == ()
    for group, value in ((KAFKA_GROUP, KAFKA_GROUP_VALUE), (EMPTY_GROUP, KAFKA_EMPTY_GROUP_VALUE)):
        assert group_value(group) == value
        assert read_group(a_record(value)) == group


def test_the_key_of_a_group_with_a_long_name_is_not_remembered() -> None:
    known = group_records._remembered_offset_key.cache_info().currsize
    key = offset_key("g" * 5000, FLIGHTS_0)

    assert read_key(key) == OffsetKey("g" * 5000, FLIGHTS_0)
    assert group_records._remembered_offset_key.cache_info().currsize == known


def test_an_explicit_expiry_is_written_down_and_without_one_it_is_left_to_the_broker() -> None:
    explicit = offset_value(KAFKA_OFFSET._replace(expire_timestamp_ms=77), RETENTION_MS)
    unnamed = value_of(OffsetCommitValue, 1, offset=42, expire_timestamp_ms=-1)

    assert read_offset(a_record(explicit)).expire_timestamp_ms == 77
    assert read_offset(a_record(unnamed)).expire_timestamp_ms is None


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, OffsetRecord(42, -1, "note", 1000, None)),
        (1, OffsetRecord(42, -1, "note", 1000, 2000)),
        (2, OffsetRecord(42, -1, "note", 1000, None)),
        (3, OffsetRecord(42, 5, "note", 1000, None)),
        (4, OffsetRecord(42, 5, "note", 1000, None)),
    ],
)
def test_offset_values_of_every_version_are_read(version: int, expected: OffsetRecord) -> None:
    value = value_of(
        OffsetCommitValue,
        version,
        offset=42,
        leader_epoch=5,
        metadata="note",
        commit_timestamp_ms=1000,
        expire_timestamp_ms=2000,
    )

    assert read_offset(a_record(value)) == expected


@pytest.mark.parametrize(
    ("version", "state_timestamp_ms", "instance_id", "rebalance_timeout_ms"),
    [
        (0, -1, None, 45_000),
        (1, -1, None, 300_000),
        (2, 9, None, 300_000),
        (3, 9, "gate", 300_000),
        (4, 9, "gate", 300_000),
    ],
)
def test_group_values_of_every_version_are_read(
    version: int, state_timestamp_ms: int, instance_id: str | None, rebalance_timeout_ms: int
) -> None:
    static = KAFKA_MEMBER._replace(group_instance_id="gate")
    group = KAFKA_GROUP._replace(current_state_timestamp_ms=9, members=(static,))
    value = value_of(GroupMetadataValue, version, **group._asdict())

    read = read_group(a_record(value))

    member = static._replace(group_instance_id=instance_id, rebalance_timeout_ms=rebalance_timeout_ms)
    assert read == group._replace(current_state_timestamp_ms=state_timestamp_ms, members=(member,))


def test_a_leader_epoch_is_kept_beside_a_value_that_kafka_2_0_reads() -> None:
    record = KAFKA_OFFSET._replace(leader_epoch=7, expire_timestamp_ms=2000)

    value, headers = offset_value(record, RETENTION_MS), offset_headers(record)

    assert value[:2] == b"\x00\x01"
    assert headers == (("leader.epoch", b"\x00\x00\x00\x07"),)
    assert read_offset(a_record(value, headers)) == record


def test_instance_ids_are_kept_beside_a_value_that_kafka_2_0_reads() -> None:
    static = KAFKA_MEMBER._replace(member_id="gate-1", group_instance_id="gate")
    group = KAFKA_GROUP._replace(members=(KAFKA_MEMBER, static))

    value, headers = group_value(group), group_headers(group)

    assert value[:2] == b"\x00\x01"
    assert headers == (("group.instance.ids", b"\x00\x00\x00\x01\x00\x06gate-1\x00\x04gate"),)
    assert read_group(a_record(value, headers)) == group


def test_headers_of_others_and_bytes_behind_the_known_fields_are_passed_over() -> None:
    headers = (("trace", None), ("trace", b"7"))

    assert read_key(KAFKA_GROUP_KEY + b"more") == GroupKey("readers")
    assert read_offset(a_record(KAFKA_OFFSET_VALUE + b"more", headers))[:2] == (42, -1)
    assert read_group(a_record(KAFKA_GROUP_VALUE + b"more", headers)) == KAFKA_GROUP


def unreadable_records() -> Iterator[tuple[Callable[[Record], object], Record]]:
    """Values that are cut short or of an unknown version, and headers that are damaged."""
    for read, value, header in (
        (read_offset, KAFKA_OFFSET_VALUE, "leader.epoch"),
        (read_group, KAFKA_GROUP_VALUE, "group.instance.ids"),
    ):
        for wrong in (b"", b"\x00", value[:-1], b"\x00\x05" + value[2:]):
            yield read, a_record(wrong)
        for content in (None, b"\x00"):
            yield read, a_record(value, ((header, content),))


@pytest.mark.parametrize(("read", "record"), list(unreadable_records()))
def test_a_damaged_record_is_unreadable(read: Callable[[Record], object], record: Record) -> None:
    with pytest.raises(UnreadableRecordError):
        read(record)


@pytest.mark.parametrize("key", [None, b"", b"\x00", KAFKA_OFFSET_KEY[:-1], KAFKA_GROUP_KEY[:-1]])
def test_a_key_that_is_none_is_unreadable(key: bytes | None) -> None:
    with pytest.raises(UnreadableRecordError):
        read_key(key)


@pytest.mark.parametrize("version", [-1, 3, 9])
def test_a_key_of_an_unknown_version_is_unreadable(version: int) -> None:
    with pytest.raises(UnreadableRecordError, match=f"version {version}"):
        read_key(version.to_bytes(2, "big", signed=True) + KAFKA_OFFSET_KEY[2:])
