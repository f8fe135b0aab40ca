"""Subscriptions and assignments, which the consumers of a classic group write for one another.

version: int16 | the fields of that version; a reader takes those that it knows
"""

from __future__ import annotations

import struct
from typing import Any

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import Int32sb, NullableBytes, NullableString, PartitionIndex, TopicName
from minibroker.protocol.schema import Message, array, array_of, since, versions

ConsumerProtocolSubscription = versions("ConsumerProtocolSubscription", 0, 3,
    "topics" / array_of(TopicName),
    "user_data" / NullableBytes,
    "owned_partitions" / array(
        "topic" / TopicName,
        "partitions" / array_of(PartitionIndex)) @ since(1),
    "generation_id" / Int32sb @ since(2, default=-1),
    "rack_id" / NullableString @ since(3),
)  # fmt: skip
ConsumerProtocolAssignment = versions("ConsumerProtocolAssignment", 0, 3,
    "assigned_partitions" / array(
        "topic" / TopicName,
        "partitions" / array_of(PartitionIndex)),
    "user_data" / NullableBytes,
)  # fmt: skip

_version = struct.Struct(">h")


def version_of(data: bytes) -> int:
    """The version, at most the last that is known here. Raises KafkaProtocolError."""
    if len(data) < _version.size:
        raise KafkaProtocolError(f"{len(data)} bytes, where a consumer's own protocol has a version")
    version = int(_version.unpack_from(data)[0])
    if version < 0:
        raise KafkaProtocolError(f"version {version} of a consumer's own protocol")
    return min(version, ConsumerProtocolSubscription.last_version)


def read_subscription(data: bytes) -> Any:
    """Decode a member's metadata. Raises KafkaProtocolError."""
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: bytes) -> Any:
    """Decode a member's assignment. Raises KafkaProtocolError."""
    return _read(ConsumerProtocolAssignment, data)


def _read(message: Message, data: bytes) -> Any:
    return message.decode(version_of(data), data, _version.size)[0]


def write_assignment(version: int, partitions: list[tuple[str, list[int]]]) -> bytes:
    """Encode an assignment as consumers of this version do."""
    value = ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=None)
    return b"".join((_version.pack(version), *ConsumerProtocolAssignment.encode(version, value)))
