"""One transactional id: its producer's identity, and the state of its transaction with the table of transitions.

Pure: the caller passes the time, and writes to the log. `prepare_...` makes a change `pending`, the coordinator appends
it, then `complete` applies it; until then another change fails with CONCURRENT_TRANSACTIONS. Errors are those of kafka
2.0.1 TransactionCoordinator and TransactionMetadata; later versions of InitProducerId (a producer that goes on after an
error, KIP-360) are as in Kafka 2.8, transactions v2 (KIP-890) as in Kafka 4.4: each end raises the epoch, which is that
of the markers and of the next transaction, so that nothing that comes late from the one before is taken for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from enum import IntEnum
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from minibroker.protocol.transaction_records import EPOCHS_PER_TRANSACTION

NO_TIME = -1
MAX_EPOCH = 2**15 - 1


class TransactionState(IntEnum):
    """Kafka's numbers, as in the records of `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Kafka's name of the state: PrepareCommit."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

# The states from which each may be reached.
PREVIOUS_STATES: dict[TransactionState, frozenset[TransactionState]] = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}

PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})  # decided, with markers still to write
MAY_EXPIRE = PREVIOUS_STATES[DEAD]


class ProducerIdentity(NamedTuple):
    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class TransactionMetadata(NamedTuple):
    """The state of a transactional id at one moment. Times in ms since the epoch; NO_TIME without a transaction."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Set[TopicPartition]  # in a PREPARED state: those still without a marker
    last_update_ms: int
    start_ms: int
    # The identity before this one, to recognize a repeated request. Only the id is stored, in transactions v2.
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = 0  # of transactions, by the requests of this one
    next_producer_id: int = NO_PRODUCER_ID  # takes the place of an exhausted one with the completion

    @property
    def next_identity(self) -> ProducerIdentity:
        """The identity that the producer goes on with."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return ProducerIdentity(self.producer_id, self.producer_epoch)


def is_exhausted(epoch: int) -> bool:
    """Return whether a producer id cannot get a greater epoch; the last one is reserved for fencing."""
    return epoch >= MAX_EPOCH - 1


def new_metadata(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """The state of a new id; the first transition gives it an epoch."""
    return TransactionMetadata(producer_id, NO_PRODUCER_EPOCH, timeout_ms, EMPTY, frozenset(), now_ms, NO_TIME)


class Transaction:
    """`prepare_...` methods return the change to append, or raise KafkaError and change nothing."""

    __slots__ = ("has_failed_epoch_fence", "metadata", "pending", "transactional_id")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.pending: TransactionMetadata | None = None
        # The epoch was raised, but the append failed: `prepare_fence` does not raise it again.
        self.has_failed_epoch_fence = False

    @property
    def state(self) -> TransactionState:
        return self.metadata.state

    # -- InitProducerId ---------------------------------------------------------------------------------------

    def check_initialize(self, expected: ProducerIdentity | None) -> None:
        """Check that a producer may take over this id; `expected` is its previous identity.

        Raises KafkaError: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
        """
        if self.pending is None and expected is not None and not self._was(expected):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        self._check_settled()

    def _was(self, expected: ProducerIdentity) -> bool:
        """Return whether `expected` is the present producer, or one that missed its next id; True for a new id."""
        metadata = self.metadata
        return (
            metadata.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == metadata.producer_id
            or (expected.producer_id == metadata.last_producer_id and is_exhausted(expected.epoch))
        )

    def prepare_identity(
        self, timeout_ms: int, expected: ProducerIdentity | None, next_producer_id: Callable[[], int], now_ms: int
    ) -> TransactionMetadata:
        """Prepare the next epoch, or a new producer id if no epoch is left. Raises KafkaError(PRODUCER_FENCED)."""
        metadata = self.metadata
        producer_id, epoch, last_epoch = metadata.producer_id, metadata.producer_epoch + 1, NO_PRODUCER_EPOCH
        if is_exhausted(metadata.producer_epoch) and (expected is None or expected.epoch == metadata.producer_epoch):
            producer_id, epoch = next_producer_id(), 0
            last_epoch = NO_PRODUCER_EPOCH if expected is None else metadata.producer_epoch
        elif expected is not None:
            epoch, last_epoch = self._epoch_after(expected)
        return self._prepare(
            EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def _epoch_after(self, expected: ProducerIdentity) -> tuple[int, int]:
        metadata = self.metadata
        if expected.epoch == metadata.producer_epoch or metadata.producer_epoch == NO_PRODUCER_EPOCH:
            return metadata.producer_epoch + 1, metadata.producer_epoch
        if expected.epoch == metadata.last_producer_epoch:
            return metadata.producer_epoch, metadata.last_producer_epoch  # a retry: the answer was lost
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    # -- the life of a transaction ----------------------------------------------------------------------------

    def prepare_add_partitions(
        self, producer: ProducerIdentity, partitions: Set[TopicPartition], now_ms: int, client_version: int = 0
    ) -> TransactionMetadata | None:
        """Begin the transaction, or add to it; return None if it has all `partitions`.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        self._check_producer(producer)
        self._check_settled()
        metadata = self.metadata
        if self.state is ONGOING and partitions <= metadata.partitions:
            return None
        start_ms = metadata.start_ms if self.state is ONGOING else now_ms
        return self._prepare(
            ONGOING,
            now_ms,
            partitions=metadata.partitions | partitions,
            start_ms=start_ms,
            client_version=client_version,
        )

    def added_partitions(self, producer: ProducerIdentity) -> Set[TopicPartition]:
        """The partitions of the producer's transaction.

        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        self._check_producer(producer)
        if self.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self.metadata.partitions

    def prepare_end(
        self,
        producer: ProducerIdentity,
        *,
        is_commit: bool,
        now_ms: int,
        client_version: int = 0,
        next_producer_id: Callable[[], int],
    ) -> TransactionMetadata | None:
        """Decide the transaction; return None if it has ended so already.

        In transactions v2 a repeated request has the epoch before, and an abort without a transaction raises the epoch.
        Raises KafkaError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
        """
        has_epochs = client_version >= EPOCHS_PER_TRANSACTION
        is_repeated = has_epochs and self._has_ended(producer)
        if not is_repeated:
            self._check_producer(producer)
        self._check_settled()  # until its markers are there either decision is asked again
        if self.state is ONGOING or (has_epochs and not is_repeated and not is_commit):
            state = PREPARE_COMMIT if is_commit else PREPARE_ABORT
            return self._prepare_decision(state, now_ms, client_version, next_producer_id)
        if self.state is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT) and is_repeated == has_epochs:
            return None
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"{self.transactional_id} is {self.state.title}")

    def _has_ended(self, producer: ProducerIdentity) -> bool:
        """Return whether the end of the last transaction has given another epoch, or id, to this producer."""
        if self.state in (EMPTY, ONGOING):
            return False
        metadata = self.metadata
        if producer.producer_id == metadata.producer_id:
            return producer.epoch + 1 == metadata.producer_epoch
        is_before = producer.producer_id == metadata.last_producer_id and metadata.producer_epoch == 0
        return is_before and producer.epoch == MAX_EPOCH - 1

    def _prepare_decision(
        self, state: TransactionState, now_ms: int, client_version: int, next_producer_id: Callable[[], int]
    ) -> TransactionMetadata:
        metadata = self.metadata
        if client_version < EPOCHS_PER_TRANSACTION:
            return self._prepare(state, now_ms, client_version=client_version)
        return self._prepare(
            state,
            now_ms,
            client_version=client_version,
            producer_epoch=min(metadata.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=metadata.producer_epoch,
            next_producer_id=next_producer_id() if is_exhausted(metadata.producer_epoch) else NO_PRODUCER_ID,
            start_ms=metadata.start_ms if self.state is ONGOING else now_ms,
        )

    def prepare_fence(self, now_ms: int, next_producer_id: Callable[[], int]) -> TransactionMetadata:
        """Abort an ongoing transaction under a greater epoch, which fences its producer.

        It passes through PrepareEpochFence, which is never appended: the epoch counts at once, even if the append of
        the abort fails. In transactions v2 each end raises the epoch.
        """
        if self.metadata.client_version >= EPOCHS_PER_TRANSACTION:
            return self._prepare_decision(PREPARE_ABORT, now_ms, self.metadata.client_version, next_producer_id)
        raised = 0 if self.has_failed_epoch_fence else 1
        epoch = min(self.metadata.producer_epoch + raised, MAX_EPOCH)
        fenced = self._prepare(
            PREPARE_EPOCH_FENCE,
            self.metadata.last_update_ms,
            producer_epoch=epoch,
            last_producer_epoch=NO_PRODUCER_EPOCH,
        )
        self.pending = None
        self.metadata = fenced._replace(state=ONGOING)
        self.has_failed_epoch_fence = True  # until the append succeeds
        return self._prepare(PREPARE_ABORT, now_ms)

    def prepare_complete(self, now_ms: int) -> TransactionMetadata:
        """Prepare the completion, after all markers were written."""
        state = COMPLETE_COMMIT if self.state is PREPARE_COMMIT else COMPLETE_ABORT
        producer_id, epoch = self.metadata.next_identity
        return self._prepare(
            state,
            now_ms,
            partitions=frozenset(),
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
        )

    def prepare_dead(self) -> TransactionMetadata:
        """Prepare the removal of the id."""
        return self._prepare(DEAD, self.metadata.last_update_ms, partitions=frozenset())

    def keep_partitions(self, partitions: Set[TopicPartition]) -> None:
        """Keep only these partitions of a PREPARED transaction: the others have their marker."""
        self.metadata = self.metadata._replace(partitions=frozenset(partitions))

    def is_timed_out(self, now_ms: int) -> bool:
        is_open = self.state is ONGOING and self.pending is None
        return is_open and self.metadata.start_ms + self.metadata.timeout_ms < now_ms

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether the id has been idle for `expiration_ms`."""
        is_idle = self.state in MAY_EXPIRE and self.pending is None
        return is_idle and self.metadata.last_update_ms <= now_ms - expiration_ms

    # -- transitions ------------------------------------------------------------------------------------------

    def complete(self) -> None:
        """Apply the pending change, after its append."""
        if self.pending is None:
            raise RuntimeError(f"{self.transactional_id}: no transition is pending")
        self.metadata, self.pending = self.pending, None
        if self.state in PREPARED:
            self.has_failed_epoch_fence = False

    def discard_pending(self) -> None:
        """Drop the pending change, after its append failed."""
        self.pending = None

    def _prepare(self, state: TransactionState, now_ms: int, **changes: object) -> TransactionMetadata:
        if self.pending is not None or self.state not in PREVIOUS_STATES[state]:
            raise RuntimeError(f"{self.transactional_id}: {self.state.title} cannot become {state.title}")
        changes.update(state=state, last_update_ms=now_ms, last_producer_id=self.metadata.producer_id)
        self.pending = self.metadata._replace(**changes)  # type: ignore[arg-type]
        return self.pending

    def _check_producer(self, producer: ProducerIdentity) -> None:
        if producer.producer_id != self.metadata.producer_id:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer.epoch != self.metadata.producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)

    def _check_settled(self) -> None:
        if self.pending is not None or self.state in PREPARED:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
