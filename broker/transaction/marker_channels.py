"""Asks other brokers for this one's transactions, on a connection to each: for markers, and for partitions to be added.

What is not answered is not there yet, and comes again. As kafka 2.0.1 TransactionMarkerChannelManager.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Set
from typing import Any, NamedTuple, TypeVar

from minibroker.broker.replica.other_broker import Channels, OtherBroker
from minibroker.broker.transaction.transaction import ProducerIdentity
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.errors import ErrorCode, known_error
from minibroker.protocol.messages.transactions import AddPartitionsToTxnRequest, WriteTxnMarkersRequest
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.transaction_records import by_topic

MARKER_ROW = WriteTxnMarkersRequest.row("markers")

Errors = dict[TopicPartition, ErrorCode]


Item = TypeVar("Item", bound="Marker | Addition")


class Marker(NamedTuple):
    """The end of a producer's transaction, in these partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: Set[TopicPartition]
    transaction_version: int = 0  # from 2 on, the epoch is above that of the records


class Addition(NamedTuple):
    """Partitions that are to take part in a transaction, or only to be looked for in it."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: Set[TopicPartition]
    is_only_verified: bool


class ItemChannels(Channels[Item, Errors]):
    """Channels whose answer is the error of each partition of an item; UNANSWERED stands for a missing one."""

    UNANSWERED: ErrorCode

    @abstractmethod
    async def errors_of(self, broker: OtherBroker, items: Sequence[Item]) -> Sequence[Errors]:
        """Ask a broker; return the errors of each item, as far as it has answered. Raises ConnectionError."""

    async def ask(self, broker: OtherBroker, items: Sequence[Item]) -> Sequence[Errors]:
        answered = await self.errors_of(broker, items)
        return [
            {each: errors.get(each, self.UNANSWERED) for each in item.partitions}
            for item, errors in zip(items, answered, strict=True)
        ]

    def unanswered(self, item: Item) -> Errors:
        return dict.fromkeys(item.partitions, self.UNANSWERED)


class MarkerChannels(ItemChannels[Marker]):
    """Has the leaders of partitions write markers, by WriteTxnMarkers v0."""

    UNANSWERED = ErrorCode.LEADER_NOT_AVAILABLE

    async def errors_of(self, broker: OtherBroker, items: Sequence[Marker]) -> Sequence[Errors]:
        request = WriteTxnMarkersRequest(markers=list(map(row_of, items)))
        answer = await broker.ask(ApiKey.WRITE_TXN_MARKERS, 0, request)
        errors: dict[int, Errors] = {producer_id: errors_in(topics) for producer_id, topics in answer.markers}
        return [errors.get(marker.producer_id, {}) for marker in items]


class AdditionChannels(ItemChannels[Addition]):
    """Has the coordinators of transactions add partitions, or look for them, by AddPartitionsToTxn v5."""

    UNANSWERED = ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def errors_of(self, broker: OtherBroker, items: Sequence[Addition]) -> Sequence[Errors]:
        rows = [
            (transactional_id, *producer, is_only_verified, by_topic(partitions))
            for transactional_id, producer, partitions, is_only_verified in items
        ]
        request = AddPartitionsToTxnRequest(transactions=rows)
        answer = await broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, request)
        if len(answer.transactions) < len(items):
            return [{}] * len(items)  # it does not let this broker ask
        return [errors_in(row.topics) for row in answer.transactions]


def errors_in(topics: Any) -> Errors:
    return {TopicPartition(name, number): known_error(code) for name, rows in topics for number, code in rows}


def row_of(marker: Marker) -> Any:
    return MARKER_ROW(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.is_commit,
        topics=by_topic(marker.partitions),
        coordinator_epoch=marker.coordinator_epoch,
    )
