"""Validates batches before they are appended, and assigns their offsets.

`analyze_records` checks headers and checksums, in Kafka's order; `assign_offsets` stamps the batches in place, or
builds new ones if the log has another format, codec or timestamp. Records are decoded only if they must be: for the
keys of a compacted topic, a bound on timestamps, conversion. Otherwise the header is trusted once its count, offsets
and size agree (docs/differences.md). `assign_plain_batch` does all this for the usual batch at once. Nothing here
touches a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from minibroker.protocol.batches import (
    BatchView,
    batch_is_valid,
    iter_all_records,
    scan_batches,
)
from minibroker.protocol.checksums import crc32c
from minibroker.protocol.compression import CODEC_MASK, Codec
from minibroker.protocol.conversion import build_records
from minibroker.protocol.errors import ErrorCode, InvalidRecordsError, KafkaError, invalid
from minibroker.protocol.message_set import MESSAGE_OVERHEAD_V0, DamagedStreamError, stamp_message
from minibroker.protocol.record import INT32_MAX, INT64_MAX, NO_OFFSET, NO_TIMESTAMP, SMALLEST_RECORD_BYTES, Record
from minibroker.protocol.record_batch import (
    CRC_COVERS_FROM,
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    RECORD_BATCH_OVERHEAD,
    SMALLEST_BATCH_LENGTH,
    TRANSACTIONAL_FLAG,
    TimestampType,
    pack_place,
    size_at,
    stamp,
    unpack_header,
)
from minibroker.storage.config import LogConfig

# No produce request may unpack to more than the largest one (socket.request.max.bytes) could carry unpacked.
MAX_DECOMPRESSED_BYTES = 100 * 1024 * 1024
# At most so many records of a refused batch are named: the answer should not be longer than the request.
MAX_RECORD_ERRORS = 100

# Attributes of batches that a topic stores as sent: one that keeps codecs, and one without compression.
PLAIN_ATTRIBUTES = frozenset(codec | flag for codec in Codec for flag in (0, TRANSACTIONAL_FLAG))
UNCOMPRESSED_ATTRIBUTES = frozenset((0, TRANSACTIONAL_FLAG))

UNBOUNDED_MS = INT64_MAX

_TARGET_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

Buffer = bytearray | memoryview


class AssignedRecords(NamedTuple):
    """Batches ready to be written, with the offsets they have in the log."""

    buffer: Buffer
    batches: list[BatchView]
    first_offset: int  # -1 if unknown: a follower's append in an old format
    last_offset: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    log_append_time_ms: int = NO_TIMESTAMP
    converted_records: int = 0  # between message formats

    @property
    def lowest_offset(self) -> int:
        """A lower bound of the records' offsets (as kafka 2.0.1 Log.maybeRoll)."""
        return self.first_offset if self.first_offset >= 0 else max(0, self.last_offset - INT32_MAX)


class RecordsAnalysis(NamedTuple):
    """The headers of a set of batches, summed up; -1 for what they do not have."""

    batches: list[BatchView]
    first_offset: int  # -1 if the first batch is older than magic 2, whose header does not have it
    last_offset: int
    last_offset_of_first_batch: int
    max_timestamp_ms: int
    offset_of_max_timestamp: int
    valid_bytes: int  # an incomplete batch at the end does not count
    source_codec: Codec
    are_offsets_rising: bool

    @property
    def first_known_offset(self) -> int:
        """The first offset, or the last one of the first batch if the header has only that."""
        return self.first_offset if self.first_offset >= 0 else self.last_offset_of_first_batch

    def as_they_are(self, records: Buffer) -> AssignedRecords:
        """Return the batches with the offsets that a leader has assigned."""
        return AssignedRecords(
            memoryview(records)[: self.valid_bytes],
            self.batches,
            self.first_offset,
            self.last_offset,
            self.max_timestamp_ms,
            self.offset_of_max_timestamp,
        )


def assign_plain_batch(
    records: Buffer, plain_attributes: frozenset[int], first_offset: int, leader_epoch: int
) -> AssignedRecords | None:
    """Assign the offsets of one valid batch of magic 2 that can be stored as sent; None for anything else.

    `plain_attributes` are those that the topic stores. Any other batch, valid or not, goes through `analyze_records`
    and `assign_offsets`.
    """
    base_offset, length, _, magic, crc, attributes, delta, _, max_timestamp_ms, producer_id, epoch, sequence, count = (
        unpack_header(records)
    )
    body_bytes = length - SMALLEST_BATCH_LENGTH
    if not (
        magic == 2
        and length == len(records) - LOG_OVERHEAD
        and base_offset == 0
        and attributes in plain_attributes
        and count == delta + 1
        and count > 0
        and (count * SMALLEST_RECORD_BYTES <= body_bytes or attributes & CODEC_MASK != 0)
        and (producer_id == NO_PRODUCER_ID or sequence >= 0)
        and crc32c(memoryview(records)[CRC_COVERS_FROM:], 0) == crc
    ):
        return None
    pack_place(records, 0, first_offset, length, leader_epoch)
    last_offset = first_offset + delta
    batch = BatchView(
        0,
        length + LOG_OVERHEAD,
        magic,
        first_offset,
        last_offset,
        max_timestamp_ms,
        leader_epoch,
        attributes,
        producer_id,
        epoch,
        sequence,
        count,
    )
    return AssignedRecords(records, [batch], first_offset, last_offset, max_timestamp_ms, last_offset, NO_TIMESTAMP, 0)


def analyze_records(records: Buffer, *, max_message_bytes: int, is_from_client: bool) -> RecordsAnalysis:
    """Check sizes and checksums of all batches (as kafka 2.0.1 Log.analyzeAndValidateRecords).

    Raises KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
    """
    batches: list[BatchView] = []
    last_offset, max_timestamp_ms, offset_of_max_timestamp = NO_OFFSET, NO_TIMESTAMP, NO_OFFSET
    source_codec, are_offsets_rising = Codec.NONE, True
    for batch in scan_batches(records, 0, len(records)):
        if batch.magic >= 2 and is_from_client and batch.base_offset != 0:
            raise invalid(f"The baseOffset of the record batch should be 0, but it is {batch.base_offset}")
        are_offsets_rising = are_offsets_rising and batch.last_offset > last_offset
        last_offset = batch.last_offset
        if batch.size_bytes > max_message_bytes:
            raise too_large(batch.size_bytes, max_message_bytes)
        if not batch_is_valid(records, batch):
            raise _corrupt("Record batch is corrupt (its checksum is not that of its bytes)")
        if batch.max_timestamp_ms > max_timestamp_ms:
            max_timestamp_ms, offset_of_max_timestamp = batch.max_timestamp_ms, last_offset
        source_codec = _codec(batch.attributes) or source_codec
        batches.append(batch)
    _check_rest(records, batches[-1].end_position if batches else 0)
    return RecordsAnalysis(
        batches=batches,
        first_offset=batches[0].base_offset if batches and batches[0].magic >= 2 else NO_OFFSET,
        last_offset=last_offset,
        last_offset_of_first_batch=batches[0].last_offset if batches else NO_OFFSET,
        max_timestamp_ms=max_timestamp_ms,
        offset_of_max_timestamp=offset_of_max_timestamp,
        valid_bytes=batches[-1].position + batches[-1].size_bytes if batches else 0,
        source_codec=source_codec,
        are_offsets_rising=are_offsets_rising,
    )


def _check_rest(records: Buffer, position: int) -> None:
    """Check the bytes after the last whole batch (as kafka 2.0.1 ByteBufferLogInputStream).

    Raises KafkaError: CORRUPT_MESSAGE for a size that no batch can have, whether the magic is there or not;
    UNKNOWN_SERVER_ERROR for a size beyond Kafka's int32.
    """
    if len(records) - position < LOG_OVERHEAD:
        return
    size = size_at(records, position) - LOG_OVERHEAD
    if size < MESSAGE_OVERHEAD_V0:
        raise _corrupt(f"Record size {size} is less than the minimum record overhead ({MESSAGE_OVERHEAD_V0})")
    if len(records) - position >= HEADER_SIZE_UP_TO_MAGIC and size > INT32_MAX - LOG_OVERHEAD:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch of {size} bytes")


def assign_offsets(
    records: Buffer,
    analysis: RecordsAnalysis,
    *,
    config: LogConfig,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    is_from_client: bool,
) -> AssignedRecords:
    """Assign offsets from `first_offset` on, and bring the batches into the topic's format.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_TIMESTAMP, UNSUPPORTED_FOR_MESSAGE_FORMAT, MESSAGE_TOO_LARGE.
    """
    if config.as_later and len(analysis.batches) > 1:
        is_compressed = analysis.source_codec is not Codec.NONE
        if is_compressed or len({batch.magic for batch in analysis.batches}) > 1:
            raise invalid("The append has several batches, which are compressed or differ in their magic")
    target_codec = _TARGET_CODECS.get(config.compression_type, analysis.source_codec)
    append_time_ms = now_ms if config.is_log_append_time else None
    if _can_stay(analysis, target_codec=target_codec, to_magic=config.magic):
        counts = _count_records(records, analysis, config, now_ms=now_ms, is_from_client=is_from_client)
        if counts is not None:
            _stamp_in_place(records, analysis.batches, counts, first_offset, leader_epoch, append_time_ms)
            return _assigned(memoryview(records)[: analysis.valid_bytes], first_offset, sum(counts), append_time_ms)
    kept: list[Record] = []
    has_headers, is_compressed = False, not target_codec == analysis.source_codec == Codec.NONE
    for batch in analysis.batches:
        _check_batch(batch, is_from_client=is_from_client, to_magic=config.magic)
        for record in checked_records(records, batch, config, now_ms):
            has_headers = has_headers or bool(record.headers)
            if not is_compressed:
                _check_headers(has_headers, config)
            kept.append(record._replace(offset=first_offset + len(kept)))
    if not kept:
        raise invalid("No records in the batches of the append")
    _check_headers(has_headers, config)  # compressed records are all checked before the first is rebuilt
    rebuilt = _rebuild(kept, analysis.batches[0], config, target_codec, leader_epoch, append_time_ms)
    assigned = _assigned(rebuilt, first_offset, len(kept), append_time_ms, max_message_bytes=config.max_message_bytes)
    is_converted = analysis.batches[0].magic != config.magic
    return assigned._replace(converted_records=len(kept)) if is_converted else assigned


def _check_batch(batch: BatchView, *, is_from_client: bool, to_magic: int) -> None:
    """Check a batch as kafka 2.0.1 LogValidator.validateBatch does, and its count against its size."""
    if is_from_client:
        if batch.magic >= 2:
            _check_count(batch)
        if batch.has_producer_id and batch.base_sequence < 0:
            raise invalid(
                f"Invalid sequence number {batch.base_sequence} in record batch with producerId {batch.producer_id}"
            )
        if batch.is_control:
            raise invalid("Clients are not allowed to write control records")
    if to_magic < 2 and (batch.is_transactional or batch.has_producer_id):
        kind = "Transactional" if batch.is_transactional else "Idempotent"
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{kind} records cannot be used with magic version {to_magic}",
        )


def _check_timestamp_type(batch: BatchView) -> None:
    """Check what Kafka checks with each record, after its key."""
    if batch.timestamp_type is TimestampType.LOG_APPEND_TIME:
        message = "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime."
        raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, message, ())


def _check_count(batch: BatchView) -> None:
    count, offsets = batch.records_count, batch.last_offset - batch.base_offset + 1
    if offsets <= 0:
        raise invalid(f"Batch has an invalid offset range: [{batch.base_offset}, {batch.last_offset}]")
    if count <= 0:
        raise invalid(f"Invalid reported count for record batch: {count}")
    if offsets != count:
        raise invalid(
            f"Inconsistent batch offset range [{batch.base_offset}, {batch.last_offset}] and count of records {count}"
        )
    body_bytes = batch.size_bytes - RECORD_BATCH_OVERHEAD
    smallest = 1 if batch.attributes & CODEC_MASK else count * SMALLEST_RECORD_BYTES
    if body_bytes < smallest:
        raise invalid(f"Found no room for {count} records in a batch body of {body_bytes} bytes")


def _can_stay(analysis: RecordsAnalysis, *, target_codec: Codec, to_magic: int) -> bool:
    """Return whether the headers allow that the batches keep their bytes."""
    if any(batch.magic != to_magic for batch in analysis.batches):
        return False
    if target_codec == analysis.source_codec == Codec.NONE:
        return True
    if all(batch.is_control for batch in analysis.batches):
        return True  # control records are never compressed
    # One compressed batch keeps its bytes, offsets inside being relative; of magic 0 they are not.
    return target_codec == analysis.source_codec and to_magic > 0 and len(analysis.batches) == 1


def _count_records(
    records: Buffer, analysis: RecordsAnalysis, config: LogConfig, *, now_ms: int, is_from_client: bool
) -> list[int] | None:
    """Check the batches, and their records if necessary; return the number of records in each.

    Returns None if the offsets inside a compressed batch do not allow that it keeps its bytes: those of a client count
    from 0.
    """
    is_wrapper = config.magic < 2 and analysis.source_codec is not Codec.NONE
    checks_time = config.message_timestamp_difference_max_ms < UNBOUNDED_MS and not config.is_log_append_time
    if not is_wrapper and not (is_from_client and (config.is_compacted or checks_time)):
        for batch in analysis.batches:
            _check_batch(batch, is_from_client=is_from_client, to_magic=config.magic)
            _check_timestamp_type(batch)
        return [batch.last_offset - batch.base_offset + 1 for batch in analysis.batches]
    counts = []
    for batch in analysis.batches:
        _check_batch(batch, is_from_client=is_from_client, to_magic=config.magic)
        count, is_compressed = 0, batch.attributes & CODEC_MASK != 0
        for record in checked_records(records, batch, config, now_ms):
            if is_compressed and record.offset != count:
                return None
            count += 1
        counts.append(count)
    return counts


def checked_records(
    records: bytearray | memoryview, batch: BatchView, config: LogConfig, now_ms: int
) -> Iterator[Record]:
    """Iterate over a batch's records. Raises InvalidRecordsError at the first invalid one, with all of them (KIP-467).

    A producer can then drop these and send the others again. Raises KafkaError as `iter_all_records`, and
    UNKNOWN_SERVER_ERROR for a wrapper that cannot be decompressed, as kafka 2.0.1.
    """
    numbered = enumerate(_sent_records(records, batch))
    for index, record in numbered:
        problem = _problem_with(record, config, now_ms)
        if problem is not None:
            code, reason = problem
            refused = [(index, reason), *_refused_records(numbered, config, now_ms)]
            raise InvalidRecordsError(code, reason, refused)
        _check_timestamp_type(batch)
        yield record


def _sent_records(records: Buffer, batch: BatchView) -> Iterator[Record]:
    try:
        return iter_all_records(records, batch, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES, is_sent=True)
    except DamagedStreamError as error:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from None


def _refused_records(
    numbered: Iterable[tuple[int, Record]], config: LogConfig, now_ms: int
) -> Iterator[tuple[int, str]]:
    """Iterate over the other invalid records of the batch, `MAX_RECORD_ERRORS` at most, as far as it can be read."""
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
    """Check a record as kafka 2.0.1 LogValidator.validateRecord does."""
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


def _check_headers(has_headers: bool, config: LogConfig) -> None:
    if has_headers and config.magic < 2:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Magic v{config.magic} does not support record headers")


def _stamp_in_place(
    records: Buffer,
    batches: list[BatchView],
    counts: list[int],
    first_offset: int,
    leader_epoch: int,
    append_time_ms: int | None,
) -> None:
    """Stamp the batches with offsets, leader epoch and append time."""
    next_offset = first_offset
    has_append_time = append_time_ms is not None
    for batch, count in zip(batches, counts, strict=True):
        next_offset += count
        if batch.magic >= 2:
            stamp(
                records,
                batch.position,
                base_offset=next_offset - count,
                leader_epoch=leader_epoch,
                max_timestamp_ms=append_time_ms,
                log_append_time=has_append_time,
            )
        else:
            time_ms = append_time_ms if batch.magic else None  # magic 0 has no room for one
            stamp_message(
                records, batch.position, offset=next_offset - 1, timestamp_ms=time_ms, log_append_time=has_append_time
            )


def _rebuild(
    records: list[Record],
    first_batch: BatchView,
    config: LogConfig,
    codec: Codec,
    leader_epoch: int,
    append_time_ms: int | None,
) -> bytearray:
    """Rebuild the records in the format and codec of the topic: one batch, or messages.

    Raises KafkaError(UNKNOWN_SERVER_ERROR) as kafka 2.0.1 MemoryRecordsBuilder, which checks the producer of rebuilt
    batches only.
    """
    if first_batch.is_transactional and first_batch.producer_id == NO_PRODUCER_ID:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "transactional records without a producer id")
    if first_batch.producer_id != NO_PRODUCER_ID:  # those below it belong to no producer
        if first_batch.producer_epoch == NO_PRODUCER_EPOCH or first_batch.base_sequence < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a producer id without an epoch or a sequence number")
        if config.magic < 2:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"a producer id in a format of magic {config.magic}")
    return build_records(
        records,
        magic=config.magic,
        base_offset=records[0].offset,
        codec=codec,
        timestamp_type=TimestampType.CREATE_TIME if append_time_ms is None else TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=append_time_ms,
        leader_epoch=leader_epoch,
        # A batch with a producer id is the only one of its request.
        producer_id=first_batch.producer_id,
        producer_epoch=first_batch.producer_epoch,
        base_sequence=first_batch.base_sequence,
        is_transactional=first_batch.is_transactional,
    )


def _assigned(
    buffer: Buffer,
    first_offset: int,
    records_count: int,
    append_time_ms: int | None,
    *,
    max_message_bytes: int | None = None,
) -> AssignedRecords:
    """Sum up batches that have their offsets. Raises KafkaError(MESSAGE_TOO_LARGE) if one has grown too large."""
    batches = list(scan_batches(buffer, 0, len(buffer)))
    max_timestamp_ms, offset_of_max_timestamp = NO_TIMESTAMP, NO_OFFSET
    for batch in batches:
        if max_message_bytes is not None and batch.size_bytes > max_message_bytes:
            raise too_large(batch.size_bytes, max_message_bytes)
        if batch.max_timestamp_ms > max_timestamp_ms:
            max_timestamp_ms, offset_of_max_timestamp = batch.max_timestamp_ms, batch.last_offset
    return AssignedRecords(
        buffer,
        batches,
        first_offset,
        first_offset + records_count - 1,
        max_timestamp_ms,
        offset_of_max_timestamp,
        NO_TIMESTAMP if append_time_ms is None else append_time_ms,
    )


def _codec(attributes: int) -> Codec:
    number = attributes & CODEC_MASK
    if number > Codec.ZSTD:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type id: {number}")
    return Codec(number)


def too_large(size_bytes: int, max_message_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size is {size_bytes} bytes which exceeds the maximum configured value of "
        f"{max_message_bytes}.",
    )


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
