"""The records of groups of the consumer protocol, against those that Apache Kafka 4.4.0 wrote.

`kafka-4.4.0-consumer-groups.txt` has, in their order, the keys and values of a group "recs" with members that subscribe
by name and by expression, a static one that comes back, and one of the classic protocol; and of a deleted group.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.member import owned_of
from minibroker.protocol.consumer_group_records import (
    KEYS,
    VALUES,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRecord,
    RecordType,
    key_of,
    read_record,
    value_of,
)
from minibroker.protocol.group_records import UnreadableRecordError
from minibroker.protocol.record import Record

LINES = (Path(__file__).parent.parent / "golden" / "kafka-4.4.0-consumer-groups.txt").read_text().splitlines()


def record_of(key: bytes, value: bytes | None) -> Record:
    return Record(0, 0, key, value, ())


def kafkas_records() -> list[tuple[bytes, bytes | None]]:
    pairs = (line.split() for line in LINES)
    return [(bytes.fromhex(key), None if value == "-" else bytes.fromhex(value)) for key, value in pairs]


def test_records_are_those_that_kafka_writes_byte_for_byte() -> None:
    seen = set()
    for key, value in kafkas_records():
        found = read_record(record_of(key, value))
        if found is not None:
            assert (key_of(found), value_of(found)) == (key, value)
            seen.add((found.type, value is None))

    assert seen == {(each, is_tombstone) for each in VALUES for is_tombstone in (True, False)} | {
        (RecordType.OLD_METADATA, True)
    }


def made_again(group: ConsumerGroup, record: ConsumerGroupRecord) -> ConsumerGroupRecord:
    """The record that the group makes of what it has taken from this one."""
    name = record.name
    match record.type:
        case RecordType.GROUP:
            return group.epoch_record(group.epoch, group.metadata_hash)
        case RecordType.TARGET:
            return group.target_record(group.assignment_epoch, group.assignment_timestamp_ms)
        case RecordType.MEMBER:
            return group.members[name].record(group.group_id)
        case RecordType.ASSIGNMENT:
            return group.members[name].assignment_record(group.group_id)
        case RecordType.TARGET_OF_MEMBER:
            return group.target_of_member_record(name, group.target_of(name))
        case _:
            return group.regex_record(name, group.resolved[name])


def test_a_group_writes_the_records_that_it_was_read_from() -> None:
    group = ConsumerGroup("recs")
    for key, value in kafkas_records():
        record = read_record(record_of(key, value))
        if record is None or record.group_id != "recs" or record.value is None:
            continue
        group.apply(record)
        made = made_again(group, record)
        assert (key_of(made), value_of(made)) == (key, value)


def test_other_records_are_left_to_others_and_damaged_ones_are_refused() -> None:
    assert read_record(record_of(b"\0\1\0\1g\0\1t\0\0\0\0", b"")) is None
    assert read_record(record_of(b"", b"")) is None
    for key, value in ((b"\0\3\0\1g", b"\0"), (b"\0\3\0\1g", b"\0\0\0"), (b"\0\3\0", None)):
        with pytest.raises(UnreadableRecordError):
            read_record(record_of(key, value))


def test_metadata_of_a_kafka_before_4_1_is_read_to_be_deleted() -> None:
    found = read_record(record_of(b"\0\4\0\1g", b"\0\0\1\0"))

    assert found == ConsumerGroupRecord(RecordType.OLD_METADATA, "g", value=True)


def test_partitions_of_a_kafka_before_4_4_have_the_epoch_of_their_member() -> None:
    assert owned_of([(b"t", [0, 1], None), (b"u", [2], [5])], 7) == {b"t": {0: 7, 1: 7}, b"u": {2: 5}}
    assert owned_of([(b"t", [0, 1], [3])], -2) == {b"t": {0: 0, 1: 0}}


def test_a_member_of_the_classic_protocol_is_told_from_one_without_protocols() -> None:
    """Kafka writes null for a member of the consumer protocol; the absent field is a classic one without protocols."""
    values = [ConsumerGroupMemberMetadataValue(classic_member_metadata=each) for each in (None, (0, ()))]
    records = [ConsumerGroupRecord(RecordType.MEMBER, "g", "m", value) for value in values]

    assert [(value_of(each) or b"").hex()[-10:] for each in records] == ["0001000100", "ffffff0000"]
    assert KEYS.keys() - VALUES.keys() == {RecordType.OLD_METADATA}
