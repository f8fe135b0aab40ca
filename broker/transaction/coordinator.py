"""The transaction coordinator: identities of transactional producers, and their transactions from begin to end.

As kafka 2.0.1 TransactionCoordinator. Every change is appended to the log before it counts. EndTxn is answered once the
decision is appended (PrepareCommit, PrepareAbort); then the coordinator can only complete the transaction: it writes
markers to all partitions, applies or drops the offsets, and appends the completion. It does so after the answer was
sent and before the next connections are read, unless an append waits; other requests then get CONCURRENT_TRANSACTIONS.
If the broker crashes in between, the next start completes the transaction: it may write markers twice, which changes
nothing.

The coordinator answers PRODUCER_FENCED; the APIs turn it into INVALID_PRODUCER_EPOCH for older clients.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Set
from functools import partial
from typing import NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.pending import Pending, Timeout, then
from minibroker.broker.replica.coordinator_log import OwnedPartitions
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.marker_channels import Errors, Marker
from minibroker.broker.transaction.markers import MarkerWriter
from minibroker.broker.transaction.transaction import (
    NO_PRODUCER,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    ProducerIdentity,
    Transaction,
    new_metadata,
)
from minibroker.broker.transaction.transaction_log import TransactionLog
from minibroker.broker.upkeep.afterwards import Afterwards
from minibroker.broker.upkeep.background import Steps
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)

FIRST_LOOK_MS = 1000  # after the start, for transactions that timed out meanwhile
RETRY_MS = 500  # between attempts to write the markers, or the completion
TOMBSTONES_PER_BATCH = 25  # with the longest ids, they stay below any usual max.message.bytes

# After these errors a marker counts as written (as kafka 2.0.1 TransactionMarkerRequestCompletionHandler): the
# partition is gone, or cannot hold transactions.
MARKER_IS_DONE = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)
# The partition knows a newer producer epoch or coordinator epoch: this coordinator must not end the transaction.
MARKER_IS_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Identified(NamedTuple):
    """The result of InitProducerId or EndTxn, with the identity to go on with; NO_PRODUCER with an error."""

    error: ErrorCode
    producer: ProducerIdentity


class TransactionCoordinator:
    """All transactional ids of this broker, by name. Its methods return error codes and raise none."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        log: TransactionLog,
        markers: MarkerWriter,
        next_producer_id: Callable[[], int],
        timer: Timer,
        clock: Clock,
        afterwards: Afterwards,
        run_steps: Callable[[Steps], None],
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._partitions: dict[str, int] = {}  # of transactional ids
        self._config = config
        self._log = log
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._timer = timer
        self._clock = clock
        self._afterwards = afterwards
        self._owned = OwnedPartitions(
            log.log, load=self._load, unload=self._unload, run_steps=run_steps, waits_for_commit=True
        )

    def start(self) -> None:
        """Begin to look for transactions that timed out, and for ids that expired."""
        config = self._config
        aborting_ms = config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        forgetting_ms = config.transaction_remove_expired_transaction_cleanup_interval_ms
        # Soon: with a broker that is restarted more often than the interval, readers would wait for ever.
        self._every(aborting_ms, self.abort_timed_out, first_ms=min(FIRST_LOOK_MS, aborting_ms))
        self._every(forgetting_ms, self.forget_expired, first_ms=forgetting_ms)

    def on_leadership(self, topic_partition: TopicPartition, is_leader: bool) -> None:
        """Load the ids of a partition of `__transaction_state`, or unload them."""
        self._owned.on_leadership(topic_partition, is_leader)

    def _load(self, partition: int) -> Iterator[None]:
        """Load the ids, and complete the transactions that were decided."""
        states = yield from self._log.load(partition)
        loaded = [Transaction(transactional_id, metadata) for transactional_id, metadata in states.items()]
        for transaction in loaded:
            self._add(transaction, partition)
        for transaction in loaded:
            if transaction.state in PREPARED:
                logger.info("%s: completing %s", transaction.transactional_id, transaction.state.title)
                self._write_markers(transaction)

    def _add(self, transaction: Transaction, partition: int) -> None:
        self.transactions[transaction.transactional_id] = transaction
        self._partitions[transaction.transactional_id] = partition

    def _unload(self, partition: int) -> None:
        for transactional_id in [each for each, known in self._partitions.items() if known == partition]:
            self._drop(transactional_id)

    def _drop(self, transactional_id: str) -> None:
        self.transactions.pop(transactional_id, None)
        self._partitions.pop(transactional_id, None)

    def _has(self, transaction: Transaction) -> bool:
        """Whether this broker still coordinates a transaction."""
        return self.transactions.get(transaction.transactional_id) is transaction

    # -- requests of producers --------------------------------------------------------------------------------

    def initialize(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Identified | Pending[Identified]:
        """Give a producer an identity, without a transactional id always a new one.

        This fences the id's previous producer. If its transaction is open, the coordinator aborts it, and answers
        CONCURRENT_TRANSACTIONS: the producer retries. `expected` is the producer's previous identity (KIP-360).
        """
        try:
            if transactional_id is None:
                return Identified(ErrorCode.NONE, ProducerIdentity(self._next_producer_id(), 0))
            return self._initialize(transactional_id, timeout_ms, expected)
        except KafkaError as error:
            return Identified(error.code, NO_PRODUCER)

    def _initialize(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Identified | Pending[Identified]:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        self._check_owned(transactional_id)
        now_ms = self._clock.wall_ms()
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            metadata = new_metadata(self._next_producer_id(), timeout_ms, now_ms)
            transaction = Transaction(transactional_id, metadata)
            self._add(transaction, self._log.partition_for(transactional_id))
        transaction.check_initialize(expected)
        if transaction.state is ONGOING:
            transaction.prepare_fence(now_ms, self._next_producer_id)
            return then(self._append_decision(transaction), retry_later)
        transaction.prepare_identity(timeout_ms, expected, self._next_producer_id, now_ms)
        return then(self._append(transaction), partial(identified, transaction))

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Set[TopicPartition],
        client_version: int = 0,
    ) -> ErrorCode | Pending[ErrorCode]:
        """Add partitions to the transaction; begin it with the first."""
        now_ms = self._clock.wall_ms()
        try:
            transaction = self._transaction_of(transactional_id)
            if transaction.prepare_add_partitions(producer, partitions, now_ms, client_version) is None:
                return ErrorCode.NONE
        except KafkaError as error:
            return error.code
        return self._append(transaction)

    def verify(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Set[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for the partitions that are in the transaction, TRANSACTION_ABORTABLE for the others."""
        try:
            added = self._transaction_of(transactional_id).added_partitions(producer)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE for each in partitions}

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, is_commit: bool, client_version: int = 0
    ) -> Identified | Pending[Identified]:
        """Commit or abort. Return NONE once the decision is in the log."""
        try:
            transaction = self._transaction_of(transactional_id)
            decision = transaction.prepare_end(
                producer,
                is_commit=is_commit,
                now_ms=self._clock.wall_ms(),
                client_version=client_version,
                next_producer_id=self._next_producer_id,
            )
        except KafkaError as error:
            return Identified(error.code, NO_PRODUCER)
        if decision is None:
            return identified(transaction, ErrorCode.NONE)
        return then(self._append_decision(transaction), partial(identified, transaction))

    def _transaction_of(self, transactional_id: str) -> Transaction:
        """Raises KafkaError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, and as `_check_owned`."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._check_owned(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _check_owned(self, transactional_id: str) -> None:
        """Raises KafkaError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS."""
        refusal = self._owned.refusal(transactional_id)
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)

    # -- timeouts and expiration ------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """Abort the transactions that are open for longer than their timeout, and fence their producers."""
        now_ms = self._clock.wall_ms()
        for transaction in [each for each in self.transactions.values() if each.is_timed_out(now_ms)]:
            logger.info("%s: aborting a transaction that timed out", transaction.transactional_id)
            transaction.prepare_fence(now_ms, self._next_producer_id)
            self._append_decision(transaction)

    def forget_expired(self) -> None:
        """Remove the ids that were not used for transactional.id.expiration.ms."""
        now_ms, expiration_ms = self._clock.wall_ms(), self._config.transactional_id_expiration_ms
        by_partition: defaultdict[int, list[Transaction]] = defaultdict(list)
        for transactional_id, transaction in self.transactions.items():
            if transaction.is_expired(now_ms, expiration_ms):
                by_partition[self._partitions[transactional_id]].append(transaction)
        for expired in by_partition.values():
            for position in range(0, len(expired), TOMBSTONES_PER_BATCH):
                self._forget(expired[position : position + TOMBSTONES_PER_BATCH])

    def _forget(self, expired: list[Transaction]) -> None:
        for transaction in expired:
            transaction.prepare_dead()
        written = self._log.append_tombstones([each.transactional_id for each in expired])
        then(written, partial(self._on_forgotten, expired))

    def _on_forgotten(self, expired: list[Transaction], error: ErrorCode) -> None:
        for transaction in expired:
            if error is ErrorCode.NONE:
                self._drop(transaction.transactional_id)
            else:
                transaction.discard_pending()

    # -- appending, and the steps that follow -----------------------------------------------------------------

    def _append(self, transaction: Transaction) -> ErrorCode | Pending[ErrorCode]:
        """Append the pending change; complete it, or discard it after an error, before returning the outcome."""

        def on_appended(error: ErrorCode) -> ErrorCode:
            if error is ErrorCode.NONE:
                transaction.complete()
            else:
                transaction.discard_pending()
            return error

        assert transaction.pending is not None
        return then(self._log.append(transaction.transactional_id, transaction.pending), on_appended)

    def _append_decision(self, transaction: Transaction) -> ErrorCode | Pending[ErrorCode]:
        """Append a pending PrepareCommit or PrepareAbort, then complete the transaction, with retries."""

        def on_appended(error: ErrorCode) -> ErrorCode:
            if error is ErrorCode.NONE:
                self._afterwards.call(partial(self._write_markers, transaction))
            return error

        return then(self._append(transaction), on_appended)

    def _write_markers(self, transaction: Transaction) -> None:
        if not self._has(transaction):
            return  # its next coordinator writes them
        metadata = transaction.metadata
        try:
            coordinator_epoch = self._log.coordinator_epoch(transaction.transactional_id)
        except KafkaError as error:
            self._retry(transaction, self._write_markers, error.code)
            return
        marker = Marker(
            metadata.producer_id,
            metadata.producer_epoch,
            coordinator_epoch,
            metadata.state is PREPARE_COMMIT,
            metadata.partitions,
        )
        then(self._markers.send(marker), partial(self._on_markers, transaction))

    def _on_markers(self, transaction: Transaction, errors: Errors) -> None:
        missing = {each: error for each, error in errors.items() if error not in MARKER_IS_DONE}
        for topic_partition, error in missing.items():
            if error in MARKER_IS_FENCED:
                logger.warning(
                    "%s stays %s: %s answered %s to its marker",
                    transaction.transactional_id,
                    transaction.state.title,
                    topic_partition,
                    error.name,
                )
                return
        transaction.keep_partitions(missing.keys())
        if missing:
            self._retry(transaction, self._write_markers, next(iter(missing.values())))
        else:
            self._append_completion(transaction)

    def _append_completion(self, transaction: Transaction) -> None:
        def on_appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._retry(transaction, self._append_completion, error)

        if self._has(transaction):
            transaction.prepare_complete(self._clock.wall_ms())
            then(self._append(transaction), on_appended)

    def _retry(self, transaction: Transaction, action: Callable[[Transaction], None], error: ErrorCode) -> None:
        logger.info("%s: %s, trying again", transaction.transactional_id, error.name)
        self._timer.add(Timeout(partial(action, transaction)), self._clock.monotonic_ms() + RETRY_MS)

    def _every(self, interval_ms: int, action: Callable[[], None], *, first_ms: int) -> None:
        def act() -> None:
            action()
            self._every(interval_ms, action, first_ms=interval_ms)

        self._timer.add(Timeout(act), self._clock.monotonic_ms() + first_ms)


def identified(transaction: Transaction, error: ErrorCode) -> Identified:
    if error is not ErrorCode.NONE:
        return Identified(error, NO_PRODUCER)
    return Identified(error, transaction.metadata.next_identity)


def retry_later(error: ErrorCode) -> Identified:
    """The answer after an open transaction was aborted: the producer retries until the abort is complete."""
    return Identified(ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error, NO_PRODUCER)
