"""Sends the markers of this broker's coordinator to the other leaders: WriteTxnMarkers v0, on a connection to each.

Markers that have come while a leader has not yet answered go to it in one request. A marker that is not answered has
LEADER_NOT_AVAILABLE, and its coordinator sends it again, by then maybe to another leader. As kafka 2.0.1
TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

import trio

from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetcher_manager import ConnectTo
from minibroker.broker.replica.other_broker import OtherBroker
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.errors import ErrorCode, known_error
from minibroker.protocol.messages.transactions import WriteTxnMarkersRequest
from minibroker.protocol.primitives import TopicPartition

logger = logging.getLogger(__name__)

VERSION = 0
MARKER_ROW = WriteTxnMarkersRequest.row("markers")

Errors = dict[TopicPartition, ErrorCode]


class Marker(NamedTuple):
    """The end of a producer's transaction, in these partitions."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: Set[TopicPartition]


class MarkerChannels:
    """A channel to each leader that gets markers, made with its first one."""

    def __init__(self, connect_to: ConnectTo, *, broker_id: int) -> None:
        self._connect_to = connect_to
        self._client_id = f"broker-{broker_id}-txn-marker-sender"
        self._channels: dict[int, MarkerChannel] = {}
        self._nursery: trio.Nursery | None = None

    def start(self, nursery: trio.Nursery) -> None:
        """Begin to send, in tasks of this nursery."""
        self._nursery = nursery
        for channel in self._channels.values():
            nursery.start_soon(channel.run)

    def send(self, leader_id: int, marker: Marker) -> Pending[Errors]:
        """Send a marker to the leader of its partitions; return their errors once it has answered."""
        channel = self._channels.get(leader_id)
        if channel is None:
            channel = self._channels[leader_id] = MarkerChannel(lambda: self._connect_to(leader_id, self._client_id))
            if self._nursery is not None:
                self._nursery.start_soon(channel.run)
        return channel.send(marker)


class MarkerChannel:
    """The markers for one leader."""

    def __init__(self, connect: Callable[[], OtherBroker]) -> None:
        self._connect = connect
        self._leader: OtherBroker | None = None
        self._waiting: list[tuple[Marker, Pending[Errors]]] = []
        self._has_come = trio.Event()

    def send(self, marker: Marker) -> Pending[Errors]:
        pending = Pending[Errors]()
        self._waiting.append((marker, pending))
        self._has_come.set()
        return pending

    async def run(self) -> None:
        try:
            while True:
                await self._has_come.wait()
                self._has_come = trio.Event()
                waiting, self._waiting = self._waiting, []
                errors = await self._ask([marker for marker, _ in waiting])
                for marker, pending in waiting:
                    answered = errors.get(marker.producer_id, {})
                    pending.resolve(
                        {each: answered.get(each, ErrorCode.LEADER_NOT_AVAILABLE) for each in marker.partitions}
                    )
        finally:
            self._disconnect()

    async def _ask(self, markers: Sequence[Marker]) -> dict[int, Errors]:
        """Return the errors by producer id; none without an answer."""
        request = WriteTxnMarkersRequest(markers=list(map(row_of, markers)))
        try:
            if self._leader is None:
                self._leader = self._connect()
            answer = await self._leader.ask(ApiKey.WRITE_TXN_MARKERS, VERSION, request)
        except ConnectionError as error:
            logger.info("%d markers are not written yet: %s", len(markers), error)
            self._disconnect()  # it may have another address by the next time
            return {}
        return {
            producer_id: {
                TopicPartition(name, number): known_error(code) for name, rows in topics for number, code in rows
            }
            for producer_id, topics in answer.markers
        }

    def _disconnect(self) -> None:
        if self._leader is not None:
            self._leader.close()
            self._leader = None


def row_of(marker: Marker) -> tuple[Any, ...]:
    topics: dict[str, list[int]] = {}
    for name, number in sorted(marker.partitions):
        topics.setdefault(name, []).append(number)
    row: tuple[Any, ...] = MARKER_ROW(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.is_commit,
        topics=list(topics.items()),
        coordinator_epoch=marker.coordinator_epoch,
    )
    return row
