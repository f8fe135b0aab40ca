"""A batch or a record as a row of facts: a dict with Kafka's names in snake_case, and its values, for JSON.

`minibroker dump-log` prints rows from a file, `minibroker transcript` from a frame.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from minibroker.protocol.compression import CODEC_MASK, Codec
from minibroker.protocol.control_records import ControlType, read_control_type, read_end_txn_marker
from minibroker.protocol.message_set import read_message_header
from minibroker.protocol.record_batch import read_header
from minibroker.protocol.text import header_name_shown, shown

if TYPE_CHECKING:
    from minibroker.protocol.batches import BatchView
    from minibroker.protocol.record import Record

Row = dict[str, Any]


def crc_of(buffer: mmap.mmap | bytes | memoryview, view: BatchView) -> int:
    if view.magic >= 2:
        return read_header(buffer, view.position).crc
    return read_message_header(buffer, view.position).crc


def batch_row(view: BatchView, crc: int) -> Row:
    row: Row = {"base_offset": view.base_offset, "last_offset": view.last_offset}
    if view.magic >= 2:
        row["count"] = view.records_count
    row |= {
        "position": view.position,
        "size": view.size_bytes,
        "magic": view.magic,
        "codec": codec_name(view.attributes),
        "crc": crc,
    }
    if view.magic >= 1:
        row |= {"timestamp_type": view.timestamp_type.name, "max_timestamp": view.max_timestamp_ms}
    if view.magic >= 2:
        row |= {
            "partition_leader_epoch": view.partition_leader_epoch,
            "producer_id": view.producer_id,
            "producer_epoch": view.producer_epoch,
            "base_sequence": view.base_sequence,
            "last_sequence": view.last_sequence,
            "is_transactional": view.is_transactional,
            "is_control": view.is_control,
        }
    return row


def codec_name(attributes: int) -> str:
    number = attributes & CODEC_MASK
    return Codec(number).name if number in tuple(Codec) else f"unknown ({number})"


def record_row(record: Record, *, is_control: bool) -> Row:
    row: Row = {"offset": record.offset, "timestamp": record.timestamp_ms}
    if is_control:
        control_type = read_control_type(record.key)
        row["end_txn_marker"] = control_type.name
        if control_type is not ControlType.UNKNOWN:
            row["coordinator_epoch"] = read_end_txn_marker(record).coordinator_epoch
        return row
    return row | {
        "sequence": record.sequence,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[header_name_shown(name), shown(value)] for name, value in record.headers],
    }
