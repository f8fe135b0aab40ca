"""Batches of any format as storage needs them: where they are, and which holds an offset."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minibroker.protocol.batches import (
    BatchView,
    batch_is_valid,
    find_offset,
    iter_all_records,
    scan_batches,
    view_batch,
)
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import build_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import TimestampType, build_batch
from tests.protocol.batch_bytes import LIMIT, mapped, offsets_in, views_of
from tests.protocol.golden_logs import golden_batches, golden_segments
from tests.protocol.record_strategies import PROPERTY

SMALLEST_MESSAGE = build_records([Record(9, -1, None, None)], magic=0, base_offset=9)


def record_at(offset: int, value: bytes = b"value") -> Record:
    return Record(offset, 1_700_000_000_000 + offset, b"key", value)


def mixed_log() -> bytearray:
    """Return a log of all formats."""
    log = bytearray()
    for magic, codec, offsets in [
        (0, Codec.NONE, [0]),
        (0, Codec.GZIP, [1, 2, 3]),
        (1, Codec.NONE, [4]),
        (1, Codec.SNAPPY, [5, 6]),
        (2, Codec.NONE, [7, 8, 9, 10]),
        (2, Codec.LZ4, [15]),
        (2, Codec.NONE, [16, 20]),
    ]:
        log += build_records(map(record_at, offsets), magic=magic, base_offset=offsets[0], codec=codec)
    return log


def found_by_scan(log: bytes | bytearray, start: int, end: int, target: int) -> tuple[int, int, int] | None:
    for view in scan_batches(log, start, end):
        if view.last_offset >= target:
            return view.base_offset, view.position, view.size_bytes
    return None


def test_kafkas_segments_are_scanned_to_their_last_byte() -> None:
    assert len(golden_segments()) >= 20
    for name, segment in golden_segments().items():
        views = views_of(segment)

        assert (views[-1].end_position if views else 0) == len(segment), name
        assert all(batch_is_valid(segment, view) for view in views), name
        offsets = [view.last_offset for view in views]
        assert offsets == sorted(set(offsets)), name


def test_every_record_of_kafkas_segments_is_found_by_its_offset() -> None:
    found = 0
    for name, view, _, records in golden_batches():
        segment = golden_segments()[name]
        for record in records:
            result = find_offset(segment, 0, len(segment), record.offset)
            assert result is not None
            assert result[1:] == (view.position, view.size_bytes)
            found += 1
    assert found > 400


def test_a_view_of_a_batch_has_the_fields_of_its_header() -> None:
    batch = build_batch(
        [record_at(50), record_at(52)],
        base_offset=50,
        codec=Codec.LZ4,
        leader_epoch=4,
        producer_id=77,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        log_append_time_ms=99,
        is_transactional=True,
        is_control=True,
    )

    view = view_batch(b"xx" + batch, 2, 2 + len(batch))

    assert view == BatchView(2, len(batch), 2, 50, 52, 99, 4, 0x3B, 77, 3, 2**31 - 1, 2)
    assert (view.end_position, view.next_offset, view.last_sequence) == (2 + len(batch), 53, 1)
    assert (view.codec, view.timestamp_type) == (Codec.LZ4, TimestampType.LOG_APPEND_TIME)
    assert (view.is_transactional, view.is_control, view.has_producer_id) == (True, True, True)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_view_of_a_wrapper_has_its_one_offset_and_nothing_newer(magic: int) -> None:
    wrapper = build_records([record_at(50), record_at(52)], magic=magic, base_offset=50, codec=Codec.GZIP)

    view = view_batch(wrapper, 0, len(wrapper))

    timestamp = 1_700_000_000_052 if magic else -1
    assert view == BatchView(0, len(wrapper), magic, 52, 52, timestamp, -1, Codec.GZIP, -1, -1, -1, -1)
    assert (view.is_transactional, view.is_control, view.has_producer_id) == (False, False, False)
    assert (view.last_sequence, view.timestamp_type) == (-1, TimestampType.CREATE_TIME)


@pytest.mark.parametrize("magic", [0, 1])
def test_bits_that_old_messages_do_not_know_mean_nothing(magic: int) -> None:
    message = build_records([record_at(1)], magic=magic, base_offset=1)
    message[17] = 0x38
    view = view_batch(message, 0, len(message))

    assert view is not None
    assert (view.is_transactional, view.is_control) == (False, False)
    assert view.timestamp_type == (TimestampType.LOG_APPEND_TIME if magic else TimestampType.CREATE_TIME)


def test_a_scan_stops_before_a_batch_that_is_cut_off() -> None:
    log = mixed_log()
    ends = [0] + [view.end_position for view in scan_batches(log, 0, len(log))]

    for end in range(len(log) + 1):
        whole = [view.end_position for view in scan_batches(log, 0, end)]
        assert whole == [each for each in ends[1:] if each <= end]
        assert [view.end_position for view in scan_batches(log[:end], 0, end)] == whole
        assert (view_batch(log, 0, end) is None) == (end < ends[1])


def test_a_log_of_all_formats_gives_all_its_records_or_those_between_two_places() -> None:
    log = mixed_log()

    views = views_of(log)

    assert [view.magic for view in views] == [0, 0, 1, 1, 2, 2, 2]
    assert all(batch_is_valid(log, view) for view in views)
    assert offsets_in(log) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 20]
    assert list(scan_batches(log, views[2].position, views[4].end_position)) == views[2:5]


def test_an_offset_is_found_in_the_first_batch_that_reaches_it() -> None:
    log = mixed_log()

    for target in range(-1, 22):
        assert find_offset(log, 0, len(log), target) == found_by_scan(log, 0, len(log), target)


@PROPERTY
@given(st.data())
def test_finding_is_scanning_from_anywhere_to_anywhere(data: st.DataObject) -> None:
    log = mixed_log()
    log += build_records([Record(25, -1, None, None)], magic=0, base_offset=25)
    starts = [view.position for view in scan_batches(log, 0, len(log))]
    start = data.draw(st.sampled_from(starts))
    end = data.draw(st.integers(start, len(log)))
    target = data.draw(st.integers(-1, 30))

    assert find_offset(log, start, end, target) == found_by_scan(log, start, end, target)
    assert find_offset(log[:end], start, end, target) == found_by_scan(log, start, end, target)


def test_the_smallest_message_is_found_at_the_very_end() -> None:
    assert len(SMALLEST_MESSAGE) == 26

    assert find_offset(SMALLEST_MESSAGE, 0, 26, 9) == (9, 0, 26)
    assert find_offset(SMALLEST_MESSAGE, 0, 26, 10) is None
    assert find_offset(SMALLEST_MESSAGE, 0, 25, 9) is None
    assert find_offset(b"", 0, 0, 0) is None
    behind = SMALLEST_MESSAGE + build_records([Record(10, -1, None, b"cut off")], magic=0, base_offset=10)
    assert find_offset(behind, 0, 52, 10) is None
    assert find_offset(behind, 0, len(behind), 10) == (10, 26, 33)


@pytest.mark.parametrize(
    ("magic", "size"),
    [(2, 48), (2, 13), (2, 0), (2, -1), (0, 13), (0, -(2**31)), (1, 21), (3, 100), (-1, 100), (127, 100)],
)
def test_a_size_or_magic_no_batch_can_have_is_corrupt(magic: int, size: int) -> None:
    log = build_records([record_at(0)], magic=2, base_offset=0)
    position = len(log)
    log += struct.pack(">qiIb100x", 5, size, 0, magic)

    with pytest.raises(KafkaError) as refusal:
        list(scan_batches(log, 0, len(log)))
    assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE
    assert str(position) in str(refusal.value)
    if (magic, size) != (1, 21):
        with pytest.raises(KafkaError):
            find_offset(log, 0, len(log), 5)


@PROPERTY
@given(st.binary(max_size=150), st.integers(-5, 2**62))
def test_garbage_is_corrupt_or_no_whole_batch(garbage: bytes, target: int) -> None:
    for function in (
        lambda: list(scan_batches(garbage, 0, len(garbage))),
        lambda: find_offset(garbage, 0, len(garbage), target),
    ):
        try:
            function()
        except KafkaError as refusal:
            assert refusal.code is ErrorCode.CORRUPT_MESSAGE


def test_a_mapped_file_can_be_closed_after_any_of_it() -> None:
    log = mixed_log()
    with mapped(log) as file:
        assert find_offset(file, 0, len(log), 8) is not None
        view = next(scan_batches(file, 0, len(log)))
        assert batch_is_valid(file, view)
        records = iter_all_records(file, view, max_decompressed_bytes=LIMIT)

    assert [record.offset for record in records] == [0]
