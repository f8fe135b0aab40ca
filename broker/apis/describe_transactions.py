"""DescribeProducers v0, DescribeTransactions v0, ListTransactions v0-v2: the state of producers and transactions.

As Kafka 3.0, where administrators find hanging transactions with them. ListTransactions v1 names a duration, v2 an
expression for the transactional ids.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.coordinator import TransactionCoordinator
from minibroker.broker.transaction.transaction import Transaction, TransactionState
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.transactions import (
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    ListTransactionsResponse,
)
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_OFFSET
from minibroker.protocol.regular_expressions import Regex, RegexError
from minibroker.protocol.transaction_records import by_topic
from minibroker.storage.producers.producer_append import ProducerStateEntry

STATES = {state.title for state in TransactionState}

Body = Any


class DescribeTransactionApis:
    """Handlers that only read."""

    def __init__(self, coordinator: TransactionCoordinator, replica_manager: ReplicaManager, clock: Clock) -> None:
        self._coordinator = coordinator
        self._replica_manager = replica_manager
        self._clock = clock

    def routes(self) -> Routes:
        return {
            ApiKey.DESCRIBE_PRODUCERS: self.describe_producers,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe_transactions,
            ApiKey.LIST_TRANSACTIONS: self.list_transactions,
        }

    def describe_producers(self, request: Request, client: Client) -> Body:
        topics = [
            (topic.name, [self._producers_of(TopicPartition(topic.name, each)) for each in topic.partitions])
            for topic in request.body.topics
        ]
        return DescribeProducersResponse(topics=topics)

    def _producers_of(self, topic_partition: TopicPartition) -> Body:
        make_row = DescribeProducersResponse.row("topics.partitions")
        try:
            log = self._replica_manager.partitions.led(topic_partition).log
        except KafkaError as error:
            return make_row(partition=topic_partition.partition, error_code=error.code, error_message=error.message)
        producers = [producer_row(entry) for entry in log.producer_state.producers_and_remembered.values()]
        return make_row(partition=topic_partition.partition, active_producers=producers)

    def describe_transactions(self, request: Request, client: Client) -> Body:
        rows = [self._described(transactional_id) for transactional_id in request.body.transactional_ids]
        return DescribeTransactionsResponse(transactions=rows)

    def _described(self, transactional_id: str) -> Body:
        make_row = DescribeTransactionsResponse.row("transactions")
        if not transactional_id:
            return make_row(error_code=ErrorCode.INVALID_REQUEST, transactional_id=transactional_id)
        transaction = self._coordinator.transactions.get(transactional_id)
        if transaction is None:
            return make_row(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id)
        metadata = transaction.metadata
        return make_row(
            transactional_id=transactional_id,
            state=transaction.state.title,
            timeout_ms=metadata.timeout_ms,
            start_time_ms=metadata.start_ms,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            topics=by_topic(metadata.partitions),
        )

    def list_transactions(self, request: Request, client: Client) -> Body:
        """List the transactions in one of the states and of one of the producers; an empty list stands for all.

        Raises KafkaError(INVALID_REGULAR_EXPRESSION).
        """
        body, now_ms = request.body, self._clock.wall_ms()
        states, producer_ids = set(body.state_filters), set(body.producer_id_filters)
        try:
            pattern = Regex(body.transactional_id_pattern) if body.transactional_id_pattern else None
        except RegexError as error:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

        def is_wanted(transaction: Transaction) -> bool:
            metadata = transaction.metadata
            return (
                (not states or transaction.state.title in states)
                and (not producer_ids or metadata.producer_id in producer_ids)
                and (body.duration_filter_ms < 0 or now_ms - metadata.start_ms > body.duration_filter_ms)
                and (pattern is None or pattern.matches(transaction.transactional_id))
            )

        rows = [
            (transactional_id, transaction.metadata.producer_id, transaction.state.title)
            for transactional_id, transaction in self._coordinator.transactions.items()
            if is_wanted(transaction)
        ]
        return ListTransactionsResponse(unknown_state_filters=sorted(states - STATES), transactions=rows)


def producer_row(entry: ProducerStateEntry) -> Body:
    first_offset = entry.current_txn_first_offset
    return (
        entry.producer_id,
        entry.epoch,
        entry.last_sequence,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        NO_OFFSET if first_offset is None else first_offset,
    )
