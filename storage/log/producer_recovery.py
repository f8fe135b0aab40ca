"""Rebuilds the producer state of a log that was opened or truncated, batch by batch from the newest snapshot on.

As kafka 2.0.1 Log.rebuildProducerState. It takes snapshots at the start of the last two segments and at the end, so
that the next time is short. Batches that DeleteRecords has hidden are read too: they may have a producer's last epoch.
"""

from __future__ import annotations

from minibroker.protocol.batches import scan_batches
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.producers.producer_state import ProducerStateManager
from minibroker.storage.segment.log_segments import LogSegments


def rebuild_producer_state(
    producer_state: ProducerStateManager,
    segments: LogSegments,
    *,
    log_start_offset: int,
    end_offset: int,
    magic: int,
    is_after_clean_stop: bool,
    now_ms: int,
) -> None:
    """Bring the state to `end_offset`. Raises OSError.

    A log without any snapshot that was closed well, or is of an old format, never had a producer: Kafka writes
    snapshots since message format 2, and one at every clean stop.
    """
    snapshot_offsets = {*segments.bases[-2:], end_offset}
    if magic < 2 or (is_after_clean_stop and producer_state.latest_snapshot_offset is None):
        for offset in sorted(snapshot_offsets):
            producer_state.update_map_end_offset(offset)
            producer_state.take_snapshot()
        return
    first_offset = min([log_start_offset, *segments.bases[:1]])
    was_empty = producer_state.is_empty and producer_state.map_end_offset >= end_offset
    producer_state.truncate_and_reload(first_offset, end_offset, now_ms=now_ms)
    if not was_empty and end_offset > producer_state.map_end_offset:
        for segment in segments.between(producer_state.map_end_offset, end_offset):
            start_offset = max(segment.base_offset, producer_state.map_end_offset)
            producer_state.update_map_end_offset(start_offset)
            if segment.base_offset in snapshot_offsets:
                producer_state.take_snapshot()
            fetched = segment.read(start_offset, max_size=segment.size_bytes, max_offset=end_offset)
            if fetched is not None and isinstance(fetched.records, FileSlice):
                _replay(producer_state, fetched.records)
    producer_state.update_map_end_offset(end_offset)
    if first_offset < log_start_offset <= end_offset:
        producer_state.truncate_head(log_start_offset)
    producer_state.take_snapshot()


def _replay(producer_state: ProducerStateManager, records: FileSlice) -> None:
    start, end = records.position, records.position + records.size_bytes
    buffer, origin = records.file.scan_buffer(start, end)
    for batch in scan_batches(buffer, start - origin, end - origin):
        producer_state.replay(batch, buffer)
