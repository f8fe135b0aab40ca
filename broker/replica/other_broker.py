"""The other brokers of a cluster, as the parts that ask one need them; `wings/several/peers.py` has the connections.

Channels ask them. What has come while a broker has not yet answered goes to it next, in one request where the channels
can do that. What is not answered may come again, by then maybe to another broker. As kafka 2.0.1
TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import trio

from minibroker.broker.pending import Pending, Timeout, then
from minibroker.broker.time.clock import Clock
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)

FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 20, 1000
ANSWER_SECONDS = 10.0  # by then another broker may lead
RETRIED = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class OtherBroker(Protocol):
    """A connection to another broker, made for the first request."""

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        """Send a request, return the body of its answer. Raises ConnectionError."""

    def close(self) -> None: ...


# Makes a connection to a broker, with a client id; raises ConnectionError while the broker's address is unknown.
ConnectTo = Callable[[int, str], OtherBroker]


class Ways(Protocol):
    """Makes connections to the other brokers."""

    def to(self, broker_id: int, client_id: str) -> OtherBroker:
        """Connect to a broker, as a client of it. Raises ConnectionError while its address is unknown."""

    def at(self, host: str, port: int) -> OtherBroker:
        """Connect to an address, as this broker."""


class OtherBrokers:
    """The ways to the other brokers: none, until a wing makes them."""

    def __init__(self) -> None:
        self._ways: Ways | None = None

    def reach_by(self, ways: Ways) -> None:
        self._ways = ways

    def to(self, broker_id: int, client_id: str) -> OtherBroker:
        return self._known().to(broker_id, client_id)

    def at(self, host: str, port: int) -> OtherBroker:
        return self._known().at(host, port)

    def _known(self) -> Ways:
        if self._ways is None:
            raise ConnectionError("this broker reaches no other one")
        return self._ways


class Channels(ABC, Generic[Item, Answer]):
    """A channel to each broker that is asked for items of one kind, made with its first one."""

    def __init__(self, connect_to: ConnectTo, *, client_id: str) -> None:
        self._connect_to = connect_to
        self._client_id = client_id
        self._channels: dict[int, Channel[Item, Answer]] = {}
        self._nursery: trio.Nursery | None = None

    @abstractmethod
    async def ask(self, broker: OtherBroker, items: Sequence[Item]) -> Sequence[Answer]:
        """Ask a broker; return the answer to each item. Raises ConnectionError."""

    @abstractmethod
    def unanswered(self, item: Item) -> Answer:
        """Return what stands for the answer of a broker that was not reached."""

    def start(self, nursery: trio.Nursery) -> None:
        """Begin to send, in tasks of this nursery."""
        self._nursery = nursery
        for channel in self._channels.values():
            nursery.start_soon(channel.run)

    def send(self, broker_id: int, item: Item) -> Pending[Answer]:
        """Ask a broker for an item; return its answer once it has come."""
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = Channel(self, lambda: self._connect_to(broker_id, self._client_id))
            if self._nursery is not None:
                self._nursery.start_soon(channel.run)
        return channel.send(item)


class Channel(Generic[Item, Answer]):
    """The items for one broker."""

    def __init__(self, channels: Channels[Item, Answer], connect: Callable[[], OtherBroker]) -> None:
        self._channels = channels
        self._connect = connect
        self._broker: OtherBroker | None = None
        self._waiting: list[tuple[Item, Pending[Answer]]] = []
        self._has_come = trio.Event()

    def send(self, item: Item) -> Pending[Answer]:
        pending = Pending[Answer]()
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
                for (_, pending), answer in zip(waiting, answered, strict=True):
                    pending.resolve(answer)
        finally:
            self._disconnect()

    async def _ask(self, items: Sequence[Item]) -> Sequence[Answer]:
        try:
            if self._broker is None:
                self._broker = self._connect()
            return await self._channels.ask(self._broker, items)
        except ConnectionError as error:
            logger.info("%d requests wait for another broker: %s", len(items), error)
            self._disconnect()  # it may have another address by the next time
            return [self._channels.unanswered(item) for item in items]

    def _disconnect(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None


Row = Any  # of an answer: what a partition has, with its error code


class Failed(NamedTuple):
    """The row of a partition without an answer."""

    error_code: ErrorCode
    error_message: str | None = None
    offset: int = -1


UNANSWERED = Failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Question(NamedTuple):
    """A request of one partition: to the broker that `where` finds, or answered by `here` if that is this one."""

    where: Callable[[], int | None]
    here: Callable[[], Row | Pending[Row]]
    api_key: ApiKey
    version: int
    request: Any
    rows: str  # the array of the answer that has the partition's topic


class Questions(Channels[Question, Row]):
    """Asks the leader of a partition, which may be this broker, until there is an answer or the time is over.

    A request may arrive twice, and has to change the same then.
    """

    def __init__(self, connect_to: ConnectTo, *, client_id: str, broker_id: int, clock: Clock, timer: Timer) -> None:
        super().__init__(connect_to, client_id=client_id)
        self._broker_id = broker_id
        self._clock = clock
        self._timer = timer
        self._is_stopping = False

    def stop(self) -> None:
        """Ask nothing again: this broker ends."""
        self._is_stopping = True

    def put(self, question: Question, patience_ms: int) -> Row | Pending[Row]:
        """Ask; return the row of the answer, or after so long the last failure."""
        return self._put(question, self._clock.monotonic_ms() + patience_ms, FIRST_PAUSE_MS)

    def _put(self, question: Question, deadline_ms: int, pause_ms: int) -> Row | Pending[Row]:
        def unless_retried(row: Row) -> Row | Pending[Row]:
            now_ms = self._clock.monotonic_ms()
            if row.error_code not in RETRIED or now_ms >= deadline_ms or self._is_stopping:
                return row
            again = Pending[Row]()
            longer_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
            ask = Timeout(lambda: again.resolve(self._put(question, deadline_ms, longer_ms)))
            self._timer.add(ask, now_ms + pause_ms)
            return again

        return then(self._once(question), unless_retried)

    def _once(self, question: Question) -> Row | Pending[Row]:
        broker_id = question.where()
        if broker_id is None or broker_id < 0:
            return UNANSWERED
        if broker_id != self._broker_id:
            return self.send(broker_id, question)
        try:
            return question.here()
        except KafkaError as error:
            return Failed(error.code, error.message)

    async def ask(self, broker: OtherBroker, items: Sequence[Question]) -> Sequence[Row]:
        try:
            with trio.fail_after(len(items) * ANSWER_SECONDS):
                answers = [await broker.ask(each.api_key, each.version, each.request) for each in items]
        except trio.TooSlowError:
            raise ConnectionError("a broker does not answer") from None
        return [row_of(getattr(answer, item.rows)) for answer, item in zip(answers, items, strict=True)]

    def unanswered(self, item: Question) -> Row:
        return UNANSWERED


def row_of(topics: Any) -> Row:
    """The only partition of an answer. A broker that refuses to be asked answers none."""
    return topics[0][1][0] if topics and topics[0][1] else Failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
