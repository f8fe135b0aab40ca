"""The requests of `transactions` and `producers`, and what a cluster's answers mean.

The requests came with Kafka 3.0; a transaction is ended by what Kafka has had since 0.11: a producer that takes over
the transactional id, or an abort marker in a partition whose coordinator has forgotten the transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import (
    CLIENT_ID,
    OF_TRANSACTIONS,
    AbortTransactionSpec,
    TopicPartition,
    at_coordinators,
    broker_ids,
    checked,
    connected,
    errors,
    hidden_unless,
    of_each,
    producer,
)
from minibroker.any_cluster.partition_offsets import by_leader, chosen, partitions_of
from minibroker.errors import CommandFailed
from minibroker.protocol.guesses import next_step

NONE = -1  # Kafka's number for a transaction, time or offset that there is none of


class Listed(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class Described(NamedTuple):
    """`started` is in ms since 1970; None without an open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: int | None
    coordinator: int
    partitions: list[TopicPartition]


class ActiveProducer(NamedTuple):
    """`last_timestamp` is in ms since 1970, `transaction_start` the first offset of an open transaction; or None."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int | None
    coordinator_epoch: int
    transaction_start: int | None


@contextmanager
def transaction_admin(cluster: Cluster) -> Iterator[TransactionAdmin]:
    """Connect to the first broker that answers. Raises CommandFailed, also for later failures."""
    with connected(cluster) as client:
        yield TransactionAdmin(cluster, client)


class TransactionAdmin:
    """Transactions and producers of one cluster."""

    def __init__(self, cluster: Cluster, client: Any) -> None:
        self._cluster = cluster
        self._client = client

    def transactions(self, states: Sequence[str]) -> list[Listed]:
        """The transactional ids in these states, or in any."""

        def ask(broker: int) -> Any:
            return self._client.list_transactions([broker], state_filters=list(states) or None)[broker]

        found = of_each(self._client, broker_ids(self._client), ask, "what it coordinates")
        listed = sorted(
            Listed(row.transactional_id, row.state.value, row.producer_id, broker)
            for broker, rows in found.items()
            for row in rows
        )
        return hidden_unless(listed, self._client, "transactions")

    def describe(self, transactional_id: str) -> Described:
        """Raises CommandFailed for an id that does not exist."""

        def ask() -> Any:
            return self._client.describe_transactions([transactional_id])[transactional_id]

        try:
            row = at_coordinators(self._client, [transactional_id], ask, kind=OF_TRANSACTIONS)
        except errors.TransactionalIdNotFoundError as error:
            others = [row.transactional_id for row in self.transactions(())]
            step = next_step(transactional_id, others, "`minibroker transactions list` shows them all")
            raise CommandFailed(f"transactional id {transactional_id} does not exist; {step}") from error
        return Described(
            transactional_id,
            row.state.value,
            row.producer_id,
            row.producer_epoch,
            row.transaction_timeout_ms,
            None if row.transaction_start_time_ms == NONE else row.transaction_start_time_ms,
            row.coordinator_id,
            sorted(row.topic_partitions),
        )

    def fence(self, transactional_id: str) -> None:
        """Abort what the id has open, and refuse its producer from now on. Raises CommandFailed for an unknown id."""
        self.describe(transactional_id)
        settings = {"client.id": CLIENT_ID, **checked(self._cluster.properties), "transactional.id": transactional_id}
        with closing(producer(str(self._cluster), settings)) as successor:
            successor.init_transactions()

    def abort_in(self, partition: TopicPartition, producer_id: int) -> ActiveProducer:
        """Write an abort marker into the partition, for a transaction that its coordinator does not end."""
        for row in self.producers(partition.topic, [partition.partition]):
            if row.producer_id == producer_id and row.transaction_start is not None:
                # As Kafka's own tool: a producer that never ended a transaction has no coordinator epoch yet.
                epoch = max(0, row.coordinator_epoch)
                self._client.abort_transaction(AbortTransactionSpec(partition, producer_id, row.producer_epoch, epoch))
                return row
        raise CommandFailed(
            f"producer {producer_id} has no open transaction in {partition.topic} {partition.partition}; "
            f"`minibroker producers {partition.topic}` shows them"
        )

    def producers(self, topic: str, numbers: Collection[int]) -> list[ActiveProducer]:
        """Return the producers that the leaders of the partitions remember, of all partitions without numbers.

        Raises CommandFailed for a missing partition.
        """
        led = by_leader(self._client, chosen(partitions_of(self._client, [topic]), numbers))
        found = of_each(
            self._client,
            led,
            lambda broker: self._client.describe_producers(led[broker], broker_id=broker),
            "what it leads",
        )
        return sorted(
            ActiveProducer(
                topic,
                at.partition,
                row.producer_id,
                row.producer_epoch,
                row.last_sequence,
                None if row.last_timestamp == NONE else row.last_timestamp,
                row.coordinator_epoch,
                None if row.current_transaction_start_offset == NONE else row.current_transaction_start_offset,
            )
            for states in found.values()
            for at, state in states.items()
            for row in state.active_producers
        )
