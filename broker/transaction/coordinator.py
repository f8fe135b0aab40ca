"""The transaction coordinator: identities of transactional producers, and their transactions from begin to end.

As kafka 2.0.1 TransactionCoordinator. Every change is written down before it counts. EndTxn is answered once the
decision is (PrepareCommit, PrepareAbort); from then on the transaction can only be completed: markers go into every
partition, the offsets it held count or are dropped, and that is written down too. All of this happens at once, unless
an append must be waited for; whoever comes meanwhile is answered CONCURRENT_TRANSACTIONS. What a crash interrupts
between decision and completion is done at the next start: markers may then come twice, which changes nothing.

Clients get KafkaError PRODUCER_FENCED from here; the APIs say INVALID_PRODUCER_EPOCH to those that are older.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import NamedTuple

from minibroker.broker.cluster.metadata_cache import TRANSACTION_STATE_TOPIC
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.markers import Errors, Marker, MarkerWriter
from minibroker.broker.transaction.transaction import (
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    ProducerIdentity,
    Transaction,
    new_metadata,
)
from minibroker.broker.transaction.transaction_log import TransactionLog
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.timing_wheel import Timer, TimerTask

logger = logging.getLogger(__name__)

RETRY_MS = 500  # until markers, or the completion, are tried again
NO_PRODUCER = ProducerIdentity(-1, -1)
TOMBSTONES_PER_BATCH = 25  # of the longest ids: together less than the least message size that is usual

# A marker that met one of these has come to its end (as kafka 2.0.1 TransactionMarkerRequestCompletionHandler): the
# partition is gone, or cannot hold transactions.
MARKER_IS_DONE = frozenset(
    {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
)
# The partition has seen a newer producer, or a newer coordinator: this transaction is not for us to end.
MARKER_IS_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class Initialized(NamedTuple):
    """What InitProducerId came to; NO_PRODUCER with an error."""

    error: ErrorCode
    producer: ProducerIdentity


class TransactionCoordinator:
    """All transactional ids of this broker, by name. What is asked is answered with an error code, never raised."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        log: TransactionLog,
        markers: MarkerWriter,
        next_producer_id: Callable[[], int],
        timer: Timer,
        clock: Clock,
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._config = config
        self._log = log
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._timer = timer
        self._clock = clock

    def start(self) -> None:
        """Load every id, and complete what was decided when the broker ended. Groups must be loaded before."""
        for transactional_id, metadata in self._log.load().items():
            self.transactions[transactional_id] = Transaction(transactional_id, metadata)
        for transaction in self.transactions.values():
            if transaction.state in PREPARED:
                logger.info("%s: completing %s", transaction.transactional_id, transaction.state.title)
                self._write_markers(transaction)
        config = self._config
        self._every(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_timed_out)
        self._every(config.transaction_remove_expired_transaction_cleanup_interval_ms, self.forget_expired)

    def ensure_topic(self) -> int:
        """The partitions of `__transaction_state`, which is made when it is first wanted. Raises KafkaError."""
        return self._log.ensure_topic()

    # -- what producers ask -----------------------------------------------------------------------------------

    def initialize(
        self, transactional_id: str | None, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Initialized | Pending[Initialized]:
        """An identity for a producer; without a transactional id always a new one.

        Shuts out who had the id before. If that left a transaction open it is aborted first, and the answer is
        CONCURRENT_TRANSACTIONS: the producer asks again. `expected` is who the producer was (KIP-360).
        """
        try:
            if transactional_id is None:
                return Initialized(ErrorCode.NONE, ProducerIdentity(self._next_producer_id(), 0))
            return self._initialize(transactional_id, timeout_ms, expected)
        except KafkaError as error:
            return Initialized(error.code, NO_PRODUCER)

    def _initialize(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Initialized | Pending[Initialized]:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        self._log.partition_for(transactional_id)
        now_ms = self._clock.wall_ms()
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            metadata = new_metadata(self._next_producer_id(), timeout_ms, now_ms)
            transaction = self.transactions[transactional_id] = Transaction(transactional_id, metadata)
        transaction.check_initialize(expected)
        if transaction.state is ONGOING:
            transaction.prepare_fence(now_ms)
            return then(self._write_decision(transaction), come_again)
        transaction.prepare_identity(timeout_ms, expected, self._next_producer_id, now_ms)
        return then(self._write_down(transaction), partial(initialized, transaction))

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Set[TopicPartition]
    ) -> ErrorCode | Pending[ErrorCode]:
        """Have the transaction hold these partitions; begin it with the first."""
        try:
            transaction = self._known(transactional_id)
            if transaction.prepare_add_partitions(producer, partitions, self._clock.wall_ms()) is None:
                return ErrorCode.NONE
        except KafkaError as error:
            return error.code
        return self._write_down(transaction)

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, is_commit: bool
    ) -> ErrorCode | Pending[ErrorCode]:
        """Commit or abort. NONE once that is decided and written down."""
        try:
            transaction = self._known(transactional_id)
            if transaction.prepare_end(producer, is_commit=is_commit, now_ms=self._clock.wall_ms()) is None:
                return ErrorCode.NONE
        except KafkaError as error:
            return error.code
        return self._write_decision(transaction)

    def _known(self, transactional_id: str) -> Transaction:
        """Raises KafkaError: INVALID_REQUEST, NOT_COORDINATOR, INVALID_PRODUCER_ID_MAPPING."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._log.partition_for(transactional_id)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    # -- what time asks ---------------------------------------------------------------------------------------

    def abort_timed_out(self) -> None:
        """Abort the transactions that are open for longer than their producers said, and shut those out."""
        now_ms = self._clock.wall_ms()
        for transaction in [each for each in self.transactions.values() if each.is_timed_out(now_ms)]:
            logger.info("%s: aborting a transaction that timed out", transaction.transactional_id)
            transaction.prepare_fence(now_ms)
            self._write_decision(transaction)

    def forget_expired(self) -> None:
        """Forget the ids that nobody has used for transactional.id.expiration.ms."""
        if not self._log.has_topic:
            return
        now_ms, expiration_ms = self._clock.wall_ms(), self._config.transactional_id_expiration_ms
        by_partition: defaultdict[int, list[Transaction]] = defaultdict(list)
        for transactional_id, transaction in self.transactions.items():
            if transaction.is_expired(now_ms, expiration_ms):
                by_partition[self._log.partition_for(transactional_id)].append(transaction)
        for partition, expired in by_partition.items():
            for position in range(0, len(expired), TOMBSTONES_PER_BATCH):
                self._forget(partition, expired[position : position + TOMBSTONES_PER_BATCH])

    def _forget(self, partition: int, expired: list[Transaction]) -> None:
        for transaction in expired:
            transaction.prepare_dead()
        written = self._log.append_tombstones(partition, [each.transactional_id for each in expired])
        then(written, partial(self._on_forgotten, expired))

    def _on_forgotten(self, expired: list[Transaction], error: ErrorCode) -> None:
        for transaction in expired:
            if error is ErrorCode.NONE:
                self.transactions.pop(transaction.transactional_id, None)
            else:
                transaction.give_up()

    def on_topic_deleted(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Without their topic, no transactional id is known any more."""
        if any(each.topic == TRANSACTION_STATE_TOPIC for each in topic_partitions):
            self.transactions.clear()

    # -- writing down, and what follows -----------------------------------------------------------------------

    def _write_down(self, transaction: Transaction) -> ErrorCode | Pending[ErrorCode]:
        """Append what is pending. It counts, or is given up, before anybody hears of the outcome."""

        def on_written(error: ErrorCode) -> ErrorCode:
            if error is ErrorCode.NONE:
                transaction.complete()
            else:
                transaction.give_up()
            return error

        assert transaction.pending is not None
        return then(self._log.append(transaction.transactional_id, transaction.pending), on_written)

    def _write_decision(self, transaction: Transaction) -> ErrorCode | Pending[ErrorCode]:
        """Append a pending PrepareCommit or PrepareAbort; then the transaction is completed, come what may."""

        def on_written(error: ErrorCode) -> ErrorCode:
            if error is ErrorCode.NONE:
                self._write_markers(transaction)
            return error

        return then(self._write_down(transaction), on_written)

    def _write_markers(self, transaction: Transaction) -> None:
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
        then(self._markers.write(marker), partial(self._on_markers, transaction))

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
            self._write_completion(transaction)

    def _write_completion(self, transaction: Transaction) -> None:
        def on_written(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._retry(transaction, self._write_completion, error)

        transaction.prepare_complete(self._clock.wall_ms())
        then(self._write_down(transaction), on_written)

    def _retry(self, transaction: Transaction, action: Callable[[Transaction], None], error: ErrorCode) -> None:
        logger.info("%s: %s, trying again", transaction.transactional_id, error.name)
        self._timer.add(Timeout(partial(action, transaction)), self._clock.monotonic_ms() + RETRY_MS)

    def _every(self, interval_ms: int, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self._every(interval_ms, action)

        self._timer.add(Timeout(act), self._clock.monotonic_ms() + interval_ms)


class Timeout(TimerTask):
    """Something to do at a time."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def on_timeout(self) -> None:
        self._action()


def initialized(transaction: Transaction, error: ErrorCode) -> Initialized:
    if error is not ErrorCode.NONE:
        return Initialized(error, NO_PRODUCER)
    metadata = transaction.metadata
    return Initialized(error, ProducerIdentity(metadata.producer_id, metadata.producer_epoch))


def come_again(error: ErrorCode) -> Initialized:
    """The answer once an open transaction was decided: what it left is being cleared away."""
    return Initialized(ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error, NO_PRODUCER)
