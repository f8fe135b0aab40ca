"""Has partitions take part in the transactions of producers, as their leader asks (KIP-890).

A client of transactions v2 asks for neither AddPartitionsToTxn nor AddOffsetsToTxn: the leader of a partition adds it
with the first records of a transaction. For other clients it asks whether the partition was added: records that come
late, after the end of their transaction, would stay open for ever. The coordinator is this broker or another one.
As Apache Kafka 4.4.0 AddPartitionsToTxnManager and ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minibroker.broker.pending import Pending, Timeout, then
from minibroker.broker.replica.partitions import Partitions
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.coordinator import TransactionCoordinator
from minibroker.broker.transaction.marker_channels import Addition, AdditionChannels, Errors
from minibroker.broker.transaction.transaction import ProducerIdentity
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.transaction_records import EPOCHS_PER_TRANSACTION
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage.producers.producer_state import ProducerStateManager

NO_ERRORS: Errors = {}
# An addition waits so long for the end of the transaction before: some clients look up the cluster before they ask
# again, which takes seconds. As add.partitions.to.txn.retry.backoff.ms, and ...backoff.max.ms.
RETRY_MS, MOST_RETRIES_MS = 20, 100
# What a client of the partition's leader gets in place of the coordinator's errors.
OF_LEADER = {ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH} | dict.fromkeys(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


class Participation:
    """Asks the coordinator of a transaction, which is this broker if `coordinator_of` returns `broker_id`.

    Without `is_asked`, beside Apache Kafka 2.0.1, no coordinator is asked. Without `looks_at_epochs`, as in 3.9, none
    is asked while a transaction of the producer is open, of whatever epoch.
    """

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        partitions: Partitions,
        *,
        broker_id: int,
        coordinator_of: Callable[[str], int | None],
        channels: AdditionChannels,
        is_asked: bool,
        looks_at_epochs: bool,
        allows_adding: Callable[[], bool],
        timer: Timer,
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._broker_id = broker_id
        self._coordinator_of = coordinator_of
        self._channels = channels
        self._is_asked = is_asked
        self._looks_at_epochs = looks_at_epochs
        self._allows_adding = allows_adding
        self._timer = timer
        self._clock = clock

    def admit(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        sequences: Mapping[TopicPartition, int],
        *,
        adds: bool,
    ) -> Errors | Pending[Errors]:
        """Add partitions to a transaction, or look whether they are in it; return the errors of the missing ones.

        `sequences` has the first sequence of the records for each partition.
        TRANSACTION_ABORTABLE stands for a partition that was not added, UNSUPPORTED_VERSION for a client of
        transactions v2 where those are off. Partitions that others lead have no error: an append refuses them.
        """
        if adds and not self._allows_adding():
            return dict.fromkeys(sequences, ErrorCode.UNSUPPORTED_VERSION)
        epoch = producer.epoch if self._looks_at_epochs else None
        states = {
            each: state
            for each in sequences
            if (state := self._producers_of(each)) is not None
            and not state.is_in_transaction(producer.producer_id, epoch)
        }
        if not states or not self._is_asked:
            return NO_ERRORS
        for each, state in states.items():
            state.note_verification(*producer, sequences[each], self._clock.wall_ms())
        ends = {each: state.transactions_ended for each, state in states.items()}
        addition = Addition(transactional_id, producer, frozenset(states), is_only_verified=not adds)
        errors = self._added(addition, self._clock.monotonic_ms() + MOST_RETRIES_MS) if adds else self._ask(addition)

        def checked(errors: Errors) -> Errors | Pending[Errors]:
            if not adds and any(state.transactions_ended != ends[each] for each, state in states.items()):
                return self.admit(transactional_id, producer, sequences, adds=False)  # perhaps this one ended
            return {each: self._for_client(error, adds=adds) for each, error in errors.items() if error}

        return then(errors, checked)

    def _producers_of(self, topic_partition: TopicPartition) -> ProducerStateManager | None:
        try:
            return self._partitions.led(topic_partition).log.producer_state
        except KafkaError:
            return None

    def _added(self, addition: Addition, deadline_ms: int) -> Errors | Pending[Errors]:
        """Ask until no other change of the transaction goes on, or the time is over."""

        def unless_concurrent(errors: Errors) -> Errors | Pending[Errors]:
            now_ms = self._clock.monotonic_ms()
            if ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values() or now_ms >= deadline_ms:
                return errors
            again = Pending[Errors]()
            self._timer.add(Timeout(lambda: again.resolve(self._added(addition, deadline_ms))), now_ms + RETRY_MS)
            return again

        return then(self._ask(addition), unless_concurrent)

    def _ask(self, addition: Addition) -> Errors | Pending[Errors]:
        transactional_id, producer, partitions, is_only_verified = addition
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if coordinator != self._broker_id:
            return self._channels.send(coordinator, addition)
        if is_only_verified:
            return self._coordinator.verify(transactional_id, producer, partitions)
        added = self._coordinator.add_partitions(transactional_id, producer, partitions, EPOCHS_PER_TRANSACTION)
        return then(added, lambda error: dict.fromkeys(partitions, error))

    @staticmethod
    def _for_client(error: ErrorCode, *, adds: bool) -> ErrorCode:
        if error is ErrorCode.CONCURRENT_TRANSACTIONS and not adds:
            return ErrorCode.NOT_ENOUGH_REPLICAS  # which such a client asks again
        return OF_LEADER.get(error, error)
