"""The producers of a log and their transactions: markers, stability, expiry, truncation."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from minibroker.protocol.batches import scan_batches
from minibroker.protocol.control_records import ControlType, EndTxnMarker, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record_batch import build_empty_batch, read_header
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.transaction_index import CompletedTxn
from minibroker.storage.producers.producer_append import ProducerAppendInfo
from tests.storage.producers import EXPIRATION_MS, PID, append, end_transaction, manager_of, unstable


def test_a_transaction_is_unstable_until_the_high_watermark_passed_its_marker(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=10, count=5, is_transactional=True)
    append(manager, 5, offset=15, is_transactional=True)
    assert (unstable(manager), manager.first_undecided_offset) == (10, 10)

    assert end_transaction(manager, offset=16) == (CompletedTxn(PID, 10, 16, is_aborted=False), 17)

    assert (unstable(manager), manager.first_undecided_offset) == (10, None)
    manager.on_high_watermark_updated(16)
    assert unstable(manager) == 10
    manager.on_high_watermark_updated(17)
    assert unstable(manager) is None


def test_the_last_stable_offset_is_where_the_first_open_transaction_begins(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, producer_id=1, is_transactional=True)
    append(manager, 0, offset=1, producer_id=2, is_transactional=True)
    append(manager, 0, offset=2, producer_id=3, is_transactional=True)

    abort = ControlType.ABORT
    assert end_transaction(manager, offset=3, producer_id=2, control_type=abort) == (CompletedTxn(2, 1, 3, True), 0)
    assert end_transaction(manager, offset=4, producer_id=1, control_type=abort) == (CompletedTxn(1, 0, 4, True), 2)
    manager.on_high_watermark_updated(5)
    assert unstable(manager) == 2
    assert end_transaction(manager, offset=5, producer_id=3)[1] == 6


def test_the_first_unstable_offset_is_that_of_many_open_transactions(tmp_path: Path) -> None:
    chance = random.Random(3)
    manager = manager_of(tmp_path)
    begun: dict[int, int] = {}
    for offset in range(500):
        if begun and chance.random() < 0.5:
            producer_id = chance.choice(list(begun))
            end_transaction(manager, offset=offset, producer_id=producer_id)
            del begun[producer_id]
        else:
            begun[offset] = offset
            append(manager, 0, offset=offset, producer_id=offset, is_transactional=True)
        manager.on_high_watermark_updated(offset + 1)
        assert unstable(manager) == min(begun.values(), default=None)


def test_a_marker_without_records_ends_where_it_begins(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)

    completed, last_stable_offset = end_transaction(manager, offset=4, control_type=ControlType.ABORT)

    assert completed == CompletedTxn(PID, 4, 4, is_aborted=True)
    assert last_stable_offset == 5
    assert unstable(manager) == 4


def test_a_marker_ends_what_its_own_append_began(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    info = manager.prepare_update(PID, is_from_client=False)
    info.append_data(0, 0, 1, 0, 20, 21, True)
    completed = info.append_marker(EndTxnMarker(ControlType.ABORT, 0), epoch=0, offset=22)
    manager.update(info)

    assert manager.complete_txn(completed) == 23
    assert completed == CompletedTxn(PID, 20, 22, is_aborted=True)


def test_an_old_coordinator_is_fenced(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    end_transaction(manager, offset=0, coordinator_epoch=5)

    with pytest.raises(KafkaError) as refusal:
        end_transaction(manager, offset=1, coordinator_epoch=4)
    assert refusal.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    end_transaction(manager, offset=1, coordinator_epoch=5)


def test_a_marker_of_an_older_epoch_is_fenced_even_if_no_client_wrote_it(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, epoch=3)

    with pytest.raises(KafkaError) as refusal:
        end_transaction(manager, offset=1, epoch=2)
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_with_a_new_epoch_forgets_the_sequences(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, count=3, is_transactional=True)
    end_transaction(manager, offset=3, epoch=1, control_type=ControlType.ABORT)

    entry = manager.last_entry(PID)
    assert entry is not None
    assert (entry.epoch, len(entry.batches)) == (1, 0)
    append(manager, 0, offset=4, epoch=1, is_transactional=True)


def test_a_plain_write_amid_a_transaction_is_refused(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, is_transactional=True)

    with pytest.raises(KafkaError) as refusal:
        append(manager, 1, offset=1)
    assert refusal.value.code is ErrorCode.INVALID_TXN_STATE
    append(manager, 1, offset=1, is_transactional=True)


def test_the_place_of_an_append_is_noted_for_the_transaction_it_began(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    info = manager.prepare_update(PID, is_from_client=True)
    info.append_data(0, 0, 1, 0, 20, 21, True)
    info.note_first_offset(LogOffsetMetadata(19, 0, 4000))
    info.note_first_offset(LogOffsetMetadata(21, 0, 4200))
    assert info.started[0].first_offset == LogOffsetMetadata(20)
    info.note_first_offset(LogOffsetMetadata(20, 0, 4096))
    manager.update(info)

    assert manager.first_unstable_offset == LogOffsetMetadata(20, 0, 4096)


def test_a_control_batch_is_read_for_its_marker(tmp_path: Path) -> None:
    batch = build_end_txn_marker(
        ControlType.ABORT, producer_id=PID, producer_epoch=2, coordinator_epoch=9, timestamp_ms=5, base_offset=40
    )
    (view,) = scan_batches(batch, 0, len(batch))
    manager = manager_of(tmp_path)
    info = manager.prepare_update(PID, is_from_client=False)

    assert info.append(view, batch) == CompletedTxn(PID, 40, 40, is_aborted=True)
    assert (info.epoch, info.coordinator_epoch) == (2, 9)


def test_a_control_batch_that_compaction_emptied_ends_nothing(tmp_path: Path) -> None:
    marker = build_end_txn_marker(
        ControlType.ABORT, producer_id=PID, producer_epoch=2, coordinator_epoch=9, timestamp_ms=5
    )
    batch = build_empty_batch(read_header(marker))
    (view,) = scan_batches(batch, 0, len(batch))
    info = manager_of(tmp_path).prepare_update(PID, is_from_client=False)

    assert info.append(view, batch) is None
    assert isinstance(info, ProducerAppendInfo)
    assert (info.epoch, info.started) == (-1, [])


def test_idle_producers_expire_but_not_amid_a_transaction(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, producer_id=1, timestamp_ms=1000)
    append(manager, 0, offset=1, producer_id=2, timestamp_ms=1001)
    append(manager, 0, offset=2, producer_id=3, timestamp_ms=1000, is_transactional=True)

    manager.remove_expired(now_ms=1000 + EXPIRATION_MS)

    assert set(manager.producers) == {2, 3}


def test_a_later_log_start_evicts_who_wrote_nothing_after_it(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, producer_id=1, is_transactional=True)
    append(manager, 0, offset=1, producer_id=2)
    append(manager, 1, offset=9, producer_id=2)
    append(manager, 0, offset=10, producer_id=3, is_transactional=True)

    manager.truncate_head(5)

    assert set(manager.producers) == {2, 3}
    assert unstable(manager) == 10
    manager.truncate_head(50)
    assert manager.is_empty
    assert manager.map_end_offset == 50


def test_a_truncated_state_is_empty_on_disk_too(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, is_transactional=True)
    manager.take_snapshot()
    (tmp_path / f"{0:020d}.log").touch()

    manager.truncate()

    assert manager.is_empty
    assert (unstable(manager), manager.map_end_offset) == (None, 0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".log"]
