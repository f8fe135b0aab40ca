"""Producers with an id, and their transactions, in a log."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    append,
    batch_of,
    end_transaction,
    open_log,
    refusal_of,
    send,
    send_transactional,
    values_of,
)


class TestProducers:
    def test_a_batch_sent_again_gets_its_offsets_of_the_first_time(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        first = send(log, batch_of(["a", "b"], producer_id=1, sequence=0))
        send(log, batch_of(["c"], producer_id=1, sequence=2))

        again = send(log, batch_of(["a", "b"], producer_id=1, sequence=0))

        assert again.is_duplicate
        assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset) == (0, 1)
        assert values_of(log) == ["a", "b", "c"]

    def test_a_gap_in_the_sequence_is_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        send(log, batch_of(["a"], producer_id=1, sequence=0))

        gap = batch_of(["c"], producer_id=1, sequence=2)

        assert refusal_of(lambda: send(log, gap)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(log, batch_of(["b"], producer_id=1, sequence=1)).first_offset == 1

    def test_an_unknown_producer_must_begin_at_0(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)

        late = batch_of(["a"], producer_id=1, sequence=5)

        assert refusal_of(lambda: send(log, late)) is ErrorCode.UNKNOWN_PRODUCER_ID

    def test_an_older_epoch_is_fenced(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        send(log, batch_of(["a"], producer_id=1, sequence=0, epoch=2))

        zombie = batch_of(["b"], producer_id=1, sequence=1, epoch=1)

        assert refusal_of(lambda: send(log, zombie)) is ErrorCode.INVALID_PRODUCER_EPOCH

    def test_a_producer_is_known_again_after_a_restart(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        first = send(log, batch_of(["a"], producer_id=1, sequence=0))
        log.close()

        reopened = open_log(tmp_path, is_after_clean_stop=True)
        again = send(reopened, batch_of(["a"], producer_id=1, sequence=0))
        following = send(reopened, batch_of(["b"], producer_id=1, sequence=1))

        assert (again.is_duplicate, again.first_offset) == (True, first.first_offset)
        assert following.first_offset == 1


class TestTransactions:
    def test_the_last_stable_offset_waits_for_the_open_transaction(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        append(log, "plain")
        send_transactional(log, 1, 0, "open")
        append(log, "behind it")
        log.update_high_watermark(3)

        assert (log.last_stable_offset, log.high_watermark) == (1, 3)

        end_transaction(log, 1, is_commit=True)
        assert log.last_stable_offset == 1, "the marker is not committed yet"
        log.update_high_watermark(4)
        assert log.last_stable_offset == 4

    def test_aborted_transactions_come_with_a_read_that_asks(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        send_transactional(log, 1, 0, "aborted")
        send_transactional(log, 2, 0, "committed")
        end_transaction(log, 1, is_commit=False)
        end_transaction(log, 2, is_commit=True)

        asked = log.read(0, 10_000, include_aborted_txns=True).aborted_transactions
        unasked = log.read(0, 10_000).aborted_transactions

        assert unasked is None
        assert asked is not None
        assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in asked] == [(1, 0, 2)]

    def test_a_transaction_over_two_segments_is_found_from_the_first(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, SMALL)
        send_transactional(log, 1, 0, "aborted")
        log.roll(NOW_MS)
        end_transaction(log, 1, is_commit=False)
        append(log, "after")

        in_first = log.read(0, 10_000, include_aborted_txns=True)
        behind = log.read(2, 10_000, include_aborted_txns=True)

        assert [txn.producer_id for txn in in_first.aborted_transactions or ()] == [1]
        assert behind.aborted_transactions == []

    def test_at_the_end_of_the_log_the_list_is_empty_not_absent(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)

        assert log.read(0, 100, include_aborted_txns=True).aborted_transactions == []
        assert log.read(0, 100).aborted_transactions is None

    def test_markers_of_an_older_coordinator_are_refused(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        end_transaction(log, 1, is_commit=True, coordinator_epoch=5)

        code = refusal_of(lambda: end_transaction(log, 1, is_commit=False, coordinator_epoch=4))

        assert code is ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def test_an_abort_that_cannot_be_indexed_is_not_in_the_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        log = open_log(tmp_path)
        send_transactional(log, 1, 0, "aborted")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr("minibroker.storage.index.transaction_index.TransactionIndex.append", full)
        with pytest.raises(OSError, match="no space"):
            end_transaction(log, 1, is_commit=False)
        monkeypatch.undo()
        log.update_high_watermark(1)

        assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
        end_transaction(log, 1, is_commit=False)
        aborted = log.read(0, 10_000, include_aborted_txns=True).aborted_transactions
        assert [txn.producer_id for txn in aborted or ()] == [1]
