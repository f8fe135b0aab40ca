"""Converts between message formats: down for an older client that reads, up for one that writes.

Up: a leader decodes and checks each record, assigns its offset, and rebuilds all of them by `build_records`. Down
(`down_convert`): offsets and batches stay, and everything that the older format does not have is dropped: headers,
producers, control batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minibroker.protocol.batches import BatchView, iter_all_records, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import NO_SEQUENCE
from minibroker.protocol.record_batch import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TimestampType,
    build_batch,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _typeshed import ReadableBuffer

    from minibroker.protocol.record import Record


def build_records(
    records: Iterable[Record],
    *,
    magic: int,
    base_offset: int,
    codec: Codec = Codec.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time_ms: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """Return these records in the format `magic`, with the offsets they have: one batch, or messages.

    Raises ValueError without records, or for a producer or a transaction in a format without them.
    """
    if magic == 2:
        return build_batch(
            records,
            base_offset=base_offset,
            codec=codec,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            timestamp_type=timestamp_type,
            is_transactional=is_transactional,
            is_control=is_control,
            log_append_time_ms=log_append_time_ms,
        )
    if producer_id != NO_PRODUCER_ID or is_transactional or is_control:
        raise ValueError(f"magic {magic} has no producers, transactions or control records")
    return build_message_set(
        records,
        magic=magic,
        codec=codec,
        timestamp_type=timestamp_type,
        log_append_time_ms=log_append_time_ms,
    )


def down_convert(
    buffer: ReadableBuffer,
    start: int,
    end: int,
    *,
    to_magic: int,
    first_offset: int,
    max_decompressed_bytes: int,
) -> bytearray:
    """Return the whole batches in `buffer[start:end]`, those of a magic above `to_magic` converted.

    Older batches stay as they are; control batches are dropped below magic 2. Of uncompressed batches, records before
    `first_offset` are dropped too: in old formats each is its own message, and some clients expect only those they
    requested.

    Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE over `max_decompressed_bytes` in one batch, or
    UNSUPPORTED_COMPRESSION_TYPE for zstd, which the older formats never had.
    """
    converted = bytearray()
    for view in scan_batches(buffer, start, end):
        if view.is_control and to_magic < 2:
            continue
        if view.magic <= to_magic:
            with memoryview(buffer) as whole, whole[view.position : view.end_position] as batch:
                converted += batch
        else:
            converted += _down_convert_batch(buffer, view, to_magic, first_offset, max_decompressed_bytes)
    return converted


def _down_convert_batch(
    buffer: ReadableBuffer, view: BatchView, to_magic: int, first_offset: int, max_decompressed_bytes: int
) -> bytes | bytearray:
    codec = view.codec
    if codec is Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            "Down-conversion of zstandard-compressed batches is not supported",
        )
    records = [
        record
        for record in iter_all_records(buffer, view, max_decompressed_bytes=max_decompressed_bytes)
        if codec is not Codec.NONE or record.offset >= first_offset
    ]
    if not records:
        return b""
    return build_message_set(
        records,
        magic=to_magic,
        codec=codec,
        timestamp_type=view.timestamp_type,
        log_append_time_ms=view.max_timestamp_ms,
    )
