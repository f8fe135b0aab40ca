"""Records for old clients: how many bytes they are, what fills or cuts them, and that they are converted late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files import converted_slice
from minibroker.storage.files.converted_slice import PIECE_BYTES, READ_BYTES, ConvertedSlice, filler
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from tests.protocol.batch_bytes import commit_marker, offsets_in, views_of
from tests.refusals import refusal_of

TIME_MS = 1_500_000_000_000

SliceOf = Callable[..., FileSlice]


@pytest.fixture
def slice_of(tmp_path: Path) -> SliceOf:
    """A slice of these batches, in the middle of a file."""

    def write(*batches: bytes | bytearray, cut: int = 0) -> FileSlice:
        content = b"".join(batches)
        path = tmp_path / "00000000000000000000.log"
        path.write_bytes(b"in front" + content)
        return FileSlice(RecordsFile(path), len("in front"), len(content) - cut)

    return write


def plain(base_offset: int, count: int = 3, size: int = 20, codec: Codec = Codec.NONE) -> bytearray:
    rows = [Record(base_offset + i, TIME_MS + i, b"key", b"v" * size) for i in range(count)]
    return build_batch(rows, base_offset=base_offset, codec=codec)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_it_is_as_long_as_the_read_batches(slice_of: SliceOf, magic: int, codec: Codec) -> None:
    records = slice_of(*(plain(3 * i, codec=codec, size=100) for i in range(20)))

    converted = ConvertedSlice(records, magic, 0)

    data = converted.read()
    assert len(data) == converted.size_bytes == records.size_bytes
    assert {view.magic for view in views_of(data)} == {magic}


def test_row_69_the_first_batch_is_whole_however_much_longer_it_becomes(slice_of: SliceOf) -> None:
    records = slice_of(plain(0, count=50, size=1), plain(50))

    data = ConvertedSlice(records, 1, 0).read()

    assert len(data) > records.size_bytes
    assert offsets_in(data) == list(range(50))


def test_row_69_bytes_saved_by_conversion_are_filled_with_the_head_of_a_cut_off_batch(slice_of: SliceOf) -> None:
    headers = ((("header", b"long" * 100),),)
    batch = build_batch([Record(0, TIME_MS, None, b"v", *headers)])

    data = ConvertedSlice(slice_of(batch), 0, 0).read()

    (view,) = views_of(data)
    filling = data[view.end_position :]
    assert len(data) == len(batch)
    assert filling[:8] == b"\xff" * 8
    assert int.from_bytes(filling[8:12], "big") == len(filling) + 1
    assert set(filling[12:]) == {0}


def test_records_before_the_offset_asked_for_are_left_out_of_plain_batches_only(slice_of: SliceOf) -> None:
    assert offsets_in(ConvertedSlice(slice_of(plain(0), plain(3)), 1, 2).read()) == [2, 3, 4, 5]
    assert offsets_in(ConvertedSlice(slice_of(plain(0, codec=Codec.GZIP)), 1, 2).read())[:3] == [0, 1, 2]


def test_nothing_but_control_batches_is_twelve_bytes_of_filler_as_kafkas(slice_of: SliceOf) -> None:
    converted = ConvertedSlice(slice_of(commit_marker(3), commit_marker(4)), 1, 3)

    assert converted.size_bytes == 12
    assert converted.read() == b"\xff" * 8 + b"\0\0\0\x3d"


def test_all_is_converted_at_once_as_before_2_0_without_filler_cut_or_control_batch(slice_of: SliceOf) -> None:
    records = slice_of(commit_marker(3), plain(4, count=50, size=1), plain(54, codec=Codec.GZIP, size=1000))

    converted = ConvertedSlice(records, 1, 5, at_once=True)

    data = converted.read()
    assert len(data) == converted.size_bytes != records.size_bytes
    assert offsets_in(data) == list(range(5, 57))
    assert views_of(data)[-1].end_position == len(data)
    assert ConvertedSlice(slice_of(commit_marker(3)), 1, 3, at_once=True).size_bytes == 0


def test_the_first_batch_comes_twice_behind_a_control_batch_as_kafkas(slice_of: SliceOf) -> None:
    records = slice_of(commit_marker(3), plain(4), commit_marker(7), plain(8, codec=Codec.GZIP), commit_marker(11))

    assert offsets_in(ConvertedSlice(records, 0, 3).read())[:6] == [4, 5, 6, 4, 5, 6]


def test_a_batch_cut_off_by_the_end_is_left_out(slice_of: SliceOf) -> None:
    records = slice_of(plain(0, size=200), plain(3, size=200), cut=1)

    assert offsets_in(ConvertedSlice(records, 1, 0).read()) == [0, 1, 2]


def test_batches_longer_than_one_read_are_converted_like_the_others(slice_of: SliceOf) -> None:
    value_bytes = READ_BYTES + 1000
    records = slice_of(plain(0, 1), plain(1, 1, value_bytes), plain(2, 1), plain(3, 1, value_bytes), plain(4, 1), cut=5)

    assert offsets_in(ConvertedSlice(records, 1, 0).read()) == [0, 1, 2, 3]


def test_old_batches_between_new_ones_stay_as_they_are(slice_of: SliceOf) -> None:
    old = build_message_set([Record(3, -1, None, b"old")], magic=0)

    data = ConvertedSlice(slice_of(plain(0, size=90), old, plain(4, size=90)), 1, 0).read()

    assert bytes(old) in data
    assert offsets_in(data)[:5] == [0, 1, 2, 3, 4]  # the rest has grown beyond what was read


def test_no_more_is_converted_than_has_been_asked_for(slice_of: SliceOf, monkeypatch: pytest.MonkeyPatch) -> None:
    converted_bytes = 0

    def counting(buffer: bytes, start: int, end: int, **options: int) -> bytearray:
        nonlocal converted_bytes
        converted_bytes += end - start
        return down_convert(buffer, start, end, **options)

    monkeypatch.setattr(converted_slice, "down_convert", counting)
    records = slice_of(*(plain(3 * i, size=1000) for i in range(1000)))

    pieces = ConvertedSlice(records, 1, 0).pieces()
    sent_bytes = sum(len(next(pieces)) for _ in range(4))

    assert records.size_bytes > 20 * PIECE_BYTES
    assert sent_bytes <= 4 * 2 * PIECE_BYTES
    assert converted_bytes <= sent_bytes + 2 * PIECE_BYTES


def test_a_compressed_batch_is_a_piece_of_its_own_whatever_it_holds(slice_of: SliceOf) -> None:
    records = slice_of(*(plain(3 * i, size=1000, codec=Codec.GZIP) for i in range(4)))

    pieces = list(ConvertedSlice(records, 1, 0).pieces())

    assert [offsets_in(bytes(piece)) for piece in pieces[:3]] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_a_batch_that_cannot_be_read_is_an_error_at_once_or_ends_the_answer_before_it(slice_of: SliceOf) -> None:
    damaged = plain(3, codec=Codec.GZIP)
    damaged[70:] = bytes(len(damaged) - 70)

    assert refusal_of(lambda: ConvertedSlice(slice_of(damaged, plain(6)), 1, 0)) is ErrorCode.CORRUPT_MESSAGE

    records = slice_of(plain(0, size=200), damaged, plain(6))
    data = ConvertedSlice(records, 1, 0).read()
    assert len(data) == records.size_bytes
    assert offsets_in(data) == [0, 1, 2]


@pytest.mark.parametrize("missing_bytes", [1, 11, 12, 13, 61, 1000, READ_BYTES, READ_BYTES + 1])
def test_fillers_are_no_longer_than_the_missing_bytes(missing_bytes: int) -> None:
    filling = filler(missing_bytes)

    assert len(filling) == min(missing_bytes, READ_BYTES)
    assert views_of(filling) == []
