"""Whether a producer may append: sequences, epochs, duplicates."""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.producers.producer_append import BatchMetadata
from minibroker.storage.producers.producer_state import ProducerStateManager
from tests.storage.producers import MAX_SEQUENCE, PID, append, end_transaction, manager_of


def refusal_of(manager: ProducerStateManager, first_sequence: int, *, epoch: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        append(manager, first_sequence, offset=1000, epoch=epoch)
    return refusal.value.code


def test_sequences_follow_each_other(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, count=5)
    append(manager, 5, offset=5, count=3)

    entry = manager.last_entry(PID)
    assert entry is not None
    assert (entry.last_sequence, entry.last_offset, entry.epoch) == (7, 7, 0)
    assert manager.map_end_offset == 8


@pytest.mark.parametrize("first_sequence", [0, 4, 6, 100])
def test_a_gap_or_a_step_back_is_out_of_order(tmp_path: Path, first_sequence: int) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, count=5)

    assert refusal_of(manager, first_sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_refused_append_changes_nothing(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, count=5)
    refusal_of(manager, 9)
    refusal_of(manager, 3, epoch=1)

    append(manager, 5, offset=5)


def test_batches_of_one_append_follow_each_other_before_they_count(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    info = manager.prepare_update(PID, is_from_client=True)
    info.append_data(0, 0, 4, 0, 0, 4, False)
    info.append_data(0, 5, 9, 0, 5, 9, False)
    with pytest.raises(KafkaError, match="Out of order"):
        info.append_data(0, 11, 11, 0, 10, 10, False)

    assert manager.last_entry(PID) is None
    manager.update(info)
    entry = manager.last_entry(PID)
    assert entry is not None
    assert list(entry.batches) == [BatchMetadata(4, 4, 4, 0), BatchMetadata(9, 9, 4, 0)]


def test_sequences_wrap_around_to_zero(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, MAX_SEQUENCE - 1, offset=0, count=1, is_from_client=False)
    append(manager, MAX_SEQUENCE, offset=1, count=1)
    append(manager, 0, offset=2, count=2)

    assert refusal_of(manager, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_across_the_wrap_around_is_known_again(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, MAX_SEQUENCE - 3, offset=0, count=2, is_from_client=False)
    append(manager, MAX_SEQUENCE - 1, offset=10, count=5)
    append(manager, 3, offset=15, count=1)

    entry = manager.last_entry(PID)
    assert entry is not None
    duplicate = entry.find_duplicate(0, MAX_SEQUENCE - 1, 2)
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (10, 14)


def test_the_last_five_batches_are_known_again(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    for number in range(7):
        append(manager, 10 * number, offset=100 * number, count=10, timestamp_ms=number)

    entry = manager.last_entry(PID)
    assert entry is not None
    found = [entry.find_duplicate(0, 10 * number, 10 * number + 9) for number in range(7)]
    assert found[:2] == [None, None]
    assert [batch.first_offset for batch in found[2:] if batch is not None] == [200, 300, 400, 500, 600]
    assert entry.find_duplicate(0, 60, 68) is None
    assert entry.find_duplicate(1, 60, 69) is None


def test_a_new_epoch_starts_at_zero(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, count=5)

    assert refusal_of(manager, 5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(manager, 0, offset=5, epoch=1)
    append(manager, 1, offset=6, epoch=1)
    entry = manager.last_entry(PID)
    assert entry is not None
    assert len(entry.batches) == 2
    assert entry.find_duplicate(0, 0, 4) is None


def test_a_new_epoch_within_an_append_forgets_the_sequences_before_it(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    info = manager.prepare_update(PID, is_from_client=False)
    info.append_data(0, 0, 4, 0, 0, 4, False)
    info.append_data(1, 0, 2, 0, 5, 7, False)
    manager.update(info)

    entry = manager.last_entry(PID)
    assert entry is not None
    assert list(entry.batches) == [BatchMetadata(2, 7, 2, 0)]


def test_an_older_epoch_is_fenced(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 0, offset=0, epoch=3)

    assert refusal_of(manager, 1, epoch=2) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_nothing_is_known_of_starts_at_zero(tmp_path: Path) -> None:
    assert refusal_of(manager_of(tmp_path), 5) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_a_producer_of_which_only_a_marker_is_left_starts_at_zero(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    end_transaction(manager, offset=0, epoch=1)

    assert refusal_of(manager, 5, epoch=1) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert refusal_of(manager, 0, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(manager, 0, offset=1, epoch=1)


def test_what_a_leader_replicated_is_not_checked_again(tmp_path: Path) -> None:
    manager = manager_of(tmp_path)
    append(manager, 70, offset=0, epoch=5, is_from_client=False)
    append(manager, 90, offset=1, epoch=5, is_from_client=False)
    append(manager, 3, offset=2, epoch=4, is_from_client=False)

    entry = manager.last_entry(PID)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence) == (4, 3)


def test_offset_commits_have_an_epoch_but_no_sequence(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, "__consumer_offsets")
    append(manager, -1, offset=0, count=3, epoch=2, is_transactional=True)
    append(manager, -1, offset=3, epoch=2, is_transactional=True)

    assert refusal_of(manager, -1, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    entry = manager.last_entry(PID)
    assert entry is not None
    assert (entry.last_sequence, entry.last_offset, entry.current_txn_first_offset) == (-1, 3, 0)
