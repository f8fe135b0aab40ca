"""One transactional id as a table: what may follow what, and who is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from minibroker.broker.transaction.transaction import (
    MAX_EPOCH,
    PREVIOUS_STATES,
    ProducerIdentity,
    Transaction,
    TransactionMetadata,
    new_metadata,
)
from minibroker.broker.transaction.transaction import TransactionState as State
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition

NOW_MS = 1_000_000
TIMEOUT_MS = 60_000
PID = 7
PRESENT = ProducerIdentity(PID, 3)
NEXT_PID = 8
NEXT = lambda: NEXT_PID  # noqa: E731
A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
WITH_PARTITIONS = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
IDLE = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


def transaction_in(state: State, *, epoch: int = 3, pending: bool = False) -> Transaction:
    partitions = frozenset({A0}) if state in WITH_PARTITIONS else frozenset()
    metadata = TransactionMetadata(PID, epoch, TIMEOUT_MS, state, partitions, NOW_MS, NOW_MS)
    transaction = Transaction("t", metadata)
    if pending:
        transaction.pending = metadata
    return transaction


@pytest.fixture
def ongoing() -> Transaction:
    return transaction_in(State.ONGOING)


def initialize(
    transaction: Transaction, expected: tuple[int, int] | None = None, *, now_ms: int = NOW_MS
) -> TransactionMetadata:
    identity = None if expected is None else ProducerIdentity(*expected)
    transaction.check_initialize(identity)
    return transaction.prepare_identity(TIMEOUT_MS, identity, lambda: NEXT_PID, now_ms)


def test_the_last_epoch_gives_way_to_another_producer_id() -> None:
    """As kafka 4.4.0 answered to a producer of transactions v2 whose epoch was 32766."""
    last = ProducerIdentity(PID, MAX_EPOCH - 1)
    transaction = transaction_in(State.ONGOING, epoch=last.epoch)
    end = partial(transaction.prepare_end, last, is_commit=True, now_ms=NOW_MS, client_version=2, next_producer_id=NEXT)

    marked = end()
    assert marked is not None
    assert (marked.producer_id, marked.producer_epoch, marked.next_identity) == (PID, MAX_EPOCH, (NEXT_PID, 0))
    transaction.complete()
    assert refusal_of(end) is ErrorCode.CONCURRENT_TRANSACTIONS
    transaction.prepare_complete(NOW_MS)
    transaction.complete()
    assert end() is None
    assert transaction.metadata.next_identity == (NEXT_PID, 0)
    assert initialize(transaction, last).producer_id == NEXT_PID
    transaction.discard_pending()
    transaction.prepare_add_partitions(ProducerIdentity(NEXT_PID, 0), frozenset({A0}), NOW_MS, 2)
    transaction.complete()
    assert refusal_of(end) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_with_the_last_epoch_is_aborted_under_another_producer_id() -> None:
    transaction = transaction_in(State.ONGOING, epoch=MAX_EPOCH - 1)
    transaction.metadata = transaction.metadata._replace(client_version=2)

    aborted = transaction.prepare_fence(NOW_MS, NEXT)

    assert (aborted.producer_epoch, aborted.last_producer_epoch) == (MAX_EPOCH, MAX_EPOCH - 1)
    assert aborted.next_identity == (NEXT_PID, 0)


def refusal_of(ask: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refusal:
        ask()
    return refusal.value.code


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("target", State)
def test_only_states_of_the_table_may_follow(state: State, target: State) -> None:
    transaction = transaction_in(state)

    if state in PREVIOUS_STATES[target]:
        assert transaction._prepare(target, NOW_MS).state is target
    else:
        with pytest.raises(RuntimeError, match="cannot become"):
            transaction._prepare(target, NOW_MS)


def test_a_change_counts_only_once_it_is_complete() -> None:
    transaction = transaction_in(State.EMPTY)

    transaction.prepare_add_partitions(PRESENT, frozenset({A0}), NOW_MS + 5)
    assert (transaction.state, transaction.metadata.partitions) == (State.EMPTY, frozenset())
    transaction.complete()

    assert (transaction.state, transaction.metadata.partitions) == (State.ONGOING, {A0})
    assert (transaction.metadata.start_ms, transaction.metadata.last_update_ms) == (NOW_MS + 5, NOW_MS + 5)


def test_a_change_that_was_not_written_down_is_as_if_it_never_was(ongoing: Transaction) -> None:
    before = ongoing.metadata

    ongoing.prepare_end(PRESENT, is_commit=True, now_ms=NOW_MS, next_producer_id=NEXT)
    ongoing.discard_pending()

    assert ongoing.metadata == before
    assert ongoing.prepare_end(PRESENT, is_commit=False, now_ms=NOW_MS, next_producer_id=NEXT) is not None


def test_a_new_id_begins_with_epoch_0_and_goes_up_by_one() -> None:
    transaction = Transaction("t", new_metadata(PID, TIMEOUT_MS, NOW_MS))

    for epoch in range(3):
        initialize(transaction)
        transaction.complete()
        assert transaction.metadata[:2] == (PID, epoch)


@pytest.mark.parametrize("state", IDLE)
def test_a_new_identity_leaves_nothing_of_the_old_transaction(state: State) -> None:
    following = initialize(transaction_in(state), now_ms=NOW_MS + 1)

    assert following[:7] == (PID, 4, TIMEOUT_MS, State.EMPTY, frozenset(), NOW_MS + 1, -1)


@pytest.mark.parametrize(
    ("state", "pending"), [(State.PREPARE_COMMIT, False), (State.PREPARE_ABORT, False), (State.EMPTY, True)]
)
def test_a_pending_change_or_markers_keep_producers_from_any_other(state: State, pending: bool) -> None:
    transaction = transaction_in(state, pending=pending)

    add = partial(transaction.prepare_add_partitions, PRESENT, frozenset({A1}), NOW_MS)
    assert refusal_of(partial(initialize, transaction)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert refusal_of(add) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("epoch", "following"),
    [(MAX_EPOCH - 2, (PID, MAX_EPOCH - 1)), (MAX_EPOCH - 1, (NEXT_PID, 0)), (MAX_EPOCH, (NEXT_PID, 0))],
)
def test_exhausted_epochs_bring_a_new_producer_id(epoch: int, following: tuple[int, int]) -> None:
    assert initialize(transaction_in(State.EMPTY, epoch=epoch))[:2] == following


@pytest.mark.parametrize(("epoch", "following"), [(3, (PID, 4)), (MAX_EPOCH - 1, (NEXT_PID, 0))])
def test_a_producer_that_asks_again_gets_the_same_next_identity(epoch: int, following: tuple[int, int]) -> None:
    transaction = transaction_in(State.EMPTY, epoch=epoch)

    for _ in range(2):
        assert initialize(transaction, (PID, epoch))[:2] == following
        transaction.complete()


@pytest.mark.parametrize("expected", [(PID, 2), (PID, 4), (PID + 5, 3), (-1, MAX_EPOCH - 2)])
def test_a_producer_that_was_shut_out_does_not_come_back(expected: tuple[int, int]) -> None:
    assert refusal_of(lambda: initialize(transaction_in(State.EMPTY), expected)) is ErrorCode.PRODUCER_FENCED


def test_another_producer_in_between_fences_one_that_asks_again() -> None:
    transaction = transaction_in(State.EMPTY)
    for expected in ((PID, 3), None):
        initialize(transaction, expected)
        transaction.complete()

    assert refusal_of(lambda: initialize(transaction, (PID, 3))) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_id_was_forgotten_gets_a_new_one() -> None:
    transaction = Transaction("t", new_metadata(NEXT_PID, TIMEOUT_MS, NOW_MS))

    assert initialize(transaction, (PID, 3))[:2] == (NEXT_PID, 0)


def test_partitions_are_added_to_those_that_are_there(ongoing: Transaction) -> None:
    assert ongoing.prepare_add_partitions(PRESENT, frozenset({A0}), NOW_MS) is None
    assert ongoing.pending is None

    following = ongoing.prepare_add_partitions(PRESENT, frozenset({A1}), NOW_MS + 9)

    assert following is not None
    assert (following.partitions, following.start_ms, following.last_update_ms) == ({A0, A1}, NOW_MS, NOW_MS + 9)


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (ProducerIdentity(PID + 1, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ProducerIdentity(PID, 2), ErrorCode.PRODUCER_FENCED),
        (ProducerIdentity(PID, 4), ErrorCode.PRODUCER_FENCED),
    ],
)
def test_only_the_producer_adds_and_ends(ongoing: Transaction, producer: ProducerIdentity, error: ErrorCode) -> None:
    assert refusal_of(lambda: ongoing.prepare_add_partitions(producer, frozenset({A1}), NOW_MS)) is error
    assert (
        refusal_of(lambda: ongoing.prepare_end(producer, is_commit=True, now_ms=NOW_MS, next_producer_id=NEXT)) is error
    )


@pytest.mark.parametrize(
    ("is_commit", "prepared", "complete"),
    [(True, State.PREPARE_COMMIT, State.COMPLETE_COMMIT), (False, State.PREPARE_ABORT, State.COMPLETE_ABORT)],
)
def test_an_ongoing_transaction_is_decided_with_its_partitions_and_completes_as_decided(
    ongoing: Transaction, is_commit: bool, prepared: State, complete: State
) -> None:
    decided = ongoing.prepare_end(PRESENT, is_commit=is_commit, now_ms=NOW_MS + 1, next_producer_id=NEXT)
    ongoing.complete()
    completed = ongoing.prepare_complete(NOW_MS + 2)

    assert decided is not None
    assert (decided.state, decided.partitions, decided.start_ms) == (prepared, {A0}, NOW_MS)
    assert (completed.state, completed.partitions, completed.start_ms) == (complete, frozenset(), NOW_MS)


@pytest.mark.parametrize(
    ("state", "of_commit", "of_abort"),
    [
        (State.EMPTY, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (State.PREPARE_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (State.PREPARE_ABORT, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (State.COMPLETE_COMMIT, None, ErrorCode.INVALID_TXN_STATE),
        (State.COMPLETE_ABORT, ErrorCode.INVALID_TXN_STATE, None),
    ],
)
def test_a_transaction_ends_once_and_the_same_end_again_changes_nothing(
    state: State, of_commit: ErrorCode | None, of_abort: ErrorCode | None
) -> None:
    for is_commit, error in ((True, of_commit), (False, of_abort)):
        end = partial(
            transaction_in(state).prepare_end, PRESENT, is_commit=is_commit, now_ms=NOW_MS, next_producer_id=NEXT
        )
        if error is None:
            assert end() is None
        else:
            assert refusal_of(end) is error


def test_fencing_aborts_under_a_greater_epoch_that_does_not_know_the_producer_before(ongoing: Transaction) -> None:
    following = ongoing.prepare_fence(NOW_MS, NEXT)
    assert (following.state, following.producer_epoch, following.partitions) == (State.PREPARE_ABORT, 4, {A0})

    ongoing.complete()
    ongoing.prepare_complete(NOW_MS)
    ongoing.complete()

    assert refusal_of(lambda: initialize(ongoing, (PID, 3))) is ErrorCode.PRODUCER_FENCED


def test_a_fence_that_was_not_written_down_shuts_out_at_once_and_raises_the_epoch_once(ongoing: Transaction) -> None:
    ongoing.prepare_fence(NOW_MS, NEXT)
    ongoing.discard_pending()

    assert (ongoing.state, ongoing.metadata.producer_epoch) == (State.ONGOING, 4)
    assert ongoing.prepare_fence(NOW_MS, NEXT).producer_epoch == 4
    ongoing.complete()
    assert not ongoing.has_failed_epoch_fence


@pytest.mark.parametrize("state", set(State) - {State.PREPARE_EPOCH_FENCE})
def test_an_open_transaction_times_out_after_its_timeout_and_no_other(state: State) -> None:
    is_open = state is State.ONGOING

    assert not transaction_in(state).is_timed_out(NOW_MS + TIMEOUT_MS)
    assert transaction_in(state).is_timed_out(NOW_MS + TIMEOUT_MS + 1) is is_open
    assert not transaction_in(state, pending=True).is_timed_out(NOW_MS + TIMEOUT_MS + 1)


@pytest.mark.parametrize("state", State)
def test_only_idle_ids_expire(state: State) -> None:
    assert transaction_in(state).is_expired(NOW_MS + 100, 100) is (state in IDLE)
    assert not transaction_in(state).is_expired(NOW_MS + 99, 100)
    assert not transaction_in(state, pending=True).is_expired(NOW_MS + 100, 100)
    if state in IDLE:
        assert transaction_in(state).prepare_dead().state is State.DEAD
