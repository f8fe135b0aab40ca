"""Asks other brokers for this one's transactions, on a connection to each: for markers, and for partitions to be added.

What has come while a broker has not yet answered goes to it in one request. What is not answered is not there yet, and
comes again, by then maybe to another broker. As kafka 2.0.1 TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence, Set
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from minibroker.broker.pending import Pending
from minibroker.broker.replica.other_broker import ConnectTo, OtherBroker
from minibroker.broker.transaction.transaction import ProducerIdentity
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.errors import ErrorCode, known_error
from minibroker.protocol.messages.transactions import AddPartitionsToTxnRequest, WriteTxnMarkersRequest
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.transaction_records import by_topic

logger = logging.getLogger(__name__)

VERSION = 0
MARKER_ROW = WriteTxnMarkersRequest.row("markers")

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


class Channels(ABC, Generic[Item]):
    """A channel to each broker that is asked for items of one kind, made with its first one."""

    UNANSWERED: ErrorCode

    def __init__(self, connect_to: ConnectTo, *, client_id: str) -> None:
        self._connect_to = connect_to
        self._client_id = client_id
        self._channels: dict[int, Channel[Item]] = {}
        self._nursery: trio.Nursery | None = None

    @abstractmethod
    async def ask(self, broker: OtherBroker, items: Sequence[Item]) -> Sequence[Errors]:
        """Ask a broker; return the errors of each item. Raises ConnectionError."""

    def start(self, nursery: trio.Nursery) -> None:
        """Begin to send, in tasks of this nursery."""
        self._nursery = nursery
        for channel in self._channels.values():
            nursery.start_soon(channel.run)

    def send(self, broker_id: int, item: Item) -> Pending[Errors]:
        """Ask a broker for an item; return the errors of its partitions once it has answered."""
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = Channel(self, lambda: self._connect_to(broker_id, self._client_id))
            if self._nursery is not None:
                self._nursery.start_soon(channel.run)
        return channel.send(item)


class Channel(Generic[Item]):
    """The items for one broker."""

    def __init__(self, channels: Channels[Item], connect: Callable[[], OtherBroker]) -> None:
        self._channels = channels
        self._connect = connect
        self._broker: OtherBroker | None = None
        self._waiting: list[tuple[Item, Pending[Errors]]] = []
        self._has_come = trio.Event()

    def send(self, item: Item) -> Pending[Errors]:
        pending = Pending[Errors]()
        self._waiting.append((item, pending))
        self._has_come.set()
        return pending

    async def run(self) -> None:
        try:
            while True:
                await self._has_come.wait()
                self._has_come = trio.Event()
                waiting, self._waiting = self._waiting, []
                answered = await self._ask([item for item, _ in waiting])
                for (item, pending), errors in zip(waiting, answered, strict=True):
                    pending.resolve({each: errors.get(each, self._channels.UNANSWERED) for each in item.partitions})
        finally:
            self._disconnect()

    async def _ask(self, items: Sequence[Item]) -> Sequence[Errors]:
        """Return the errors of each item; none without an answer."""
        try:
            if self._broker is None:
                self._broker = self._connect()
            return await self._channels.ask(self._broker, items)
        except ConnectionError as error:
            logger.info("%d transactions wait for another broker: %s", len(items), error)
            self._disconnect()  # it may have another address by the next time
            return [{}] * len(items)

    def _disconnect(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None


class MarkerChannels(Channels[Marker]):
    """Has the leaders of partitions write markers, by WriteTxnMarkers v0."""

    UNANSWERED = ErrorCode.LEADER_NOT_AVAILABLE

    async def ask(self, broker: OtherBroker, items: Sequence[Marker]) -> Sequence[Errors]:
        request = WriteTxnMarkersRequest(markers=list(map(row_of, items)))
        answer = await broker.ask(ApiKey.WRITE_TXN_MARKERS, 0, request)
        errors: dict[int, Errors] = {producer_id: errors_of(topics) for producer_id, topics in answer.markers}
        return [errors.get(marker.producer_id, {}) for marker in items]


class AdditionChannels(Channels[Addition]):
    """Has the coordinators of transactions add partitions, or look for them, by AddPartitionsToTxn v5."""

    UNANSWERED = ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def ask(self, broker: OtherBroker, items: Sequence[Addition]) -> Sequence[Errors]:
        rows = [
            (transactional_id, *producer, is_only_verified, by_topic(partitions))
            for transactional_id, producer, partitions, is_only_verified in items
        ]
        request = AddPartitionsToTxnRequest(transactions=rows)
        answer = await broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, request)
        if len(answer.transactions) < len(items):
            return [{}] * len(items)  # it does not let this broker ask
        return [errors_of(row.topics) for row in answer.transactions]


def errors_of(topics: Any) -> Errors:
    return {TopicPartition(name, number): known_error(code) for name, rows in topics for number, code in rows}


def row_of(marker: Marker) -> Any:
    return MARKER_ROW(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.is_commit,
        topics=by_topic(marker.partitions),
        coordinator_epoch=marker.coordinator_epoch,
    )
