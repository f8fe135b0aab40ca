"""Every message that is declared has the fields of Kafka's own schema, in every version: names, types, order, tags.

A field that has another name here than in the schema is in KAFKAS_NAMES, a tag we are content to skip in UNUSED_TAGS.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import minibroker.protocol
from minibroker.protocol.primitives import Sized, format_of
from minibroker.protocol.schema import Array, Field, Message, Row
from tests.protocol.kafka_schemas import WireField, kafka_schemas

SCHEMAS = kafka_schemas()

# Made with the same tool, but no schema of Kafka's 3.9 has them.
NOT_KAFKAS = {"InstanceIds", "LeaderEpoch"}

# What a field is called here, and what Kafka calls it.
KAFKAS_NAMES = {
    "broker_id": "id",
    "commit_timestamp_ms": "commit_timestamp",
    "current_state_timestamp_ms": "current_state_timestamp",
    "duration_filter_ms": "duration_filter",
    "enable_2pc": "enable2_pc",
    "error_code": "partition_error_code",
    "expire_timestamp_ms": "expire_timestamp",
    "forgotten_topics": "forgotten_topics_data",
    "generation_id": "generation generation_id_or_member_epoch",
    "group_id": "group",
    "group_names": "groups_names",
    "host": "host_name v0_host",
    "is_commit": "committed transaction_result",
    "last_update_ms": "transaction_last_update_timestamp_ms",
    "leader_epoch": "committed_leader_epoch",
    "max_bytes": "partition_max_bytes",
    "metadata": "committed_metadata",
    "name": "topic topic_id topic_name",
    "offset": "committed_offset",
    "operation": "config_operation",
    "partition": "index partition_id partition_index",
    "partitions": """
        partition_data partition_indexes partition_ids partition_responses partition_result results_by_partition
        ungrouped_partitions
    """,
    "partition_states": "ungrouped_partition_states",
    "port": "v0_port",
    "producer_epoch": "v3_and_below_producer_epoch",
    "producer_id": "v3_and_below_producer_id",
    "rebalance_timeout_ms": "rebalance_timeout",
    "session_timeout_ms": "session_timeout",
    "size_bytes": "partition_size",
    "start_ms": "transaction_start_timestamp_ms",
    "start_time_ms": "transaction_start_time_ms",
    "state": "transaction_state",
    "state_version": "partition_epoch zk_version",
    "status": "transaction_status",
    "timeout_ms": "transaction_timeout_ms",
    "topic": "name topic_id",
    "topics": """
        replica_election_results responses results results_by_topic_v3_and_below topic_data topic_results
        transaction_partitions v3_and_below_topics
    """,
    "transactional_id": "v3_and_below_transactional_id",
    "transactions": "results_by_transaction transaction_states",
}
OUR_NAMES = {(theirs, ours) for ours, names in KAFKAS_NAMES.items() for theirs in names.split()}

# Tagged fields that this broker neither reads nor sends.
UNUSED_TAGS: dict[str, set[str]] = {
    "ApiVersionsResponse": {"zk_migration_ready"},
    "FetchRequest": {
        "cluster_id", "topics.partitions.replica_directory_id", "topics.partitions.high_watermark",
    },
    "FetchResponse": {"responses.partitions.snapshot_id"},
}  # fmt: skip

# Nullable in every version here, in some only of Kafka's: whoever reads or writes them knows in which.
NULLABLE_FROM_THE_START = {"JoinGroupResponse.protocol_name", "OffsetFetchRequest.topics"}

TYPES = {
    "b": "int8", "h": "int16", "H": "uint16", "i": "int32", "l": "int32", "L": "uint32", "q": "int64", "d": "float64",
    "?": "bool", "16s": "uuid",
}  # fmt: skip


def declared_messages() -> Iterator[Message]:
    """Every message in protocol/, each once."""
    found = {}
    for module in pkgutil.walk_packages(minibroker.protocol.__path__, "minibroker.protocol."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, Message):
                found[value.name] = value
    yield from found.values()


MESSAGES = [message for message in declared_messages() if message.name not in NOT_KAFKAS]


def declared_fields(fields: Sequence[Field], version: int) -> tuple[WireField, ...]:
    """Return our declaration of a version, in the form of the schemas."""
    wire = (
        wire_field(field, version)
        for field in sorted(fields, key=lambda field: -1 if field.tag is None else field.tag)
        if field.is_in(version)
    )
    return tuple(wire)


def wire_field(field: Field, version: int) -> WireField:
    kind = field.kind_in(version)
    return WireField(
        field.name,
        type_of(kind),
        bool(getattr(kind, "is_nullable", False)),
        -1 if field.tag is None else field.tag,
        declared_fields(getattr(kind, "fields", ()), version),
    )


def type_of(kind: Any) -> str:
    if isinstance(kind, Array):
        return "[]" + ("row" if kind.element is None else type_of(kind.element))
    if isinstance(kind, Row):
        return "row"
    return kind.kind if isinstance(kind, Sized) else TYPES[str(format_of(kind))]


def on_the_wire(field: WireField, *, is_flexible: bool) -> WireField:
    """Without tags at its end, a row of one field is that field; and records are told from bytes by us alone."""
    if field.type == "[]row" and len(field.inside) == 1 and not is_flexible:
        field = field._replace(type=f"[]{field.inside[0].type}", inside=())
    return field._replace(type="bytes") if field.type == "records" else field


def differences(
    name: str, path: str, kafkas: Sequence[WireField], ours: Sequence[WireField], *, is_flexible: bool
) -> list[str]:
    """List the rows of ours that are not those of the schema."""
    unused = UNUSED_TAGS.get(name, set())
    kafkas = [field for field in kafkas if field.tag < 0 or f"{path}{field.name}" not in unused]
    names = [field.name for field in kafkas], [field.name for field in ours]
    if len(kafkas) != len(ours) or any(
        mine != theirs and (theirs, mine) not in OUR_NAMES for theirs, mine in zip(*names, strict=True)
    ):
        return [f"{path or name}: Kafka has {names[0]}, we {names[1]}"]
    found = []
    for theirs, mine in zip(kafkas, ours, strict=True):
        where = f"{path}{theirs.name}"
        left, right = (on_the_wire(field, is_flexible=is_flexible) for field in (theirs, mine))
        is_same = (left.type, left.tag, left.is_nullable) == (right.type, right.tag, right.is_nullable)
        if not is_same and f"{name}.{where}" not in NULLABLE_FROM_THE_START:
            found.append(f"{where}: Kafka has {left}, we {right}")
        found += differences(name, f"{where}.", left.inside, right.inside, is_flexible=is_flexible)
    return found


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.name)
def test_fields_are_those_of_the_schema_in_every_version(message: Message) -> None:
    found = []
    for version in range(message.first_version, message.last_version + 1):
        is_flexible = message.is_flexible(version)
        schema = next((each for each in SCHEMAS[message.name] if each.has_version(version)), None)
        assert schema is not None, f"there is no v{version}"
        assert schema.is_flexible(version) == is_flexible, f"v{version}"
        declared = declared_fields(message.fields, version)
        different = differences(message.name, "", schema.fields(version), declared, is_flexible=is_flexible)
        found += [f"v{version} {each}" for each in different]

    assert not found, "\n".join(found)
