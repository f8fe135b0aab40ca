"""The producers of a log: sequences, epochs, duplicates, transactions, expiry, truncation."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

from minibroker.protocol.control_records import ControlType, EndTxnMarker, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch, build_empty_batch, read_header
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.transaction_index import CompletedTxn
from minibroker.storage.producers.producer_append import BatchMetadata
from minibroker.storage.producers.producer_snapshot import SnapshotEntry, write_snapshot
from minibroker.storage.producers.producer_state import ProducerStateManager
from tests.protocol.batch_bytes import views_of
from tests.refusals import refusal_of
from tests.storage.producers import EXPIRATION_MS, PID, append, end_transaction, manager_of, unstable


@pytest.fixture
def manager(tmp_path: Path) -> ProducerStateManager:
    return manager_of(tmp_path)


def refused(
    manager: ProducerStateManager, first_sequence: int, *, epoch: int = 0, remembers: bool = False
) -> ErrorCode:
    return refusal_of(lambda: append(manager, first_sequence, offset=1000, epoch=epoch, remembers=remembers))


def batch_of(offset: int, *, epoch: int) -> bytearray:
    records = [Record(offset, 0, None, b"")]
    return build_batch(records, producer_id=PID, producer_epoch=epoch, base_sequence=0, is_transactional=True)


def marker_of(offset: int, *, epoch: int, coordinator_epoch: int) -> bytearray:
    return build_end_txn_marker(
        ControlType.ABORT,
        producer_id=PID,
        producer_epoch=epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=0,
        base_offset=offset,
    )


def test_the_first_of_many_open_transactions_is_the_first_unstable_and_the_last_stable_offset(tmp_path: Path) -> None:
    chance = random.Random(3)
    manager = manager_of(tmp_path)
    begun: set[int] = set()  # by the first offset, which is the producer's id too
    for offset in range(500):
        if begun and chance.random() < 0.5:
            first = chance.choice(sorted(begun))
            begun.remove(first)
            is_aborted = chance.random() < 0.5
            how = ControlType.ABORT if is_aborted else ControlType.COMMIT
            ended = end_transaction(manager, offset=offset, producer_id=first, control_type=how)
            assert ended == (CompletedTxn(first, first, offset, is_aborted), min(begun, default=offset + 1))
        else:
            begun.add(offset)
            append(manager, 0, offset=offset, producer_id=offset, is_transactional=True)
        manager.on_high_watermark_updated(offset + 1)
        assert unstable(manager) == min(begun, default=None)


def test_a_marker_without_records_ends_where_it_begins(manager: ProducerStateManager) -> None:
    completed, last_stable_offset = end_transaction(manager, offset=4, control_type=ControlType.ABORT)

    assert completed == CompletedTxn(PID, 4, 4, is_aborted=True)
    assert last_stable_offset == 5
    assert unstable(manager) == 4


def test_a_marker_ends_a_transaction_of_its_own_append(manager: ProducerStateManager) -> None:
    info = manager.prepare_update(PID, is_from_client=False)
    info.append_data(0, 0, 1, 0, 20, 21, True)
    completed = info.append_marker(EndTxnMarker(ControlType.ABORT, 0), epoch=0, offset=22, timestamp_ms=0)
    manager.update(info)

    assert manager.complete_txn(completed) == 23
    assert completed == CompletedTxn(PID, 20, 22, is_aborted=True)


def test_the_place_of_an_append_is_noted_for_the_transaction_it_began(manager: ProducerStateManager) -> None:
    info = manager.prepare_update(PID, is_from_client=True)
    info.append_data(0, 0, 1, 0, 20, 21, True)
    info.note_first_offset(LogOffsetMetadata(19, 0, 4000))
    info.note_first_offset(LogOffsetMetadata(21, 0, 4200))
    assert info.started[0].first_offset == LogOffsetMetadata(20)
    info.note_first_offset(LogOffsetMetadata(20, 0, 4096))
    manager.update(info)

    assert manager.first_unstable_offset == LogOffsetMetadata(20, 0, 4096)


def test_a_control_batch_is_read_for_its_marker_and_one_that_compaction_emptied_ends_nothing(tmp_path: Path) -> None:
    batch = build_end_txn_marker(
        ControlType.ABORT, producer_id=PID, producer_epoch=2, coordinator_epoch=9, timestamp_ms=5, base_offset=40
    )
    emptied = build_empty_batch(read_header(batch))
    manager = manager_of(tmp_path)
    read, read_empty = (manager.prepare_update(PID, is_from_client=False) for _ in range(2))

    assert read.append(views_of(batch)[0], batch) == CompletedTxn(PID, 40, 40, is_aborted=True)
    assert (read.epoch, read.coordinator_epoch) == (2, 9)
    assert read_empty.append(views_of(emptied)[0], emptied) is None
    assert (read_empty.epoch, read_empty.started) == (-1, [])


def test_a_later_log_start_evicts_who_wrote_nothing_after_it(manager: ProducerStateManager) -> None:
    append(manager, 0, offset=0, producer_id=1, is_transactional=True)
    append(manager, 0, offset=1, producer_id=2)
    append(manager, 1, offset=9, producer_id=2)
    append(manager, 0, offset=10, producer_id=3, is_transactional=True)

    manager.truncate_head(5)

    assert set(manager.producers) == {2, 3}
    assert unstable(manager) == 10
    manager.truncate_head(50)
    assert not manager.producers
    assert (unstable(manager), manager.map_end_offset) == (None, 50)


def test_a_truncated_state_is_empty_on_disk_too(manager: ProducerStateManager, tmp_path: Path) -> None:
    append(manager, 0, offset=0, is_transactional=True)
    manager.take_snapshot()
    (tmp_path / f"{0:020d}.log").touch()

    manager.truncate()

    assert manager.is_empty
    assert (unstable(manager), manager.map_end_offset) == (None, 0)
    assert [path.suffix for path in tmp_path.iterdir()] == [".log"]


def test_batches_of_one_append_follow_each_other_before_they_count(manager: ProducerStateManager) -> None:
    info = manager.prepare_update(PID, is_from_client=True)
    info.append_data(0, 0, 4, 0, 0, 4, False)
    info.append_data(0, 5, 9, 0, 5, 9, False)
    with pytest.raises(KafkaError, match="Out of order"):
        info.append_data(0, 11, 11, 0, 10, 10, False)

    assert PID not in manager.producers
    manager.update(info)
    entry = manager.producers[PID]
    assert list(entry.batches) == [BatchMetadata(4, 4, 4, 0), BatchMetadata(9, 9, 4, 0)]


def test_a_new_epoch_within_an_append_forgets_the_sequences_before_it(manager: ProducerStateManager) -> None:
    info = manager.prepare_update(PID, is_from_client=False)
    info.append_data(0, 0, 4, 0, 0, 4, False)
    info.append_data(1, 0, 2, 0, 5, 7, False)
    manager.update(info)

    entry = manager.producers[PID]
    assert list(entry.batches) == [BatchMetadata(2, 7, 2, 0)]


def test_replicated_batches_are_not_checked_again(manager: ProducerStateManager) -> None:
    append(manager, 70, offset=0, epoch=5, is_from_client=False, is_replicated=True)
    append(manager, 90, offset=1, epoch=5, is_from_client=False, is_replicated=True)
    append(manager, 3, offset=2, epoch=4, is_from_client=False, is_replicated=True)

    entry = manager.producers[PID]
    assert (entry.epoch, entry.last_sequence) == (4, 3)


def test_offset_commits_have_an_epoch_but_no_sequence(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, "__consumer_offsets")
    append(manager, -1, offset=0, count=3, epoch=2, is_transactional=True)
    append(manager, -1, offset=3, epoch=2, is_transactional=True)

    assert refused(manager, -1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    entry = manager.producers[PID]
    assert (entry.last_sequence, entry.last_offset, entry.current_txn_first_offset) == (-1, 3, 0)


def last_known(manager: ProducerStateManager, *, remembers: bool) -> tuple[int, int] | None:
    entry = (manager.producers_and_remembered if remembers else manager.producers).get(PID)
    return None if entry is None else (entry.epoch, entry.last_sequence)


def test_a_producer_before_the_log_start_is_remembered_until_it_expires(
    manager: ProducerStateManager, tmp_path: Path
) -> None:
    append(manager, 0, offset=0, count=3, is_transactional=True)
    append(manager, 0, offset=3, producer_id=8)

    manager.truncate_head(3)

    assert last_known(manager, remembers=False) is None
    assert last_known(manager, remembers=True) == (0, 2)
    assert unstable(manager) is None
    manager.take_snapshot()
    again = manager_of(tmp_path)
    again.truncate_and_reload(3, 4, now_ms=0)
    assert (last_known(again, remembers=False), last_known(again, remembers=True)) == (None, (0, 2))
    assert set(again.producers) == {8}
    again.remove_expired(EXPIRATION_MS)
    assert last_known(again, remembers=True) is None
    append(manager, 3, offset=4, is_transactional=True, remembers=True)
    assert last_known(manager, remembers=False) == (0, 3)
    assert unstable(manager) == 4  # what is left of the transaction


def test_a_marker_leaves_a_remembered_producer_its_sequence(manager: ProducerStateManager) -> None:
    append(manager, 0, offset=0, count=3, is_transactional=True)
    manager.truncate_head(3)

    end_transaction(manager, offset=3, coordinator_epoch=2)

    assert manager.producers_and_remembered[PID].last_sequence == 2
    assert refused(manager, 3) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert refused(manager, 4, remembers=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(manager, 3, offset=4, remembers=True)
    assert manager.producers[PID].coordinator_epoch == 2


@pytest.mark.parametrize("remembers", [False, True], ids=["as kafka 2.0.1", "as later kafka"])
def test_the_epoch_of_a_marker_fences_until_it_expires(
    manager: ProducerStateManager, tmp_path: Path, remembers: bool
) -> None:
    append(manager, 0, offset=0, count=3, is_transactional=True, timestamp_ms=-5 * EXPIRATION_MS)
    end_transaction(manager, offset=3, epoch=1, coordinator_epoch=2, timestamp_ms=0)
    last_ms = EXPIRATION_MS - 1

    manager.remove_expired(last_ms)
    manager.truncate_head(4)
    restarted = manager_of(tmp_path)
    restarted.truncate_and_reload(4, 4, now_ms=last_ms)

    for each in (manager, restarted):
        for first_sequence in (0, 3):
            assert refused(each, first_sequence, remembers=remembers) is ErrorCode.INVALID_PRODUCER_EPOCH
        end = partial(end_transaction, each, offset=4)
        assert refusal_of(end) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert refusal_of(partial(end, epoch=1, coordinator_epoch=1)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        each.remove_expired(EXPIRATION_MS)
        append(each, 0, offset=4, remembers=remembers)


def test_a_marker_of_which_the_time_is_unknown_fences_from_the_start_on(tmp_path: Path) -> None:
    """Kafka 2.0.1 writes down no time of a marker."""
    marker_alone = SnapshotEntry(PID, 1, -1, -1, 0, -1, 0, -1)
    write_snapshot(tmp_path / f"{4:020d}.snapshot", [marker_alone])
    manager = manager_of(tmp_path)
    manager.truncate_and_reload(0, 4, now_ms=10**12)

    manager.remove_expired(10**12 + EXPIRATION_MS - 1)
    assert refused(manager, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    manager.remove_expired(10**12 + EXPIRATION_MS)
    append(manager, 0, offset=4)


def test_a_log_may_have_batches_of_a_producer_that_was_fenced_before(manager: ProducerStateManager) -> None:
    """Kafka 2.0.1 forgets markers: such a log is replayed as it is."""
    batches = [
        batch_of(0, epoch=0),
        marker_of(1, epoch=1, coordinator_epoch=5),
        batch_of(2, epoch=0),
        marker_of(3, epoch=0, coordinator_epoch=4),
    ]
    for batch in batches:
        manager.replay(views_of(batch)[0], batch)

    assert (manager.map_end_offset, manager.first_undecided_offset) == (4, None)


def test_a_marker_of_a_later_epoch_fences_a_remembered_producer(manager: ProducerStateManager) -> None:
    append(manager, 0, offset=0, count=3, is_transactional=True)
    manager.truncate_head(3)

    end_transaction(manager, offset=3, epoch=1)

    assert refused(manager, 3, remembers=True) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(manager, 3, epoch=1, remembers=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(manager, 0, offset=4, epoch=1, remembers=True)
