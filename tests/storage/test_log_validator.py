"""Checks before an append, and batches that the topic wants otherwise."""

from __future__ import annotations

import gzip
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.batches import batch_is_valid, is_one_batch_of_magic_2, iter_all_records, scan_batches
from minibroker.protocol.compression import Codec, compress
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import TimestampType, build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.log.log import Log
from tests.protocol.batch_bytes import commit_marker, views_of, with_fields
from tests.refusals import refusal_of
from tests.storage.logs import EPOCH, NOW_MS, batch_of, batches_of, open_log, read_bytes, records_of, send, values_of

RECORDS = [Record(number, NOW_MS - number, b"k%d" % number, b"v%d" % number) for number in range(3)]
# A topic that stores batches as they come, and three that must look inside first: each refuses the same.
EVERY_WAY = [
    pytest.param(LogConfig(), id="as sent"),
    pytest.param(LogConfig(cleanup_policy=("compact",)), id="compacted"),
    pytest.param(LogConfig(message_timestamp_difference_max_ms=10**12), id="bounded"),
    pytest.param(LogConfig(compression_type="gzip"), id="recompressed"),
    pytest.param(LogConfig(message_timestamp_type="LogAppendTime"), id="append time"),
]


def log_of(tmp_path: Path, **settings: object) -> Log:
    return open_log(tmp_path, LogConfig(**settings))  # type: ignore[arg-type]


def wrapper_of(magic: int, codec: Codec, records: list[Record] | None = None) -> bytearray:
    return build_message_set(records or RECORDS, magic=magic, codec=codec)


def wrapper_with(
    records: list[Record], inside: tuple[int, ...], outside: int, *, cut: int = 0, magic: int = 1
) -> bytearray:
    """A wrapper with any offsets, and perhaps without the last bytes inside."""
    messages = bytearray().join(
        build_message_set([record._replace(offset=offset)], magic=magic)
        for offset, record in zip(inside, records, strict=True)
    )
    packed = compress(Codec.GZIP, messages[: len(messages) - cut], magic=magic)
    last_ms = max(record.timestamp_ms for record in records)
    wrapper = build_message_set([Record(outside, last_ms, None, packed)], magic=magic)
    wrapper[17] |= Codec.GZIP
    struct.pack_into(">I", wrapper, 12, zlib.crc32(wrapper[16:]))
    return wrapper


def append_wrapper(log: Log, *args: Any, **options: Any) -> None:
    send(log, wrapper_with(*args, **options))


class TestRefusing:
    @pytest.mark.parametrize("config", EVERY_WAY)
    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"base_offset": 1}, ErrorCode.CORRUPT_MESSAGE),
            ({"records_count": 0, "last_offset_delta": -1}, ErrorCode.CORRUPT_MESSAGE),
            ({"records_count": -1}, ErrorCode.CORRUPT_MESSAGE),
            ({"records_count": 2}, ErrorCode.CORRUPT_MESSAGE),
            ({"last_offset_delta": 5}, ErrorCode.CORRUPT_MESSAGE),
            ({"last_offset_delta": 999, "records_count": 1000}, ErrorCode.CORRUPT_MESSAGE),
            ({"attributes": 0x20}, ErrorCode.CORRUPT_MESSAGE),
            ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP),
            ({"attributes": 0x05}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            ({"attributes": 0x07}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
            ({"producer_id": 5, "producer_epoch": 0}, ErrorCode.CORRUPT_MESSAGE),
        ],
        ids=str,
    )
    def test_a_header_that_cannot_be_is_refused_whatever_the_topic(
        self, tmp_path: Path, config: LogConfig, fields: dict[str, int], code: ErrorCode
    ) -> None:
        log = open_log(tmp_path, config)
        batch = with_fields(batch_of(["a"]), **fields)

        assert refusal_of(lambda: send(log, batch)) is code
        assert (log.log_end_offset, log.size_bytes) == (0, 0)

    @pytest.mark.parametrize("config", EVERY_WAY)
    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_a_wrong_checksum_is_refused_by_every_topic(self, tmp_path: Path, config: LogConfig, magic: int) -> None:
        log = open_log(tmp_path, config)
        batch = batch_of(["a"]) if magic == 2 else wrapper_of(magic, Codec.NONE)
        batch[-1] ^= 0x40

        assert refusal_of(lambda: send(log, batch)) is ErrorCode.CORRUPT_MESSAGE
        assert log.log_end_offset == 0

    @pytest.mark.parametrize("policy", ["delete", "compact"])
    def test_a_size_over_the_limit_is_refused_before_a_wrong_checksum(self, tmp_path: Path, policy: str) -> None:
        batch = batch_of(["a"])
        fits = log_of(tmp_path / "fits", max_message_bytes=len(batch), cleanup_policy=(policy,))
        exceeds = log_of(tmp_path / "exceeds", max_message_bytes=len(batch) - 1, cleanup_policy=(policy,))

        assert send(fits, bytearray(batch)).first_offset == 0
        batch[-1] ^= 1
        assert refusal_of(lambda: send(exceeds, batch)) is ErrorCode.MESSAGE_TOO_LARGE
        assert exceeds.log_end_offset == 0

    def test_a_lying_count_in_a_compressed_batch_is_found_where_records_are_looked_at(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, cleanup_policy=("compact",))
        batch = with_fields(build_batch(RECORDS, codec=Codec.GZIP), records_count=2, last_offset_delta=1)

        assert refusal_of(lambda: send(log, batch)) is ErrorCode.CORRUPT_MESSAGE

    def test_the_brokers_own_markers_pass(self, tmp_path: Path) -> None:
        for name, config in (("plain", LogConfig()), ("gzip", LogConfig(compression_type="gzip"))):
            log = open_log(tmp_path / name, config)
            send(log, commit_marker(), is_from_client=False)

            assert [batch.is_control for batch in batches_of(log)] == [True]
            assert batches_of(log)[0].codec is Codec.NONE

    @pytest.mark.parametrize("magic", [0, 1])
    def test_a_wrapper_that_cannot_be_unpacked_is_an_error_of_the_server(self, tmp_path: Path, magic: int) -> None:
        """As kafka 2.0.1; lz4 has another checksum in magic 0 (KAFKA-3160)."""
        start, messages = 26 + 8 * magic, build_message_set(RECORDS, magic=magic)
        wrappers = [wrapper_of(magic, codec) for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)]
        for wrapper in wrappers:
            wrapper[start + 2] ^= 0xFF
        if magic == 1:
            wrappers.append(wrapper_of(1, Codec.LZ4)[:start] + compress(Codec.LZ4, messages, magic=0))
        for wrapper in wrappers:
            struct.pack_into(">i", wrapper, 8, len(wrapper) - 12)
            struct.pack_into(">i", wrapper, start - 4, len(wrapper) - start)
            struct.pack_into(">I", wrapper, 12, zlib.crc32(wrapper[16:]))

            log = log_of(tmp_path, message_format_version="0.10.2")
            assert refusal_of(partial(send, log, wrapper)) is ErrorCode.UNKNOWN_SERVER_ERROR
            log.close()

    @pytest.mark.parametrize(
        ("position", "byte", "code"),
        [
            (0, 0, ErrorCode.UNKNOWN_SERVER_ERROR),  # nothing wrong but the trailer
            (11, 13, ErrorCode.CORRUPT_MESSAGE),  # an impossible size
            (16, 0, ErrorCode.CORRUPT_MESSAGE),  # another magic
        ],
    )
    def test_messages_are_read_before_a_trailer_that_refuses_them(
        self, tmp_path: Path, position: int, byte: int, code: ErrorCode
    ) -> None:
        """As kafka 2.0.1, whose GZIPInputStream meets the wrong checksum after the messages."""
        messages = build_message_set(RECORDS, magic=1)
        messages[position] = byte
        packed = gzip.compress(messages)
        packed = packed[:-8] + bytes(4) + packed[-4:]
        wrapper = build_message_set([Record(len(RECORDS) - 1, NOW_MS, None, packed)], magic=1)
        wrapper[17] = Codec.GZIP
        struct.pack_into(">I", wrapper, 12, zlib.crc32(wrapper[16:]))

        log = log_of(tmp_path, message_format_version="0.10.2")
        assert refusal_of(partial(send, log, wrapper)) is code


class TestCompactedTopics:
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
    def test_a_record_without_a_key_is_refused(self, tmp_path: Path, codec: Codec) -> None:
        log = log_of(tmp_path, cleanup_policy=("compact", "delete"))
        batch = build_batch([*RECORDS, Record(3, NOW_MS, None, b"v")], codec=codec)

        assert refusal_of(lambda: send(log, batch)) is ErrorCode.CORRUPT_MESSAGE
        assert send(log, batch_of(["a"], key=b"")).first_offset == 0

    @pytest.mark.parametrize(("key", "code"), [(None, ErrorCode.CORRUPT_MESSAGE), (b"k", ErrorCode.INVALID_TIMESTAMP)])
    def test_a_missing_key_is_noticed_before_a_wrong_type_of_timestamp(
        self, tmp_path: Path, key: bytes | None, code: ErrorCode
    ) -> None:
        log = log_of(tmp_path, cleanup_policy=("compact",))
        batch = with_fields(batch_of(["a"], key=key), attributes=0x08)

        assert refusal_of(lambda: send(log, batch)) is code

    def test_a_batch_with_keys_keeps_its_bytes(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, cleanup_policy=("compact",))
        batch = build_batch(RECORDS, codec=Codec.GZIP)

        send(log, bytearray(batch))

        assert read_bytes(log, 0)[61:] == bytes(batch[61:])


class TestTimestamps:
    @pytest.mark.parametrize("distance_ms", [-101, 101])
    def test_a_record_too_far_from_the_clock_is_refused(self, tmp_path: Path, distance_ms: int) -> None:
        log = log_of(tmp_path, message_timestamp_difference_max_ms=100)
        batch = batch_of(["a"], timestamp_ms=NOW_MS + distance_ms)

        assert refusal_of(lambda: send(log, batch)) is ErrorCode.INVALID_TIMESTAMP

    @pytest.mark.parametrize("timestamp_ms", [-1, NOW_MS - 100, NOW_MS + 100])
    def test_none_at_all_or_one_near_enough_is_taken(self, tmp_path: Path, timestamp_ms: int) -> None:
        log = log_of(tmp_path, message_timestamp_difference_max_ms=100)

        info = send(log, batch_of(["a"], timestamp_ms=timestamp_ms))

        assert (info.first_offset, info.log_append_time_ms) == (0, -1)

    def test_log_append_time_is_stamped_under_a_right_checksum(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, message_timestamp_type="LogAppendTime", message_timestamp_difference_max_ms=1)

        info = send(log, batch_of(["a", "b"], timestamp_ms=5), now_ms=NOW_MS)

        data = read_bytes(log, 0)
        (batch,) = views_of(data)
        assert batch_is_valid(data, batch)
        assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert (info.log_append_time_ms, info.max_timestamp_ms, batch.max_timestamp_ms) == (NOW_MS,) * 3
        assert [record.timestamp_ms for record in records_of(log)] == [NOW_MS, NOW_MS]

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    @pytest.mark.parametrize(("version", "magic", "stamped_ms"), [("0.10.2", 1, NOW_MS), ("0.9.0", 0, -1)])
    def test_magic_1_is_stamped_too_and_magic_0_has_no_place_for_it(
        self, tmp_path: Path, version: str, magic: int, stamped_ms: int, codec: Codec
    ) -> None:
        log = log_of(tmp_path, message_format_version=version, message_timestamp_type="LogAppendTime")

        assert send(log, wrapper_of(magic, codec)).log_append_time_ms == NOW_MS

        data = read_bytes(log, 0)
        assert all(batch_is_valid(data, batch) for batch in views_of(data))
        assert {record.timestamp_ms for record in records_of(log)} == {stamped_ms}


class TestFormats:
    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
    @pytest.mark.parametrize("magic", [0, 1])
    def test_old_messages_become_one_batch_of_magic_2(self, log: Log, magic: int, codec: Codec) -> None:
        send(log, batch_of(["first"]))

        info = send(log, wrapper_of(magic, codec))

        assert (info.first_offset, info.last_offset) == (1, 3)
        converted = batches_of(log)[1]
        assert (converted.magic, converted.codec, converted.records_count) == (2, codec, 3)
        assert converted.partition_leader_epoch == EPOCH
        assert values_of(log) == ["first", "v0", "v1", "v2"]
        expected = [-1] * 3 if magic == 0 else [record.timestamp_ms for record in RECORDS]
        assert [record.timestamp_ms for record in records_of(log)][1:] == expected

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    @pytest.mark.parametrize(("version", "magic"), [("0.9.0", 0), ("0.10.2", 1)])
    def test_a_topic_of_an_old_format_stores_it(self, tmp_path: Path, version: str, magic: int, codec: Codec) -> None:
        log = log_of(tmp_path, message_format_version=version)

        for _ in range(2):
            send(log, build_batch(RECORDS, codec=codec))
            send(log, wrapper_of(0, codec))
            send(log, wrapper_of(1, codec))

        assert {batch.magic for batch in batches_of(log)} == {magic}
        assert values_of(log) == ["v0", "v1", "v2"] * 6
        assert [record.offset for record in records_of(log)] == list(range(18))

    def test_a_wrapper_of_magic_1_keeps_its_bytes_but_for_the_offset_unless_it_has_gaps(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, message_format_version="0.10.2")
        wrapper = wrapper_of(1, Codec.GZIP)
        gaps = [record._replace(offset=2 * record.offset) for record in RECORDS]

        infos = [send(log, sent) for sent in (bytearray(wrapper), bytearray(wrapper), wrapper_of(1, Codec.GZIP, gaps))]

        assert read_bytes(log, 3, max_offset=6)[8:] == bytes(wrapper[8:])
        assert (infos[2].first_offset, infos[2].last_offset) == (6, 8)
        assert [record.offset for record in records_of(log)] == list(range(9))

    @pytest.mark.parametrize(
        ("inside", "outside"), [((50, 51, 52), 52), ((50, 51, 52), 0), ((0, 1, 2), 102), ((0, 2, 4), 4), ((2, 1, 0), 2)]
    )
    def test_offsets_that_do_not_count_from_0_inside_a_wrapper_are_written_anew(
        self, tmp_path: Path, inside: tuple[int, ...], outside: int
    ) -> None:
        log = log_of(tmp_path, message_format_version="0.10.2")
        append_wrapper(log, RECORDS, (0, 1, 2), 2)

        append_wrapper(log, RECORDS, inside, outside)

        assert [record.offset for record in records_of(log)] == list(range(6))
        assert read_bytes(log, 3)[8:] == read_bytes(log, 0, max_offset=3)[8:]
        found = log.fetch_offset_by_timestamp(NOW_MS)
        assert found is not None
        assert found.offset == 0

    def test_what_an_earlier_version_stored_is_read_and_found_by_time(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, message_format_version="0.10.2")
        later = [record._replace(timestamp_ms=NOW_MS + 10 * number) for number, record in enumerate(RECORDS)]

        log.append_as_follower(wrapper_with(later, (50, 51, 52), 2), now_ms=NOW_MS)

        assert [record.offset for record in records_of(log)] == [0, 1, 2]
        assert log.fetch_offset_by_timestamp(NOW_MS + 11) == (NOW_MS + 20, 2)
        converted = down_convert(
            read_bytes(log, 0), 0, log.size_bytes, to_magic=0, first_offset=0, max_decompressed_bytes=1000
        )
        (view,) = scan_batches(converted, 0, len(converted))
        assert [each.offset for each in iter_all_records(converted, view, max_decompressed_bytes=1000)] == [0, 1, 2]

    @pytest.mark.parametrize("magic", [0, 1])
    def test_a_message_cut_off_inside_a_wrapper_is_left_out(self, tmp_path: Path, magic: int) -> None:
        log = log_of(tmp_path, message_format_version="0.10.2")

        append_wrapper(log, RECORDS, (0, 1, 2), 2, cut=5, magic=magic)
        append_wrapper(log, RECORDS, (0, 1, 2), 2, magic=magic)

        assert [(record.offset, record.value) for record in records_of(log)] == [
            (offset, b"v%d" % (offset % 2 if offset < 2 else offset - 2)) for offset in range(5)
        ]

    def test_two_compressed_batches_are_built_into_one(self, log: Log) -> None:
        send(log, build_batch(RECORDS, codec=Codec.GZIP) + build_batch(RECORDS, codec=Codec.GZIP))

        assert [(batch.base_offset, batch.last_offset) for batch in batches_of(log)] == [(0, 5)]
        assert values_of(log) == ["v0", "v1", "v2"] * 2

    @pytest.mark.parametrize(
        "batch",
        [batch_of(["a"], producer_id=1, sequence=0), batch_of(["a"], producer_id=1, sequence=0, is_transactional=True)],
        ids=["idempotent", "transactional"],
    )
    def test_an_old_format_has_no_place_for_producers(self, tmp_path: Path, batch: bytearray) -> None:
        log = log_of(tmp_path, message_format_version="0.10.2")

        code = refusal_of(lambda: send(log, bytearray(batch)))

        assert code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_what_grows_too_large_by_conversion_is_refused(self, tmp_path: Path) -> None:
        records = [record._replace(value=b"v" * 400) for record in RECORDS]
        wrapper = wrapper_of(1, Codec.GZIP, records)
        log = log_of(tmp_path, max_message_bytes=len(wrapper) + 50, compression_type="uncompressed")

        assert refusal_of(lambda: send(log, wrapper)) is ErrorCode.MESSAGE_TOO_LARGE
        assert log.log_end_offset == 0


class TestCompression:
    @pytest.mark.parametrize(
        ("setting", "stored"),
        [
            ("uncompressed", Codec.NONE),
            ("gzip", Codec.GZIP),
            ("snappy", Codec.SNAPPY),
            ("lz4", Codec.LZ4),
            ("zstd", Codec.ZSTD),
            ("producer", None),
        ],
    )
    @pytest.mark.parametrize("sent", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
    def test_batches_are_stored_in_the_topics_codec(
        self, tmp_path: Path, setting: str, stored: Codec | None, sent: Codec
    ) -> None:
        log = log_of(tmp_path, compression_type=setting)

        send(log, build_batch(RECORDS, codec=sent))
        send(log, build_batch(RECORDS, codec=sent), is_from_client=False)

        assert {batch.codec for batch in batches_of(log)} == {sent if stored is None else stored}
        assert values_of(log) == ["v0", "v1", "v2"] * 2

    def test_a_producer_survives_recompression(self, tmp_path: Path) -> None:
        log = log_of(tmp_path, compression_type="gzip")
        batch = batch_of(["a", "b"], producer_id=7, sequence=0, epoch=2, is_transactional=True)

        send(log, bytearray(batch))
        again = send(log, bytearray(batch))

        (stored,) = batches_of(log)
        assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (7, 2, 0)
        assert stored.is_transactional
        assert again.is_duplicate

    @pytest.mark.pure
    def test_a_bomb_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("minibroker.storage.log.log_validator.MAX_DECOMPRESSED_BYTES", 1 << 20)
        log = log_of(tmp_path, compression_type="uncompressed")
        bomb = build_batch([Record(0, NOW_MS, None, bytes((1 << 20) + 1))], codec=Codec.GZIP)
        assert len(bomb) < 2000

        assert refusal_of(lambda: send(log, bomb)) is ErrorCode.MESSAGE_TOO_LARGE


class TestOneBatch:
    def test_exactly_one_whole_batch_of_magic_2_counts(self) -> None:
        batch = batch_of(["a"])

        assert is_one_batch_of_magic_2(batch)
        assert is_one_batch_of_magic_2(memoryview(batch))
        others: list[bytes | bytearray | None] = [batch + batch, batch[:-1], b"", None]
        others += [wrapper_of(magic, Codec.NONE) for magic in (0, 1)]
        assert not any(map(is_one_batch_of_magic_2, others))
