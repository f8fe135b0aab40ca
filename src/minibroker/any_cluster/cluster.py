"""Connects a command or a page to a cluster, and explains in a line what goes wrong there.

Every failure inside `connected` is a CommandFailed with the next step.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, NamedTuple, TypeVar, cast

from minibroker import patience
from minibroker.admin.outcomes import REQUEST_TIMEOUT, advice_for, explained
from minibroker.any_cluster.bootstrap import Cluster, Properties
from minibroker.any_cluster.client_properties import OF_LOGINS, normalized, typed
from minibroker.any_cluster.logins import login_of, protocol_of, refusal
from minibroker.any_cluster.shortfalls import lacks
from minibroker.client import coordinators
from minibroker.client.address import Address
from minibroker.client.client import Broker, Client, Question
from minibroker.client.coordinators import OF_GROUPS
from minibroker.client.errors import (
    ClientError,
    NoAnswer,
    TooSlow,
    Unreachable,
    check,
    error_name,
)
from minibroker.client.login import WrongProtocol
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.client_ids import OF_COMMANDS
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.sasl_client import LoginError

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
CONNECT_SECONDS = 3.0
QUESTIONS_AT_ONCE = 16
ANSWER_MS = 30_000
NO_PROPERTIES: Properties = {}
FIRST_OF_CONSUMER_PROTOCOL = 1  # of ConsumerGroupHeartbeat, in 4.0; clients do not take the version before
CLASSIC = "classic"  # the protocol of groups that every client speaks
OR_ANOTHER = "or name another with --bootstrap-server HOST:PORT"
# What all commands take, besides what a login takes.
ALWAYS_KNOWN = OF_LOGINS | {
    "security.protocol", "sasl.mechanisms", "sasl.username", "sasl.password", "client.id", REQUEST_TIMEOUT,
    "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
}  # fmt: skip
# The API and the version of it that a release of Kafka brought, the newest release first.
RELEASES: tuple[tuple[tuple[int, ...], int, int], ...] = (
    ((4, 4), 94, 0), ((4, 3), ApiKey.DESCRIBE_LOG_DIRS, 5), ((4, 2), ApiKey.LIST_OFFSETS, 11),
    ((4, 1), ApiKey.PRODUCE, 13), ((4, 0), ApiKey.LIST_OFFSETS, 10), ((3, 9), ApiKey.FETCH, 17),
    ((3, 8), ApiKey.PRODUCE, 11), ((3, 7), ApiKey.FETCH, 16),
    ((3, 6), ApiKey.ADD_PARTITIONS_TO_TXN, 4), ((3, 5), ApiKey.FETCH, 15), ((3, 4), ApiKey.LEADER_AND_ISR, 7),
    ((3, 3), ApiKey.DESCRIBE_ACLS, 3), ((3, 2), ApiKey.JOIN_GROUP, 9), ((3, 1), ApiKey.FETCH, 13),
    ((3, 0), ApiKey.LIST_OFFSETS, 7), ((2, 8), ApiKey.PRODUCE, 9), ((2, 7), ApiKey.FETCH, 12),
    ((2, 6), ApiKey.DESCRIBE_CLIENT_QUOTAS, 0), ((2, 5), ApiKey.DESCRIBE_ACLS, 2), ((2, 4), ApiKey.PRODUCE, 8),
    ((2, 3), ApiKey.FETCH, 11), ((2, 2), ApiKey.LIST_OFFSETS, 5), ((2, 1), ApiKey.FETCH, 10), ((2, 0), ApiKey.FETCH, 8),
    ((1, 1), ApiKey.FETCH, 7), ((1, 0), ApiKey.METADATA, 5), ((0, 11), ApiKey.METADATA, 4),
    ((0, 10), ApiKey.METADATA, 0),
)  # fmt: skip


class ClusterFacts(NamedTuple):
    """A cluster with rows of Metadata. Its controller is below 0 for none, and is a process of its own in some."""

    cluster_id: str | None
    controller_id: int
    brokers: list[Broker]  # that are alive
    topics: list[Any]


@contextmanager
def connected(cluster: Cluster) -> Iterator[Client]:
    """A client of the cluster behind the first address that answers. Raises CommandFailed, also for later failures."""
    with reached(cluster.addresses, checked(cluster.properties)) as client, failures_explained(client.address):
        yield client


def reached(addresses: Sequence[Address], properties: Properties) -> Client:
    """A client with the login of the properties. Raises the CommandFailed of the last address, and BadValue."""
    wait_as_asked(properties)
    try:
        return Client(
            addresses,
            login_of(properties),
            client_id=properties.get("client.id", OF_COMMANDS),
            answer_seconds=typed(REQUEST_TIMEOUT, properties.get(REQUEST_TIMEOUT, str(ANSWER_MS)), ANSWER_MS) / 1000,
            until=patience.until,
        )
    except Unreachable as error:
        raise CommandFailed(unreachable(error.address, error.__cause__, properties)) from error


def first_reachable(addresses: Sequence[Address], properties: Properties = NO_PROPERTIES) -> Address:
    """The address that is first to answer as a Kafka broker. Raises as `reached`."""
    with reached(addresses, properties) as client:
        return client.address


def checked(properties: Properties) -> Properties:
    """The properties under one name each. Raises BadValue for an unknown one."""
    given = normalized(properties)
    if not given.keys() <= ALWAYS_KNOWN:
        from minibroker.any_cluster.kafka_python import check_known  # slow to import

        check_known(given)
    return given


def unreachable(address: Address, error: BaseException | None, properties: Properties) -> str:
    """Why no broker answers at an address, with the next step."""
    if isinstance(error, LoginError) and (protocol_of(properties) != "PLAINTEXT" or type(error) is not WrongProtocol):
        return refusal(error, address, properties)
    if isinstance(error, ConnectionRefusedError):
        return f"no broker at {address}; start one with `minibroker serve`, {OR_ANOTHER}"
    if isinstance(error, socket.gaierror):
        return f"unknown host in {address} ({error.strerror}); correct it, {OR_ANOTHER}"
    if isinstance(error, TooSlow):
        return f"the broker at {address} has not answered in time; {advice_for(error)}"
    if isinstance(error, TimeoutError):
        return f"no answer from {address} within {CONNECT_SECONDS:.0f} s; check that a broker runs there, {OR_ANOTHER}"
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"cannot reach {address} ({error.strerror}); correct it, {OR_ANOTHER}"
    protocol = protocol_of(properties)
    if protocol == "PLAINTEXT":
        return (
            f"no Kafka broker answers in PLAINTEXT at {address}; wait until it has started, correct the port, "
            f"{OR_ANOTHER}; for TLS or SASL set -X security.protocol=SSL, SASL_SSL or SASL_PLAINTEXT"
        )
    return (
        f"no Kafka broker answers in {protocol} at {address} ({error}); correct the properties of -X and "
        f"--command-config, {OR_ANOTHER}"
    )


def wait_as_asked(properties: Properties) -> None:
    """Lift the deadline of the command or the page, if the user names the time that an answer may take."""
    if REQUEST_TIMEOUT in properties:
        patience.lift()


def check_group_protocol(client: Client, properties: Properties) -> None:
    """Raises CommandFailed if they ask for the consumer protocol, and the cluster has none, or the preview of 3.7."""
    is_classic = properties.get("group.protocol", CLASSIC).lower() == CLASSIC
    _, last = client.versions.get(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 0))
    if not is_classic and last < FIRST_OF_CONSUMER_PROTOCOL:
        raise CommandFailed(
            "the cluster does not have group.protocol=consumer; leave that out, or use Apache Kafka 4.0 or later"
        )


# -- what the cluster is ----------------------------------------------------------------------------------------


def topics_of(client: Client, names: Collection[str] | None = None) -> list[Any]:
    """The rows of Metadata of these topics, of all without names."""
    rows: list[Any] = client.metadata(None if names is None else list(names)).topics if names or names is None else []
    return rows


def described_cluster(client: Client, topics: Sequence[str] | None = None) -> ClusterFacts:
    """The cluster with these topics, with all without names: what one question answers."""
    answer = client.metadata(topics)
    brokers = list(client.brokers.values())
    return ClusterFacts(answer.cluster_id, controller_of(client, answer), brokers, answer.topics)


def brokers_of(client: Client) -> list[Address]:
    """The addresses at which the brokers of the cluster listen for this client."""
    client.metadata([])
    return [each.address for each in client.brokers.values()]


def controller_of(client: Client, answer: Any) -> int:
    """The id of the controller, below 0 for none. Brokers without ZooKeeper answer with any of them in Metadata."""
    if not client.has_zookeeper:
        rows = [("__cluster_metadata", [(0,)])]
        with suppress(KafkaError):  # without the right to describe the cluster, which most users have not
            found = client.ask(ApiKey.DESCRIBE_QUORUM, topics=rows)
            check(found.error_code)
            return int(found.topics[0].partitions[0].leader_id)
    return int(answer.controller_id)


def release_of(client: Client) -> tuple[int, ...]:
    """The newest release of Kafka that has the cluster's APIs."""
    for release, key, version in RELEASES:
        first, last = client.versions.get(key, (0, -1))
        if first <= version <= last:
            return release
    return ()


# -- several questions at once ----------------------------------------------------------------------------------


def at_coordinators(
    client: Client, keys: Collection[str], ask: Callable[[dict[int, list[str]]], T], kind: int = OF_GROUPS
) -> T:
    """As `coordinators.at_coordinators`, before the deadline of the command."""
    return coordinators.at_coordinators(client, keys, ask, kind, until=patience.until())


def of_each(client: Client, questions: Mapping[K, Question], what: str) -> dict[K, Any]:
    """The answers of several brokers. One that does not answer is left out, and noted: `what` is not shown.

    Raises NoAnswer if none answers.
    """
    answers = client.answers(questions)
    failures = {key: answer for key, answer in answers.items() if isinstance(answer, Exception)}
    for error in failures.values():
        if not isinstance(error, NoAnswer) or len(failures) == len(answers):
            raise error
        lacks_answer(error, what)
    return {key: answer for key, answer in answers.items() if key not in failures}


def lacks_answer(error: Exception, what: str, be: str = "is") -> None:
    """Note that `what` is not shown, because of a NoAnswer or a refusal."""
    reason = error_name(error.code) if isinstance(error, KafkaError) else str(error)
    lacks(f"{reason}; {what} {be} not shown; {advice_for(error)}")


def both(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """The answers to two questions that are asked at once. Raises what either raises."""
    return cast(tuple[T, U], tuple(all_of(cast(Any, {1: first, 2: second})).values()))


def all_of(questions: Mapping[K, Callable[[], T]]) -> dict[K, T]:
    """The answer to each question, all asked at once. Raises what one of them raises."""
    answers = at_once(questions)
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
    return cast(dict[K, T], answers)


def at_once(questions: Mapping[K, Callable[[], T]]) -> dict[K, T | Exception]:
    """The answer to each question of several steps, or what it raised; up to QUESTIONS_AT_ONCE are asked in threads."""
    found: dict[K, T | Exception] = {}
    waiting = list(questions.items())
    settled: queue.Queue[None] = queue.Queue()

    def work() -> None:
        with suppress(IndexError):
            while True:
                name, question = waiting.pop()
                try:
                    found[name] = question()
                except Exception as error:
                    found[name] = error
                settled.put(None)

    if len(questions) == 1:
        work()
        return found
    for _ in range(min(len(questions), QUESTIONS_AT_ONCE)):
        threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()
    for _ in questions:
        settled.get()
    return {name: found[name] for name in questions}


# -- failures -----------------------------------------------------------------------------------------------------


@contextmanager
def failures_explained(address: Address) -> Iterator[None]:
    """Turn what a client raises inside into a CommandFailed."""
    try:
        yield
    except (ClientError, KafkaError, LoginError) as error:
        raise CommandFailed(explained(error, address)) from error
