"""Transaction markers: Kafka 2.0.1's own, read and written again."""

from __future__ import annotations

import pytest

from minibroker.protocol.control_records import (
    ControlType,
    EndTxnMarker,
    build_end_txn_marker,
    read_control_type,
    read_end_txn_marker,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import iter_records, read_header
from tests.protocol.golden_logs import golden_batches
from tests.refusals import refusal_of


def test_kafkas_markers_are_built_again_to_the_byte() -> None:
    types = set()
    for _, view, data, records in golden_batches():
        if not view.is_control:
            continue
        marker = read_end_txn_marker(records[0])
        rebuilt = build_end_txn_marker(
            marker.control_type,
            producer_id=view.producer_id,
            producer_epoch=view.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=view.max_timestamp_ms,
            base_offset=view.base_offset,
            leader_epoch=view.partition_leader_epoch,
        )
        assert rebuilt == data
        types.add(marker.control_type)
    assert types == {ControlType.ABORT, ControlType.COMMIT}


def test_a_marker_is_a_transactional_control_batch_of_one_record() -> None:
    batch = build_end_txn_marker(
        ControlType.ABORT, producer_id=7, producer_epoch=2, coordinator_epoch=11, timestamp_ms=99
    )

    header = read_header(batch)
    (record,) = iter_records(batch, max_decompressed_bytes=1000)
    assert (header.is_control, header.is_transactional, header.records_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, -1)
    assert record == Record(0, 99, b"\0\0\0\0", b"\0\0\0\0\0\x0b")
    assert read_end_txn_marker(record) == EndTxnMarker(ControlType.ABORT, 11)


def test_a_transaction_does_not_end_in_an_unknown_way() -> None:
    with pytest.raises(ValueError, match="COMMIT or ABORT"):
        build_end_txn_marker(ControlType.UNKNOWN, producer_id=7, producer_epoch=2, coordinator_epoch=0, timestamp_ms=0)


@pytest.mark.parametrize(
    ("key", "control_type"),
    [
        (b"\0\0\0\0", ControlType.ABORT),
        (b"\0\0\0\1", ControlType.COMMIT),
        (b"\0\1\0\1 of a later version", ControlType.COMMIT),
        (b"\0\0\0\2", ControlType.UNKNOWN),
        (b"\0\0\xff\xff", ControlType.UNKNOWN),
    ],
)
def test_types_of_later_versions_are_unknown(key: bytes, control_type: ControlType) -> None:
    assert read_control_type(key) is control_type


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_a_key_without_a_type_is_corrupt(key: bytes | None) -> None:
    assert refusal_of(lambda: read_control_type(key)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0\0\0\0\0"),
        (b"\0\0\0\1", b"\xff\xff\0\0\0\0"),
        (b"\0\0\0\5", b"\0\0\0\0\0\0"),
    ],
)
def test_a_record_that_ends_no_transaction_is_no_marker(key: bytes, value: bytes | None) -> None:
    assert refusal_of(lambda: read_end_txn_marker(Record(0, 0, key, value))) is ErrorCode.CORRUPT_MESSAGE
