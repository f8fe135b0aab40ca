"""Checks before an append, and batches that the topic wants otherwise: what Apache Kafka 2.0.1 has no answer to.

What it answers is in tests/golden/conversations/kafka-2.0.1/ (producing.txt, odd_requests.txt).
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from minibroker.protocol.batches import is_one_batch_of_magic_2, iter_all_records, scan_batches
from minibroker.protocol.compression import Codec, compress
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.config import LogConfig
from minibroker.storage.log.log import Log
from tests.protocol.batch_bytes import commit_marker, with_fields
from tests.refusals import refusal_of
from tests.storage.logs import NOW_MS, batch_of, batches_of, open_log, read_bytes, records_of, send, values_of

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


class TestFormats:
    def test_wrappers_that_an_earlier_version_stored_are_read_and_found_by_time(self, tmp_path: Path) -> None:
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

    @pytest.mark.parametrize(
        "batch",
        [batch_of(["a"], producer_id=1, sequence=0), batch_of(["a"], producer_id=1, sequence=0, is_transactional=True)],
        ids=["idempotent", "transactional"],
    )
    def test_an_old_format_has_no_place_for_producers(self, tmp_path: Path, batch: bytearray) -> None:
        log = log_of(tmp_path, message_format_version="0.10.2")

        code = refusal_of(lambda: send(log, bytearray(batch)))

        assert code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_a_batch_that_grows_too_large_by_conversion_is_refused(self, tmp_path: Path) -> None:
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
