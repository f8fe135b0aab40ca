"""A client of a whole cluster: it asks several brokers at once, with one deadline.

Several threads may ask: one of them polls all connections. A question is a generator, which yields the time until which
it can sleep. A question that any broker can answer goes to another one too where the first is late. A broker that is
late proves on a second connection that it lives: a process that stands still accepts connections and sends nothing.

A connection to another broker of the cluster begins with the question, in a version that the first broker has: its own
versions are asked for only where it does not take that, and before a request that changes something.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from minibroker.client.address import Address
from minibroker.client.connection import ANSWER_SECONDS, Connection, Sent, Versions, newest_common, polling, readied
from minibroker.client.errors import ClientError, NoAnswer, TooSlow, Unreachable
from minibroker.client.login import Login
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.client_ids import OF_COMMANDS
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.sasl_client import LoginError

CONNECT_SECONDS = 3.0
NEXT_ADDRESS_SECONDS = 0.25  # without an answer, until the next address is tried too
SECOND_CONNECTION_SECONDS = 0.1  # without an answer, until a broker is asked on a second connection too
LATER_SECONDS = 0.5  # that a question has at least
CONNECTIONS_MAX = 4  # to a broker
OTHER_SECONDS = 0.5  # without an answer, until another broker is asked too
PROOF_SECONDS = 1.0  # without an answer, until the broker is tried on another connection
SILENCE_SECONDS = 3.0  # until a broker that sends nothing on a new connection is taken to be silent
SILENT_SECONDS = 5.0  # that a silent broker is not asked again
CONTROLLER_SECONDS = 3.0  # until there is one
RETRY_SECONDS = 0.1
NOBODY = -1
ASKS = re.compile("Describe|List|Find|Fetch|Metadata|ApiVersions")  # names of APIs that change nothing
EVENTS_ONLY = float("inf")  # a task that sleeps until a connection goes on
DESCRIBE_QUORUM = 55  # an API of clusters without ZooKeeper

K = TypeVar("K")
T = TypeVar("T")
Task = Generator[float, None, T]


class Broker(NamedTuple):
    id: int
    address: Address
    rack: str | None

    def __str__(self) -> str:
        return f"broker {self.id} at {self.address}"


class Question(NamedTuple):
    """A request to a broker by its id; to any without one. `body` has the fields of all versions that may be used."""

    api_key: ApiKey
    body: Mapping[str, Any]
    broker: int | None = None

    @property
    def asks(self) -> bool:
        """Whether it changes nothing, so that several brokers may get it."""
        return ASKS.search(ASKED_TABLE[self.api_key].name) is not None


class Client:
    """A cluster's client, which several threads may use. All that asks raises ClientError and LoginError.

    A question to a broker that has others to answer goes over another connection, as those of one are answered in turn.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        login: Login | None = None,
        *,
        client_id: str = OF_COMMANDS,
        answer_seconds: float = ANSWER_SECONDS,
        until: Callable[[], float] = lambda: EVENTS_ONLY,
    ) -> None:
        """Connect to the first address that answers; each is tried a little after the one before it, or as that fails.

        `until` returns the time of `time.monotonic` at which a question has TooSlow. Raises Unreachable.
        """
        self.brokers: dict[int, Broker] = {}  # by id
        self.controller_id = NOBODY
        self._login = login
        self._client_id = client_id
        self._answer_seconds = answer_seconds
        self._until = until
        self._connections: dict[Address, list[Connection]] = {}
        self._changed = threading.Condition()
        self._is_polled = False  # by one of the threads
        self._woken, self._wakes = os.pipe()
        for descriptor in (self._woken, self._wakes):
            os.set_blocking(descriptor, False)
        self._versions: dict[Address, Versions] = {}
        self._offered: Versions = {}  # by the broker that was reached first
        self._silent_until: dict[Address, float] = {}
        silent_at = time.monotonic() + CONNECT_SECONDS
        contacts = [self._contact(address, silent_at) for address in addresses]
        contact = self._first(contacts, NEXT_ADDRESS_SECONDS, lambda error: True)
        found = self._run({None: contact}, self._limit(CONNECT_SECONDS + LATER_SECONDS)).get(None)
        if not isinstance(found, Address):
            slow = next((each.address for each in self._every() if each.has_answered), addresses[-1])
            self.close()
            raise found if isinstance(found, Unreachable) else Unreachable(slow, TooSlow(None))
        self.address: Address = found

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._changed:
            for each in self._every():
                each.close()
            for descriptor in (self._woken, self._wakes):
                os.close(descriptor)
            self._woken = self._wakes = -1

    @property
    def versions(self) -> Versions:
        """The versions of the broker that was reached first."""
        return self._offered

    @property
    def has_zookeeper(self) -> bool:
        return DESCRIBE_QUORUM not in self.versions

    # -- questions --------------------------------------------------------------------------------------------

    def ask(self, api_key: ApiKey, /, *, broker: int | None = None, **body: Any) -> Any:
        """A broker's answer, that of any without an id, in the newest version that both sides have."""
        return self.answer(Question(api_key, body, broker))

    def answer(self, question: Question) -> Any:
        answer = self.answers({None: question})[None]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answers(self, questions: Mapping[K, Question]) -> dict[K, Any]:
        """The answer to each question, or the error in place of it; all are asked at once."""
        if all(each.asks for each in questions.values()):
            until = self._limit(LATER_SECONDS)
        else:
            until = time.monotonic() + self._answer_seconds
        found = self._run({key: self._asked(question) for key, question in questions.items()}, until)
        return {key: found.get(key, TooSlow(each.broker)) for key, each in questions.items()}

    def at_controller(self, api_key: ApiKey, /, **body: Any) -> Any:
        """The answer of the controller; without ZooKeeper any broker passes the request on to it."""
        if not self.has_zookeeper:
            return self.ask(api_key, **body)
        deadline = time.monotonic() + CONTROLLER_SECONDS
        while True:
            if self.controller_id != NOBODY:
                answer = self.ask(api_key, broker=self.controller_id, **body)
                if ErrorCode.NOT_CONTROLLER not in codes_in(answer) or time.monotonic() > deadline:
                    return answer
            elif time.monotonic() > deadline:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            time.sleep(RETRY_SECONDS)
            self.metadata([])

    def metadata(self, topics: Sequence[str] | None = None) -> Any:
        """Ask for all topics, or for these names without creating any; note who the brokers are."""
        row = ASKED_TABLE[ApiKey.METADATA].request.row("topics")
        rows = None if topics is None else [row(name=name) for name in topics]
        body: dict[str, Any] = {"topics": rows, "allow_auto_topic_creation": False}
        answer = self.ask(ApiKey.METADATA, **body)
        self._learn(answer)
        is_known = all(row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for row in answer.topics)
        if not topics or is_known or len(self.brokers) == 1:
            return answer
        # One broker hears of a new topic before another: it does not exist where none has heard of it.
        every = self.answers({each: Question(ApiKey.METADATA, body, each) for each in self.brokers}).values()
        known = {
            row.name: row
            for each in every
            if not isinstance(each, Exception)
            for row in each.topics
            if row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        return answer._replace(topics=[known.get(row.name, row) for row in answer.topics])

    def leaders(self, topics: Collection[str]) -> dict[TopicPartition, int]:
        """The leader of each partition of these topics, below 0 for none."""
        rows = self.metadata(sorted(topics)).topics if topics else ()
        return {TopicPartition(row.name, each.partition): each.leader_id for row in rows for each in row.partitions}

    def led(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions of each leader, in their order; of NO_LEADER those without one."""
        wanted = sorted(partitions)
        leaders = self.leaders({at.topic for at in wanted})
        led: dict[int, list[TopicPartition]] = {}
        for at in wanted:
            led.setdefault(max(NO_LEADER, leaders.get(at, NO_LEADER)), []).append(at)
        return led

    def version_of(self, api_key: ApiKey) -> int:
        """The newest version that both sides have, as far as the first broker goes. Raises Unsupported."""
        return newest_common(ASKED_TABLE[api_key], self.versions)

    # -- tasks ------------------------------------------------------------------------------------------------

    def _run(self, tasks: dict[K, Task[Any]], until: float) -> dict[K, Any]:
        """The result or the error of each task, if it comes before that time."""
        found: dict[K, Any] = {}
        left = dict(tasks)
        while True:
            with self._changed:
                wake = self._step(left, found, until)
                is_over = not left or time.monotonic() >= until
                if is_over:
                    for task in left.values():
                        task.close()  # and the connection that it waits for: the next question must not wait behind it
                    return found
                if self._is_polled:
                    with suppress(BlockingIOError):
                        os.write(self._wakes, b"\0")  # what it polls may have changed
                    self._changed.wait(max(0.0, wake - time.monotonic()))
                    continue
                self._is_polled = True
                selector = polling(self._every(), self._woken)
            can_go_on: Sequence[Connection] = ()
            try:
                can_go_on = readied(selector, wake)
            finally:
                with self._changed:
                    self._is_polled = False
                    selector.close()
                    drain(self._woken)
                    for each in can_go_on:
                        each.go_on()
                    self._changed.notify_all()

    def _step(self, left: dict[K, Task[Any]], found: dict[K, Any], until: float) -> float:
        """Let each task go on as far as it can; the time until which all that are left can sleep."""
        wake = until
        for key, task in list(left.items()):
            try:
                wake = min(wake, next(task))
                continue
            except StopIteration as done:
                found[key] = done.value
            except (ClientError, LoginError, KafkaError) as error:
                found[key] = error
            del left[key]
            wake = 0.0  # it may have closed what another task waits for
            self._changed.notify_all()
        return wake

    def _limit(self, at_least_seconds: float) -> float:
        """The time until which a question that begins now may wait."""
        now = time.monotonic()
        return min(now + self._answer_seconds, max(self._until(), now + at_least_seconds))

    def _contact(self, address: Address, silent_at: float) -> Task[Address]:
        """The address, once a broker has answered there who it is: with its versions, and the brokers.

        A late broker is asked for both at once, on two connections, since it answers those of one in turn.
        """
        row = ASKED_TABLE[ApiKey.METADATA]
        second_at = time.monotonic() + SECOND_CONNECTION_SECONDS
        first = self._connection(address)
        first.send_versions()
        asked = [(first, first.send(ApiKey.METADATA, 1, row.request(topics=[])))]
        while first.versions is None or not any(sent.is_answered for _, sent in asked):
            now = time.monotonic()
            if first.error is not None:
                raise Unreachable(address, first.error)
            if now >= silent_at and not first.has_answered:
                late = ConnectionError("it accepts connections, and answers nothing")
                raise Unreachable(address, late if first.is_open else TimeoutError())
            if len(asked) == 1 and now >= second_at:
                second = self._connection(address, is_new=True)
                asked.append((second, second.send(ApiKey.METADATA, 1, row.request(topics=[]))))
            yield second_at if len(asked) == 1 else silent_at if now < silent_at else EVENTS_ONLY
        self._versions[address] = self._offered = first.versions
        self._learn(next(sent.answer for _, sent in asked if sent.is_answered))
        return address

    def _asked(self, question: Question) -> Task[Any]:
        if question.broker is not None:
            return self._of_broker(question, question.broker)
        brokers = [self._of_broker(question, each.id) for each in self._likeliest_first()]
        return self._first(
            brokers or [self._answered(question, Broker(NOBODY, self.address, None))],
            OTHER_SECONDS if question.asks else EVENTS_ONLY,
            lambda error: isinstance(error, NoAnswer) and not error.may_be_done,
        )

    def _first(self, tasks: Iterable[Task[T]], after_seconds: float, goes_on: Callable[[Exception], bool]) -> Task[T]:
        """The first result. A task begins as the one before it has failed, or has had no result for a while."""
        waiting, begun, failures = list(tasks), list[Task[T]](), list[Exception]()
        next_at = 0.0
        while waiting or begun:
            now = time.monotonic()
            if waiting and now >= next_at:
                begun.append(waiting.pop(0))
                next_at = now + after_seconds
            wake = next_at if waiting else EVENTS_ONLY
            for task in list(begun):
                try:
                    wake = min(wake, next(task))
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                except (ClientError, LoginError) as error:
                    if not goes_on(error):
                        raise
                    begun.remove(task)
                    failures.append(error)
                    wake = next_at = 0.0
            if begun or waiting:
                yield wake
        raise failures[-1]

    def _of_broker(self, question: Question, broker_id: int) -> Task[Any]:
        """The answer of that broker; a question is asked once more if its connection ends."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            return (yield from self._answered(question, broker))
        except NoAnswer as error:
            if error.is_silent or not question.asks:
                raise
            self._versions.pop(broker.address, None)
        return (yield from self._answered(question, broker, has_own_versions=True))

    def _answered(self, question: Question, broker: Broker, *, has_own_versions: bool = False) -> Task[Any]:
        if time.monotonic() < self._silent_until.get(broker.address, 0.0):
            raise no_answer(broker, is_silent=True)
        connection = self._connection(broker.address)
        api = ASKED_TABLE[question.api_key]
        may_be_done = False
        try:
            versions = self._versions.get(broker.address)
            if versions is None and (has_own_versions or not question.asks):
                yield from self._proven(connection, broker)
                versions = self._versions[broker.address] = connection.versions or {}
            version = newest_common(api, self.versions if versions is None else versions)
            sent = connection.send(question.api_key, version, api.request(**question.body))
            may_be_done = not question.asks
            if not question.asks:
                return (yield from answer_on(connection, sent))
            return (yield from self._patient(connection, sent, broker, question.body.get("max_wait_ms", 0) / 1000))
        except (OSError, LoginError) as error:
            raise no_answer(broker, error, may_be_done=may_be_done) from error
        except GeneratorExit:
            connection.close()
            raise

    def _proven(self, connection: Connection, broker: Broker) -> Task[None]:
        """Wait until the broker has answered on this connection at all. Raises NoAnswer."""
        sent = connection.send_versions()
        silent_at = time.monotonic() + SILENCE_SECONDS
        for _ in answer_on(connection, sent):
            if time.monotonic() >= silent_at:
                self._silent_until[broker.address] = time.monotonic() + SILENT_SECONDS
                for each in self._connections.pop(broker.address, ()):
                    each.close()
                raise no_answer(broker, is_silent=True)
            yield silent_at

    def _patient(self, connection: Connection, sent: Sent, broker: Broker, seconds: float) -> Task[Any]:
        """The answer of a broker that proves to live on another connection, if it is late."""
        proof_at = time.monotonic() + PROOF_SECONDS + seconds
        answer = answer_on(connection, sent)
        proof: Task[None] | None = None
        while True:
            try:
                next(answer)
            except StopIteration as done:
                return done.value
            wake = proof_at
            if time.monotonic() >= proof_at:
                if proof is None:
                    proof = self._proven(self._connection(broker.address, is_new=True), broker)
                wake = next(proof, EVENTS_ONLY)
            yield wake

    # -- brokers ----------------------------------------------------------------------------------------------

    def _every(self) -> list[Connection]:
        return [each for several in self._connections.values() for each in several]

    def _connection(self, address: Address, *, is_new: bool = False) -> Connection:
        """A connection that is kept and has nothing to wait for; else a new one, as long as there are few."""
        kept = self._connections[address] = [each for each in self._connections.get(address, ()) if each.error is None]
        found = min(kept, key=lambda each: each.unanswered, default=None)
        if found is None or is_new or (found.unanswered and len(kept) < CONNECTIONS_MAX):
            found = Connection(address, self._login, client_id=self._client_id)
            kept.append(found)
        return found

    def _learn(self, answer: Any) -> None:
        """Note the brokers and the controller of a Metadata answer."""
        self.brokers = {
            row.node_id: Broker(row.node_id, Address(row.host, row.port), row.rack)
            for row in sorted(answer.brokers, key=lambda row: int(row.node_id))
        }
        self.controller_id = answer.controller_id

    def _likeliest_first(self) -> list[Broker]:
        """The brokers in the order to ask them: connected ones, the one that named the others, the silent ones last."""
        now = time.monotonic()

        def rank(broker: Broker) -> tuple[bool, bool, bool]:
            is_connected = any(each.error is None for each in self._connections.get(broker.address, ()))
            is_silent = now < self._silent_until.get(broker.address, 0.0)
            return is_silent, not is_connected, broker.address != self.address

        return sorted(self.brokers.values(), key=rank)


def no_answer(
    broker: Broker, error: Exception | None = None, *, is_silent: bool = False, may_be_done: bool = False
) -> NoAnswer:
    reason = "" if error is None else getattr(error, "strerror", None) or str(error)
    return NoAnswer(str(broker), reason, is_silent=is_silent, may_be_done=may_be_done)


def answer_on(connection: Connection, sent: Sent) -> Task[Any]:
    """The answer. Raises the error of the connection."""
    while not sent.is_answered:
        if connection.error is not None:
            raise connection.error
        yield EVENTS_ONLY
    return sent.answer


def drain(descriptor: int) -> None:
    with suppress(OSError):
        os.read(descriptor, 1 << 12)


def codes_in(answer: Any) -> set[int]:
    """The error codes of an answer, and of the rows in it."""
    found: set[int] = set()
    for name, value in answer._asdict().items():
        if name == "error_code":
            found.add(value)
        elif isinstance(value, list):
            found |= {code for row in value if hasattr(row, "_asdict") for code in codes_in(row)}
    return found
