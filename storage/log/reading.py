"""Reads the segments of a log: records from an offset on, and offsets by time. The log has checked the offsets."""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.protocol.message_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minibroker.storage.index.fetch_data import FetchDataInfo
from minibroker.storage.index.indexes import TimestampOffset
from minibroker.storage.index.transaction_index import AbortedTxn
from minibroker.storage.segment.log_segment import LogSegment
from minibroker.storage.segment.log_segments import LogSegments

LEAST_TIMESTAMP = -(2**63)


def read_segments(
    segments: LogSegments,
    start_offset: int,
    max_length: int,
    max_offset: int | None,
    min_one_message: bool,
    aborted_before: int | None,
) -> FetchDataInfo | None:
    """Return the records from the batch that holds the offset on; None if all of them were compacted away.

    With `aborted_before`, the log's end, the aborted transactions come along.
    """
    for slot in range(segments.floor_slot(start_offset), len(segments.segments)):
        fetched = segments.segments[slot].read(
            start_offset, max_size=max_length, max_offset=max_offset, min_one_message=min_one_message
        )
        if fetched is not None:
            if aborted_before is not None:
                fetched.note_aborted(aborted_in(segments, slot, start_offset, aborted_before, fetched))
            return fetched
    return None


def aborted_in(
    segments: LogSegments, slot: int, start_offset: int, end_offset: int, fetched: FetchDataInfo
) -> list[AbortedTxn]:
    """Return the aborted transactions that may have records in the fetch (as kafka 2.0.1)."""
    segment = segments.segments[slot]
    is_active = slot + 1 == len(segments.segments)
    if is_active and segment.transaction_index.size_bytes == 0:  # the usual answer to a tailing reader
        return []
    upper_bound = segment.fetch_upper_bound_offset(fetched.offset_metadata.relative_position, fetched.size_bytes)
    if upper_bound is None:
        upper_bound = end_offset if is_active else segments.bases[slot + 1]
    return segments.collect_aborted_txns(start_offset, upper_bound, slot)


def first_offset_at(
    segments: LogSegments, timestamp_ms: int, *, log_start_offset: int, end_offset: int
) -> TimestampOffset | None:
    """Return the first record at the timestamp or younger; None if all are older."""
    # Kafka 2.0.1 searches a segment below the log start offset too, and then no other one.
    for segment in segments.between(log_start_offset, end_offset):
        if segment.largest_timestamp_ms >= timestamp_ms:
            return segment.find_offset_by_timestamp(timestamp_ms, log_start_offset)
    return None


def offset_of_max_timestamp(segments: LogSegments, *, log_start_offset: int, end_offset: int) -> TimestampOffset | None:
    """Return the first of the youngest records that are left, or the first record if none has a time; None for none."""
    searched = segments.between(log_start_offset, end_offset + 1)
    found = _first_from(searched, max(segment.max_timestamp_so_far for segment in searched), log_start_offset)
    if found is None:  # the youngest lies below the log start offset
        left_ms = searched[0].max_timestamp_from(log_start_offset)
        largest_ms = max([left_ms, *(segment.max_timestamp_so_far for segment in searched[1:])])
        found = _first_from(searched, largest_ms, log_start_offset)
    return found


def _first_from(segments: Sequence[LogSegment], timestamp_ms: int, log_start_offset: int) -> TimestampOffset | None:
    """Return the first record of these segments at the timestamp or younger, of any time for a negative one."""
    sought_ms = timestamp_ms if timestamp_ms >= 0 else LEAST_TIMESTAMP
    for segment in segments:
        found = segment.find_offset_by_timestamp(sought_ms, log_start_offset)
        if found is not None:
            return found
    return None


def offsets_before(
    segments: LogSegments,
    timestamp_ms: int,
    max_offsets: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    now_ms: int,
) -> list[int]:
    """Return the base offsets of segments last written at or before the time, newest first (ListOffsets v0)."""
    known = [(max(each.base_offset, log_start_offset), each.last_modified_ms) for each in segments.segments]
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
