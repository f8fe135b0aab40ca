"""What a record must be before it may be appended, where somebody must look at each one.

That is where a topic is compacted and wants keys, bounds the timestamps, or has batches packed anew. All records of
a batch that are wrong are told at once (KIP-467), so a producer can drop them and send the others again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from minibroker.protocol.batches import BatchView, iter_all_records
from minibroker.protocol.errors import ErrorCode, InvalidRecordsError, KafkaError
from minibroker.protocol.record import NO_TIMESTAMP, Record
from minibroker.storage.config import LogConfig

# No produce request may unpack to more than the largest one (socket.request.max.bytes) could carry unpacked.
MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
# Of a batch whose records are refused, so many at most are told: an answer should not be longer than the request.
MAX_RECORD_ERRORS = 100


def checked_records(
    records: bytearray | memoryview, batch: BatchView, config: LogConfig, now_ms: int
) -> Iterator[Record]:
    """Iterate over a batch's records. Raises InvalidRecordsError at the first that is wrong, with all that are.

    Raises KafkaError too, as `iter_all_records` does for a batch that cannot be read.
    """
    numbered = enumerate(iter_all_records(records, batch, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
    for index, record in numbered:
        problem = _problem_with(record, config, now_ms)
        if problem is not None:
            code, reason = problem
            refused = [(index, reason), *_refused_records(numbered, config, now_ms)]
            raise InvalidRecordsError(code, reason, refused)
        yield record


def _refused_records(
    numbered: Iterable[tuple[int, Record]], config: LogConfig, now_ms: int
) -> Iterator[tuple[int, str]]:
    """What else is wrong in the batch, as far as it can be read, and no more than a client may care for."""
    count = 1
    try:
        for index, record in numbered:
            problem = _problem_with(record, config, now_ms)
            if problem is not None and count < MAX_RECORD_ERRORS:
                count += 1
                yield index, problem[1]
    except KafkaError:
        return


def _problem_with(record: Record, config: LogConfig, now_ms: int) -> tuple[ErrorCode, str] | None:
    """As kafka 2.0.1 LogValidator.validateRecord."""
    if config.is_compacted and record.key is None:
        return ErrorCode.CORRUPT_MESSAGE, "Compacted topic cannot accept message without key."
    bound_ms = config.message_timestamp_difference_max_ms
    if config.is_log_append_time or record.timestamp_ms == NO_TIMESTAMP:
        return None
    if abs(record.timestamp_ms - now_ms) > bound_ms:
        return (
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {record.timestamp_ms} of message with offset {record.offset} is out of range. "
            f"The timestamp should be within [{now_ms - bound_ms}, {now_ms + bound_ms}]",
        )
    return None
