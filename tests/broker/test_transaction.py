"""One transactional id as a table: what may follow what, and who is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.broker.transaction.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    MAX_EPOCH,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREVIOUS_STATES,
    ProducerIdentity,
    Transaction,
    TransactionMetadata,
    TransactionState,
    new_metadata,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition

NOW_MS = 1_000_000
TIMEOUT_MS = 60_000
PID = 7
PRESENT = ProducerIdentity(PID, 3)
NEXT_PID = 8
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def transaction_in(state: TransactionState, *, epoch: int = 3, pending: bool = False) -> Transaction:
    partitions = frozenset({A0}) if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else frozenset()
    metadata = TransactionMetadata(PID, epoch, TIMEOUT_MS, state, partitions, NOW_MS, NOW_MS)
    transaction = Transaction("t", metadata)
    if pending:
        transaction.pending = metadata
    return transaction


def initialize(
    transaction: Transaction, expected: tuple[int, int] | None = None, *, now_ms: int = NOW_MS
) -> TransactionMetadata:
    identity = None if expected is None else ProducerIdentity(*expected)
    transaction.check_initialize(identity)
    return transaction.prepare_identity(TIMEOUT_MS, identity, lambda: NEXT_PID, now_ms)


def refusal_of(ask: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        ask()
    return refusal.value.code


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("target", TransactionState)
def test_only_the_table_says_what_may_follow(state: TransactionState, target: TransactionState) -> None:
    transaction = transaction_in(state)

    if state in PREVIOUS_STATES[target]:
        assert transaction._prepare(target, NOW_MS).state is target
    else:
        with pytest.raises(RuntimeError, match="cannot become"):
            transaction._prepare(target, NOW_MS)


def test_a_change_counts_only_once_it_is_complete() -> None:
    transaction = transaction_in(EMPTY)

    transaction.prepare_add_partitions(PRESENT, frozenset({A0}), NOW_MS + 5)
    assert (transaction.state, transaction.metadata.partitions) == (EMPTY, frozenset())
    transaction.complete()

    assert (transaction.state, transaction.metadata.partitions) == (ONGOING, {A0})
    assert (transaction.metadata.start_ms, transaction.metadata.last_update_ms) == (NOW_MS + 5, NOW_MS + 5)


def test_a_change_that_was_not_written_down_is_as_if_it_never_was() -> None:
    transaction = transaction_in(ONGOING)
    before = transaction.metadata

    transaction.prepare_end(PRESENT, is_commit=True, now_ms=NOW_MS)
    transaction.discard_pending()

    assert transaction.metadata == before
    assert transaction.prepare_end(PRESENT, is_commit=False, now_ms=NOW_MS) is not None


def test_a_new_id_begins_with_epoch_0_and_goes_up_by_one() -> None:
    transaction = Transaction("t", new_metadata(PID, TIMEOUT_MS, NOW_MS))

    epochs = []
    for _ in range(3):
        initialize(transaction)
        transaction.complete()
        epochs.append((transaction.metadata.producer_id, transaction.metadata.producer_epoch))

    assert epochs == [(PID, 0), (PID, 1), (PID, 2)]


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_new_identity_leaves_nothing_of_the_old_transaction(state: TransactionState) -> None:
    following = initialize(transaction_in(state), now_ms=NOW_MS + 1)

    assert following[:7] == (PID, 4, TIMEOUT_MS, EMPTY, frozenset(), NOW_MS + 1, -1)


@pytest.mark.parametrize(("state", "pending"), [(PREPARE_COMMIT, False), (PREPARE_ABORT, False), (EMPTY, True)])
def test_while_markers_are_written_or_a_change_is_pending_nobody_gets_an_identity(
    state: TransactionState, pending: bool
) -> None:
    transaction = transaction_in(state, pending=pending)

    assert refusal_of(lambda: initialize(transaction)) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("epoch", "following"),
    [(MAX_EPOCH - 2, (PID, MAX_EPOCH - 1)), (MAX_EPOCH - 1, (NEXT_PID, 0)), (MAX_EPOCH, (NEXT_PID, 0))],
)
def test_exhausted_epochs_bring_a_new_producer_id(epoch: int, following: tuple[int, int]) -> None:
    assert initialize(transaction_in(EMPTY, epoch=epoch))[:2] == following


@pytest.mark.parametrize(("epoch", "following"), [(3, (PID, 4)), (MAX_EPOCH - 1, (NEXT_PID, 0))])
def test_a_producer_that_goes_on_gets_the_next_identity_and_the_same_when_it_asks_again(
    epoch: int, following: tuple[int, int]
) -> None:
    transaction = transaction_in(EMPTY, epoch=epoch)

    for _ in range(2):
        assert initialize(transaction, (PID, epoch))[:2] == following
        transaction.complete()


@pytest.mark.parametrize("expected", [(PID, 2), (PID, 4), (PID + 5, 3), (-1, MAX_EPOCH - 2)])
def test_a_producer_that_was_shut_out_does_not_come_back(expected: tuple[int, int]) -> None:
    assert refusal_of(lambda: initialize(transaction_in(EMPTY), expected)) is ErrorCode.PRODUCER_FENCED


def test_another_producer_in_between_shuts_out_who_asks_again() -> None:
    transaction = transaction_in(EMPTY)
    for expected in ((PID, 3), None):
        initialize(transaction, expected)
        transaction.complete()

    assert refusal_of(lambda: initialize(transaction, (PID, 3))) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_id_was_forgotten_gets_a_new_one() -> None:
    transaction = Transaction("t", new_metadata(NEXT_PID, TIMEOUT_MS, NOW_MS))

    assert initialize(transaction, (PID, 3))[:2] == (NEXT_PID, 0)


def test_partitions_are_added_to_those_that_are_there() -> None:
    following = transaction_in(ONGOING).prepare_add_partitions(PRESENT, frozenset({A1}), NOW_MS + 9)

    assert following is not None
    assert (following.partitions, following.start_ms, following.last_update_ms) == ({A0, A1}, NOW_MS, NOW_MS + 9)


def test_partitions_that_are_in_the_transaction_need_nothing() -> None:
    transaction = transaction_in(ONGOING)

    assert transaction.prepare_add_partitions(PRESENT, frozenset({A0}), NOW_MS) is None
    assert transaction.pending is None


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (ProducerIdentity(PID + 1, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdentity(PID, 2), ErrorCode.PRODUCER_FENCED),
        (ProducerIdentity(PID, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_the_present_producer_adds_and_ends(producer: ProducerIdentity, error: ErrorCode) -> None:
    transaction = transaction_in(ONGOING)

    assert refusal_of(lambda: transaction.prepare_add_partitions(producer, frozenset({A1}), NOW_MS)) is error
    assert refusal_of(lambda: transaction.prepare_end(producer, is_commit=True, now_ms=NOW_MS)) is error


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_while_markers_are_written_nothing_is_added(state: TransactionState) -> None:
    transaction = transaction_in(state)

    refusal = refusal_of(lambda: transaction.prepare_add_partitions(PRESENT, frozenset({A1}), NOW_MS))

    assert refusal is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(("is_commit", "state"), [(True, PREPARE_COMMIT), (False, PREPARE_ABORT)])
def test_an_ongoing_transaction_is_decided_with_its_partitions(is_commit: bool, state: TransactionState) -> None:
    following = transaction_in(ONGOING).prepare_end(PRESENT, is_commit=is_commit, now_ms=NOW_MS + 1)

    assert following is not None
    assert (following.state, following.partitions, following.start_ms) == (state, {A0}, NOW_MS)


@pytest.mark.parametrize(
    ("state", "is_commit", "error"),
    [
        (EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (EMPTY, False, ErrorCode.INVALID_TXN_STATE),
        (PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_COMMIT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_transaction_ends_once(state: TransactionState, is_commit: bool, error: ErrorCode) -> None:
    transaction = transaction_in(state)

    assert refusal_of(lambda: transaction.prepare_end(PRESENT, is_commit=is_commit, now_ms=NOW_MS)) is error


@pytest.mark.parametrize(("state", "is_commit"), [(COMPLETE_COMMIT, True), (COMPLETE_ABORT, False)])
def test_an_end_that_is_told_again_is_as_before(state: TransactionState, is_commit: bool) -> None:
    assert transaction_in(state).prepare_end(PRESENT, is_commit=is_commit, now_ms=NOW_MS) is None


@pytest.mark.parametrize(("state", "end"), [(PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)])
def test_a_decided_transaction_completes_as_decided(state: TransactionState, end: TransactionState) -> None:
    following = transaction_in(state).prepare_complete(NOW_MS + 1)

    assert (following.state, following.partitions, following.start_ms) == (end, frozenset(), NOW_MS)


def test_fencing_aborts_under_a_greater_epoch() -> None:
    transaction = transaction_in(ONGOING)

    following = transaction.prepare_fence(NOW_MS)

    assert (following.state, following.producer_epoch, following.partitions) == (PREPARE_ABORT, 4, {A0})


def test_a_fence_that_was_not_written_down_shuts_out_at_once_and_raises_the_epoch_once() -> None:
    transaction = transaction_in(ONGOING)
    transaction.prepare_fence(NOW_MS)
    transaction.discard_pending()

    assert (transaction.state, transaction.metadata.producer_epoch) == (ONGOING, 4)
    assert transaction.prepare_fence(NOW_MS).producer_epoch == 4
    transaction.complete()
    assert not transaction.has_failed_epoch_fence


def test_an_identity_after_a_fence_does_not_know_who_was_before() -> None:
    transaction = transaction_in(ONGOING)
    transaction.prepare_fence(NOW_MS)
    transaction.complete()
    transaction.prepare_complete(NOW_MS)
    transaction.complete()

    assert refusal_of(lambda: initialize(transaction, (PID, 3))) is ErrorCode.PRODUCER_FENCED


def test_an_open_transaction_times_out_after_its_timeout() -> None:
    transaction = transaction_in(ONGOING)

    assert not transaction.is_timed_out(NOW_MS + TIMEOUT_MS)
    assert transaction.is_timed_out(NOW_MS + TIMEOUT_MS + 1)
    assert not transaction_in(ONGOING, pending=True).is_timed_out(NOW_MS + TIMEOUT_MS + 1)


@pytest.mark.parametrize("state", set(TransactionState) - {ONGOING, PREPARE_EPOCH_FENCE})
def test_what_is_not_open_does_not_time_out(state: TransactionState) -> None:
    assert not transaction_in(state).is_timed_out(NOW_MS * 1000)


@pytest.mark.parametrize("state", TransactionState)
def test_only_idle_ids_expire(state: TransactionState) -> None:
    is_idle = state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)

    assert transaction_in(state).is_expired(NOW_MS + 100, 100) is is_idle
    assert not transaction_in(state).is_expired(NOW_MS + 99, 100)
    assert not transaction_in(state, pending=True).is_expired(NOW_MS + 100, 100)
    if is_idle:
        assert transaction_in(state).prepare_dead().state is DEAD
