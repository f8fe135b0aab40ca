"""The records of `__consumer_offsets`: the committed offsets of groups, and their members.

    key: version: int16 | v0, v1: group, topic, partition (an offset) | v2: group (the group itself)
    value: version: int16 | the fields of that version; null deletes the earlier value of the key

Values are written in version 1, as by Apache Kafka 2.0.1, which does not load a partition with a newer one. Version 1
has no field for the leader epoch of an offset and the `group.instance.id` of static members: these go into headers of
the record, which every Kafka ignores. Values are read up to the versions of Kafka 4.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import Bytes, Int32sb, Int64sb, NullableString, String, TopicPartition
from minibroker.protocol.record import NO_TIMESTAMP, Headers, Record
from minibroker.protocol.record_batch import NO_LEADER_EPOCH
from minibroker.protocol.schema import Message, array, since, versions

GROUP_METADATA_TOPIC = "__consumer_offsets"

NO_TIMEOUT = -1

OFFSET_KEY_VERSION = 1  # the newest; v0 is the same
GROUP_KEY_VERSION = 2
VALUE_VERSION = 1

KEYS_REMEMBERED = 4096  # of offsets: a group commits the same partitions again and again
LONG_NAME = 255  # characters; remembering longer names would let clients fill our memory

LEADER_EPOCH_HEADER = "leader.epoch"
INSTANCE_IDS_HEADER = "group.instance.ids"

OffsetCommitKey = versions(
    "OffsetCommitKey", 0, 1,
    "group_id" / String,
    "topic" / String,
    "partition" / Int32sb,
)  # fmt: skip

GroupMetadataKey = versions("GroupMetadataKey", 2, 2, "group_id" / String)

OffsetCommitValue = versions(
    "OffsetCommitValue", 0, 4,
    "offset" / Int64sb,
    "leader_epoch" / Int32sb @ since(3, default=NO_LEADER_EPOCH),
    "metadata" / String,
    "commit_timestamp_ms" / Int64sb,
    "expire_timestamp_ms" / Int64sb @ since(1, until=1, default=NO_TIMESTAMP),
    flexible=4,
)  # fmt: skip

GroupMetadataValue = versions(
    "GroupMetadataValue", 0, 4,
    "protocol_type" / String,
    "generation_id" / Int32sb,
    "protocol" / NullableString,
    "leader" / NullableString,
    "current_state_timestamp_ms" / Int64sb @ since(2, default=NO_TIMESTAMP),
    "members" / array(
        "member_id" / String,
        "group_instance_id" / NullableString @ since(3),
        "client_id" / String,
        "client_host" / String,
        "rebalance_timeout_ms" / Int32sb @ since(1, default=NO_TIMEOUT),
        "session_timeout_ms" / Int32sb,
        "subscription" / Bytes,
        "assignment" / Bytes,
    ),
    flexible=4,
)  # fmt: skip

# What the headers hold.
LeaderEpoch = versions("LeaderEpoch", 0, 0, "leader_epoch" / Int32sb)
InstanceIds = versions("InstanceIds", 0, 0, "members" / array("member_id" / String, "group_instance_id" / String))

_version = struct.Struct(">h")


class UnreadableRecordError(ValueError):
    """A record that is damaged, or of an unknown version."""


class OffsetKey(NamedTuple):
    """The group and the partition of an offset."""

    group_id: str
    topic_partition: TopicPartition


class GroupKey(NamedTuple):
    group_id: str


class OffsetRecord(NamedTuple):
    """A committed offset. `expire_timestamp_ms` is None where the broker's retention decides."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None


class MemberRecord(NamedTuple):
    """A member of a stable generation; only clients understand its subscription and assignment."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupRecord(NamedTuple):
    """A group in its latest generation; an empty one has no members, and None for `protocol` and `leader`."""

    protocol_type: str
    generation_id: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int  # not kept by version 1: NO_TIMESTAMP when it is read again
    members: tuple[MemberRecord, ...]


# -- writing: struct.error for a name of more than 32767 bytes ------------------------------------------------


def offset_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    """The key of an offset's record."""
    make = _remembered_offset_key if len(group_id) <= LONG_NAME else _offset_key
    return make(group_id, topic_partition)


def _offset_key(group_id: str, topic_partition: TopicPartition) -> bytes:
    return _encode(OffsetCommitKey, OFFSET_KEY_VERSION, (group_id, *topic_partition))


_remembered_offset_key = lru_cache(maxsize=KEYS_REMEMBERED)(_offset_key)


def group_key(group_id: str) -> bytes:
    """The key of the group's own record."""
    return _encode(GroupMetadataKey, GROUP_KEY_VERSION, (group_id,))


def offset_value(record: OffsetRecord, retention_ms: int) -> bytes:
    """Version 1, with the time of expiry: `retention_ms` after the commit unless the commit set another."""
    expire_timestamp_ms = record.expire_timestamp_ms
    if expire_timestamp_ms is None:
        expire_timestamp_ms = record.commit_timestamp_ms + retention_ms
    return _encode(OffsetCommitValue, VALUE_VERSION, (*record[:4], expire_timestamp_ms))


def offset_headers(record: OffsetRecord) -> Headers:
    """The fields of an offset that its value has no place for."""
    if record.leader_epoch == NO_LEADER_EPOCH:
        return ()
    return ((LEADER_EPOCH_HEADER, b"".join(LeaderEpoch.encode(0, (record.leader_epoch,)))),)


def group_value(record: GroupRecord) -> bytes:
    """Version 1."""
    return _encode(GroupMetadataValue, VALUE_VERSION, record)


def group_headers(record: GroupRecord) -> Headers:
    """The fields of a group that its value has no place for."""
    static = [(each.member_id, each.group_instance_id) for each in record.members if each.group_instance_id is not None]
    return ((INSTANCE_IDS_HEADER, b"".join(InstanceIds.encode(0, (static,)))),) if static else ()


def _encode(message: Message, version: int, value: tuple[Any, ...]) -> bytes:
    return b"".join((_version.pack(version), *message.encode(version, value)))


# -- reading: bytes after the known fields are ignored, as Kafka does ---------------------------------------


def read_key(key: bytes | None) -> OffsetKey | GroupKey:
    """The key of a record. Raises UnreadableRecordError."""
    version = _version_of("key", key)
    if version == GROUP_KEY_VERSION:
        (group_id,) = _decode(GroupMetadataKey, version, key)
        return GroupKey(group_id)
    group_id, topic, partition = _decode(OffsetCommitKey, version, key)
    return OffsetKey(group_id, TopicPartition(topic, partition))


def read_offset(record: Record) -> OffsetRecord:
    """The offset in a record with a value. Raises UnreadableRecordError."""
    value = _decode(OffsetCommitValue, _version_of("value", record.value), record.value)
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = value
    for name, content in record.headers:
        if name == LEADER_EPOCH_HEADER:
            (leader_epoch,) = _decode_header(LeaderEpoch, content)
    expires = None if expire_timestamp_ms == NO_TIMESTAMP else expire_timestamp_ms
    return OffsetRecord(offset, leader_epoch, metadata, commit_timestamp_ms, expires)


def read_group(record: Record) -> GroupRecord:
    """The group in a record with a value. Raises UnreadableRecordError."""
    group = _decode(GroupMetadataValue, _version_of("value", record.value), record.value)
    instance_ids: dict[str, str] = {}
    for name, content in record.headers:
        if name == INSTANCE_IDS_HEADER:
            instance_ids.update(_decode_header(InstanceIds, content)[0])
    members = tuple(_member(MemberRecord._make(member), instance_ids) for member in group.members)
    return GroupRecord._make((*group[:-1], members))


def _member(member: MemberRecord, instance_ids: dict[str, str]) -> MemberRecord:
    if member.rebalance_timeout_ms == NO_TIMEOUT:  # version 0: members had one timeout for both
        member = member._replace(rebalance_timeout_ms=member.session_timeout_ms)
    instance_id = instance_ids.get(member.member_id)
    return member if instance_id is None else member._replace(group_instance_id=instance_id)


def _version_of(what: str, data: bytes | None) -> int:
    if data is None or len(data) < _version.size:
        raise UnreadableRecordError(f"a {what} of {0 if data is None else len(data)} bytes")
    (version,) = _version.unpack_from(data)
    return int(version)


def _decode(message: Message, version: int, data: bytes | None) -> Any:
    if not message.first_version <= version <= message.last_version:
        raise UnreadableRecordError(f"unknown version {version} of {message.name}")
    try:
        return message.decode(version, data, _version.size)[0]
    except KafkaProtocolError as error:
        raise UnreadableRecordError(str(error)) from None


def _decode_header(message: Message, content: bytes | None) -> Any:
    try:
        return message.decode(0, content or b"")[0]
    except KafkaProtocolError as error:
        raise UnreadableRecordError(str(error)) from None
