"""Offsets by time: the first record not older than a timestamp, and the answer of old, by the files' times."""

from __future__ import annotations

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.config import LogConfig
from minibroker.storage.index.indexes import TimestampOffset
from minibroker.storage.segment.log_segments import LogSegments

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
NO_TIMESTAMP = -1


def offset_by_timestamp(
    segments: LogSegments, config: LogConfig, timestamp_ms: int, *, log_start_offset: int, log_end_offset: int
) -> TimestampOffset | None:
    """Return the first record at the timestamp or younger; None if all are older.

    Raises KafkaError(UNSUPPORTED_FOR_MESSAGE_FORMAT): records of format 0 have no timestamps.
    """
    if timestamp_ms == EARLIEST_TIMESTAMP:
        return TimestampOffset(NO_TIMESTAMP, log_start_offset)
    if timestamp_ms == LATEST_TIMESTAMP:
        return TimestampOffset(NO_TIMESTAMP, log_end_offset)
    check_has_timestamps(config)
    # Kafka 2.0.1 looks into a segment below the log start offset too, and then no further.
    for segment in segments.between(log_start_offset, log_end_offset):
        if segment.largest_timestamp_ms >= timestamp_ms:
            return segment.find_offset_by_timestamp(timestamp_ms, log_start_offset)
    return None


def offset_of_max_timestamp(
    segments: LogSegments, config: LogConfig, log_start_offset: int, log_end_offset: int
) -> TimestampOffset | None:
    """Return the first of the youngest records; None if there are none. Raises as `offset_by_timestamp`."""
    check_has_timestamps(config)
    largest_ms = max(segment.max_timestamp_so_far for segment in segments.segments)
    if largest_ms < 0:
        return None
    return offset_by_timestamp(
        segments, config, largest_ms, log_start_offset=log_start_offset, log_end_offset=log_end_offset
    )


def check_has_timestamps(config: LogConfig) -> None:
    """Raises KafkaError(UNSUPPORTED_FOR_MESSAGE_FORMAT)."""
    if config.magic == 0:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Cannot search offsets based on timestamp because message format version is "
            f"{config.message_format_version} which is earlier than the minimum required version 0.10.0-IV0",
        )


def segment_offsets_before(
    segments: LogSegments,
    timestamp_ms: int,
    max_offsets: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
) -> list[int]:
    """Return where segments begin that were last written at or before the time, newest first (ListOffsets v0)."""
    known = [(max(segment.base_offset, log_start_offset), segment.last_modified_ms) for segment in segments.segments]
    if segments.active.size_bytes > 0:
        known.append((log_end_offset, now_ms))
    if timestamp_ms == LATEST_TIMESTAMP:
        end = len(known)
    elif timestamp_ms == EARLIEST_TIMESTAMP:
        end = 1
    else:
        end = max((slot + 1 for slot, (_, time_ms) in enumerate(known) if time_ms <= timestamp_ms), default=0)
    newest_first = [offset for offset, _ in known[:end][::-1]]
    return sorted(newest_first[:max_offsets], reverse=True)
