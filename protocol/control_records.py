"""Control batches: the markers that end a transaction in each of its partitions.

    key: version: int16 | type: int16 (0 abort, 1 commit)
    value: version: int16 | coordinator epoch: int32

A marker has an offset of its own. Clients never pass it to an application, and only a coordinator writes it.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from minibroker.protocol.compression import corrupt
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import NO_LEADER_EPOCH, build_batch

_key = struct.Struct(">hh")
_value = struct.Struct(">hi")


class ControlType(IntEnum):
    """The type of a control record; types of later versions are UNKNOWN, and ignored."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1


class EndTxnMarker(NamedTuple):
    control_type: ControlType
    coordinator_epoch: int


def build_end_txn_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """Return the control batch that commits or aborts the producer's transaction in one partition."""
    if control_type is ControlType.UNKNOWN:
        raise ValueError("a marker must be COMMIT or ABORT")
    marker = Record(base_offset, timestamp_ms, _key.pack(0, control_type), _value.pack(0, coordinator_epoch))
    return build_batch(
        [marker],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_control_type(key: bytes | None) -> ControlType:
    """Return the type of a control record with this key. Raises KafkaError(CORRUPT_MESSAGE) if it has none."""
    if key is None or len(key) < _key.size:
        raise corrupt(f"the key of a control record cannot have {len(key or b'')} bytes")
    version, number = _key.unpack_from(key)
    if version < 0:
        raise corrupt(f"a control record cannot have version {version}")
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else ControlType.UNKNOWN


def read_end_txn_marker(record: Record) -> EndTxnMarker:
    """Return the marker in this record. Raises KafkaError(CORRUPT_MESSAGE) if it is invalid."""
    control_type = read_control_type(record.key)
    if control_type is ControlType.UNKNOWN:
        raise corrupt("the control record does not end a transaction")
    if record.value is None or len(record.value) < _value.size:
        raise corrupt(f"a transaction marker cannot have {len(record.value or b'')} bytes")
    version, coordinator_epoch = _value.unpack_from(record.value)
    if version < 0:
        raise corrupt(f"a transaction marker cannot have version {version}")
    return EndTxnMarker(control_type, coordinator_epoch)
