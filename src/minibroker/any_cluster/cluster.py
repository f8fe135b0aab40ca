"""Connects with kafka-python, which no other module imports but `connections`, and explains its exceptions in a line.

Every failure inside `connected` is a CommandFailed with the next step. Plain connections of our own come first, to all
addresses, and report an unreachable cluster within seconds: kafka-python retries until its timeout, without a reason.
"""

from __future__ import annotations

import logging
import math
import queue
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar, cast

from minibroker import patience
from minibroker.any_cluster import codecs
from minibroker.any_cluster.bootstrap import Cluster, Properties
from minibroker.any_cluster.client_properties import for_kafka_python, normalized, unknown_of
from minibroker.any_cluster.logins import login_of, protocol_of, refusal
from minibroker.any_cluster.shortfalls import lacks
from minibroker.client.address import Address
from minibroker.client.client import Client as OwnClient
from minibroker.client.errors import Unreachable
from minibroker.client.login import WrongProtocol
from minibroker.errors import BadValue, CommandFailed
from minibroker.protocol.api import ASKED_TABLE
from minibroker.protocol.api import ApiKey as OwnApiKey
from minibroker.protocol.client_ids import OF_COMMANDS
from minibroker.protocol.guesses import next_step
from minibroker.protocol.sasl_client import LoginError

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition, codec, errors
    from kafka.admin import (
        AbortTransactionSpec,
        ConfigResource,
        ConfigResourceType,
        KafkaAdminClient,
        OffsetSpec,
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
    from kafka.protocol.api_key import ApiKey
    from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
    from kafka.protocol.metadata import MetadataRequest
    from kafka.protocol.producer import ProduceRequest
    from kafka.structs import OffsetAndMetadata

    from minibroker.any_cluster.connections import AdminClient, Client, NoAnswer, TooSlow

__all__ = [
    "AbortTransactionSpec",
    "AlterClientQuotasRequest",
    "ConfigResource",
    "ConfigResourceType",
    "DescribeClientQuotasRequest",
    "FetchRequest",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "ListOffsetsRequest",
    "NoAnswer",
    "ProduceRequest",
    "TooSlow",
]
__all__ += ["OffsetAndMetadata", "OffsetSpec", "TopicPartition", "connected", "error_name", "errors"]

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
COORDINATOR_SECONDS = 3.5
RETRY_SECONDS = 0.1
QUESTIONS_AT_ONCE = 16
LATER_SECONDS = 0.5  # than the first, in which the other answers may come when the deadline is over
REQUEST_TIMEOUT = "request.timeout.ms"
OF_GROUPS, OF_TRANSACTIONS = 0, 1  # what a coordinator is of, in FindCoordinator
LIBRDKAFKA_TIMEOUTS = (-192, -185)  # _MSG_TIMED_OUT, _TIMED_OUT
CLIENT_ID = OF_COMMANDS
# As kafka 4.4.0 ApiKeys, after the last that kafka-python knows; 4.3 has none of them.
NEWEST_RELEASE = (4, 4)
NEWER_APIS = {93: "StreamsGroupTopologyDescriptionUpdate", 94: "UnregisterController"}
NO_PROPERTIES: Properties = {}
CHOOSE_A_GROUP = "choose another group; `minibroker groups list` shows the type of each"
OLDEST_RELEASE = "0.11"  # that commands support
FIRST_OF_CONSUMER_PROTOCOL = 1  # of ConsumerGroupHeartbeat, in 4.0; clients do not take the version before
CLASSIC = "classic"  # the protocol of groups that kafka-python speaks
OR_ANOTHER = "or name another with --bootstrap-server HOST:PORT"

DENIED = "the cluster's ACLs deny this client; ask its administrator"
DENIALS = frozenset(
    {
        errors.TopicAuthorizationFailedError.errno,
        errors.GroupAuthorizationFailedError.errno,
        errors.ClusterAuthorizationFailedError.errno,
        errors.TransactionalIdAuthorizationFailedError.errno,
    }
)
NOT_THERE_YET = (
    errors.CoordinatorNotAvailableError,
    errors.CoordinatorLoadInProgressError,
    errors.NotCoordinatorError,
)

codecs.complete(codec)
# Our one line explains more.
logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """A KafkaAdminClient of the cluster behind the first address that can be reached. Raises CommandFailed."""
    properties = checked(cluster.properties)
    address = first_reachable(cluster.addresses, properties)
    settings = {
        "client_id": CLIENT_ID,
        "request_timeout_ms": ANSWER_SECONDS * 1000,
        **settings_of(properties, KafkaAdminClient),
        "bootstrap_servers": str(address),
        "bootstrap_timeout_ms": CONNECT_SECONDS * 1000,
    }
    try:
        client = AdminClient(**settings, kafka_client=Client)
    except (errors.KafkaError, OSError, AssertionError) as error:  # OSError, such as of a certificate's file
        raise CommandFailed(not_connected(address, properties, error)) from error
    wait_as_asked(properties)
    with closing(client), failures_explained(address):
        yield client


def wait_as_asked(properties: Properties) -> None:
    """Lift the deadline of the command or the page, if the user names the time that an answer may take."""
    if REQUEST_TIMEOUT in properties:
        patience.lift()


def administering(make: Callable[[Any], T]) -> Callable[[Cluster], AbstractContextManager[T]]:
    """The function that connects to a cluster for a `with`, as `connected` does, and makes an administration of it."""

    @contextmanager
    def administered(cluster: Cluster) -> Iterator[T]:
        with connected(cluster) as client:
            yield make(client)

    return administered


def scram_alterations(changes: Sequence[Any]) -> list[Any]:
    """Changes of credentials as kafka-python has them; each has the fields of a row of AlterUserScramCredentials."""
    made = []
    for change in changes:
        if len(change) == 2:
            made.append(UserScramCredentialDeletion(*change))
        else:
            user, mechanism, iterations, salt, salted = change
            upsertion = UserScramCredentialUpsertion(user, mechanism, b"", iterations=1, salt=salt)
            upsertion.iterations, upsertion.salted_password = iterations, salted  # hashed already
            made.append(upsertion)
    return made


def brokers_of(client: Any) -> list[Address]:
    """The addresses at which the brokers of the cluster listen for this client."""
    return [Address(row["host"], row["port"]) for row in live_brokers(client)]


def not_connected(address: Address, properties: Properties, error: Exception) -> str:
    """Why a broker that accepts connections does not answer, as far as that is known."""
    protocol = protocol_of(properties)
    if protocol == "PLAINTEXT" and not isinstance(error, OSError):
        return (
            f"no Kafka broker answers in PLAINTEXT at {address}; wait until it has started, correct the port, "
            f"{OR_ANOTHER}; for TLS or SASL set -X security.protocol=SSL, SASL_SSL or SASL_PLAINTEXT"
        )
    message = " ".join(" ".join(map(str, error.args)).split()).rstrip(".")
    return (
        f"no Kafka broker answers in {protocol} at {address} ({message}); correct the properties of -X and "
        f"--command-config, {OR_ANOTHER}"
    )


def answer_to(client: Any, request: Any, *, broker: int | None = None) -> Any:
    """The answer of a broker, of any without an id, to a request that the KafkaAdminClient has no method for."""
    manager = client._manager
    return manager.run(manager.send, request, broker)


def at_coordinators(client: Any, keys: Collection[str], question: Callable[[], T], *, kind: int = OF_GROUPS) -> T:
    """Call `question` once the coordinators of these keys are known, and again until each is there; its result.

    A cluster makes the topic of its coordinators at the first question for one; and one that has moved loads first what
    it coordinates. Raises the last error after COORDINATOR_SECONDS.
    """
    deadline = min(time.monotonic() + COORDINATOR_SECONDS, patience.until())
    while True:
        try:
            client._manager.run(client._find_coordinator_ids, list(keys), kind)
            return question()
        except NOT_THERE_YET:
            if time.monotonic() > deadline:
                raise
        client._manager.cluster._coordinators.clear()  # kafka-python would ask the same broker again
        time.sleep(RETRY_SECONDS)


def by_coordinator(client: Any, groups: Collection[str]) -> dict[int, list[str]]:
    """The groups of each coordinator, by its broker id."""
    found: dict[int, list[str]] = {}
    for group, broker in client._manager.run(client._find_coordinator_ids, list(groups)).items():
        found.setdefault(broker, []).append(group)
    return found


def versions_of(client: Any) -> dict[int, tuple[int, int]]:
    """The first and the last version of each API that the cluster's brokers have, by API key."""
    found: dict[int, tuple[int, int]] = client._manager.broker_version_data.api_versions
    return found


def is_kraft(client: Any) -> bool:
    """Whether the brokers keep what the cluster is themselves, in Apache Kafka's way without ZooKeeper."""
    return ApiKey.DescribeQuorum in versions_of(client)


def api_name(key: int) -> str:
    """Kafka's name of an API; its key for one that is not known here."""
    return NEWER_APIS.get(key) or (ApiKey(key).name if key in set(ApiKey) else str(key))


def metadata_of(client: Any) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The brokers and all topics of the cluster in one answer, and the release of Kafka that its APIs are those of."""
    answer = answer_to(client, MetadataRequest(topics=None, allow_auto_topic_creation=False)).to_dict()
    return answer | {"controller_id": controller_of(client, answer)}, release_of(client)


def described_cluster(client: Any) -> dict[str, Any]:
    """The cluster's id, brokers and controller, which is not among its brokers where processes of their own control."""
    found: dict[str, Any] = client.describe_cluster()
    return found | {"controller_id": controller_of(client, found), "brokers": alive(found["brokers"])}


def live_brokers(client: Any) -> list[Mapping[str, Any]]:
    """The rows of DescribeCluster of the brokers that are alive."""
    return alive(client.describe_cluster()["brokers"])


def alive(brokers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The brokers that are not fenced: Kafka 4 keeps those that have ended among its brokers (KIP-1073)."""
    return [row for row in brokers if not row.get("is_fenced")]


def controller_of(client: Any, answer: Mapping[str, Any]) -> int:
    """The id of the controller, below 0 for none. Brokers without ZooKeeper answer with any of them."""
    if is_kraft(client):
        try:
            (topic,) = client.describe_metadata_quorum()["topics"]
            return int(topic["partitions"][0]["leader_id"])
        except errors.ClusterAuthorizationFailedError:
            pass  # without the right to describe the cluster, which most users have not
    return int(answer["controller_id"])


def release_of(client: Any) -> tuple[int, ...]:
    """The release of Kafka that the cluster's APIs are those of; kafka-python knows those up to 4.3."""
    return NEWEST_RELEASE if NEWER_APIS.keys() <= versions_of(client).keys() else client._manager.broker_version or ()


def checked(properties: Properties) -> Properties:
    """The properties under one name each. Raises BadValue for an unknown one."""
    given = normalized(properties)
    known = [kind.DEFAULT_CONFIG for kind in (KafkaAdminClient, KafkaConsumer, KafkaProducer)]
    for name in unknown_of(given, known):
        names = (each.replace("_", ".") for config in known for each in config)
        step = next_step(name, names, "write one such as security.protocol=SSL")
        raise BadValue(f"{name} is not a property of Kafka's clients; {step}")
    return given


def settings_of(properties: Properties, kind: Any) -> dict[str, Any]:
    """Keep those of normalized properties that a client of this kind takes. Raises BadValue."""
    settings = for_kafka_python(properties, kind.DEFAULT_CONFIG)
    login = login_of(properties)
    if login is not None and login.tls is not None:
        settings["ssl_context"] = login.tls
    if login is not None and login.token is not None:
        settings["sasl_oauth_token_provider"] = TokenProvider(login.token)
    return settings


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens for kafka-python."""

    def __init__(self, make: Callable[[], str]) -> None:
        super().__init__()
        self._make = make

    def token(self) -> str:
        return self._make()


def producer(addresses: str, settings: Properties) -> Any:
    """A KafkaProducer with those normalized properties."""
    typed = settings_of(settings, KafkaProducer)
    return KafkaProducer(**typed, bootstrap_servers=addresses.split(","))


def close(producer: Any) -> None:
    """Abandon unanswered records here; kafka-python would do it with a traceback when the producer is collected."""
    try:
        producer.close(timeout=CONNECT_SECONDS)
    except errors.KafkaTimeoutError:
        producer._sender.force_close()
        producer.close(timeout=CONNECT_SECONDS)


def consumer(addresses: str, settings: Properties) -> Any:
    """A KafkaConsumer with those normalized properties; it never commits by itself. Raises BadValue."""
    if settings.get("group.protocol", CLASSIC).lower() != CLASSIC:
        raise BadValue("group.protocol=consumer takes confluent-kafka; install that, or leave the property out")
    typed = settings_of(settings, KafkaConsumer)
    return KafkaConsumer(**typed, bootstrap_servers=addresses.split(","), enable_auto_commit=False)


def check_group_protocol(client: Any, properties: Properties) -> None:
    """Raises CommandFailed if they ask for the consumer protocol, and the cluster has none, or the preview of 3.7."""
    is_classic = properties.get("group.protocol", CLASSIC).lower() == CLASSIC
    _, last = versions_of(client).get(OwnApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 0))
    if not is_classic and last < FIRST_OF_CONSUMER_PROTOCOL:
        raise CommandFailed(
            "the cluster does not have group.protocol=consumer; leave that out, or use Apache Kafka 4.0 or later"
        )


def revocation_listener(on_revoked: Callable[[], None]) -> Any:
    """Calls that function before a rebalance takes partitions away."""

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            on_revoked()

        def on_partitions_assigned(self, assigned: object) -> None:
            """Nothing to do."""

    return Listener()


@contextmanager
def failures_explained(address: Address) -> Iterator[None]:
    """Turn what kafka-python raises inside into a CommandFailed."""
    try:
        yield
    # kafka-python raises RuntimeError when the controller changes faster than it can follow.
    except (errors.KafkaError, RuntimeError) as error:
        raise CommandFailed(explained(error, address)) from error


def first_reachable(addresses: Sequence[Address], properties: Properties = NO_PROPERTIES) -> Address:
    """The address that is first to answer as a Kafka broker, with the login of the properties.

    Raises the CommandFailed of the last, and BadValue for properties without a login.
    """
    try:
        with OwnClient(addresses, login_of(properties)) as client:
            return client.address
    except Unreachable as error:
        raise CommandFailed(unreachable(error.address, error.__cause__, properties)) from error


def unreachable(address: Address, error: BaseException | None, properties: Properties) -> str:
    """Why no broker answers at an address, with the next step."""
    if isinstance(error, LoginError) and (protocol_of(properties) != "PLAINTEXT" or type(error) is not WrongProtocol):
        return refusal(error, address, properties)
    if isinstance(error, ConnectionRefusedError):
        return f"no broker at {address}; start one with `minibroker serve`, {OR_ANOTHER}"
    if isinstance(error, socket.gaierror):
        return f"unknown host in {address} ({error.strerror}); correct it, {OR_ANOTHER}"
    if isinstance(error, TimeoutError):
        return unanswered(address)
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return f"cannot reach {address} ({error.strerror}); correct it, {OR_ANOTHER}"
    return not_connected(address, properties, Exception(*error.args) if error else Exception())


def unanswered(address: Address) -> str:
    return f"no answer from {address} within {CONNECT_SECONDS:.0f} s; check that a broker runs there, {OR_ANOTHER}"


def hidden_unless(rows: T, client: Any, what: str) -> T:
    """The rows. Where there are none, it is noted if ACLs may hide them from this user."""
    if not rows:
        from minibroker.any_cluster.acl_admin import are_hidden

        if are_hidden(client):
            lacks(f"no {what} that this user may see; ask the cluster's administrator for Describe")
    return rows


def broker_ids(client: Any) -> list[int]:
    """The brokers of the cluster, as the client knows them."""
    return sorted(broker.node_id for broker in client._manager.cluster.brokers())


def of_each(client: Any, brokers: Iterable[int], ask_one: Callable[[int], T], what: str) -> dict[int, T]:
    """Ask each of these brokers, all at once. One that does not answer is left out, and noted: `what` is not shown.

    So is one that is too slow for the deadline. Raises NoAnswer if none answers.
    """
    answers = at_once({broker: partial(ask_one, broker) for broker in brokers}, late=TooSlow)
    failures = {broker: answer for broker, answer in answers.items() if isinstance(answer, Exception)}
    for error in failures.values():
        if not isinstance(error, NoAnswer) or len(failures) == len(answers):
            raise error
        lacks_answer(error, what)
    return {broker: answer for broker, answer in answers.items() if not isinstance(answer, Exception)}


def lacks_answer(error: Any, what: str) -> None:
    """Note that `what` is not shown, because of a NoAnswer or another error of kafka-python."""
    reason = str(error) if isinstance(error, NoAnswer) else error_name(error.errno)
    lacks(f"{reason}; {what} is not shown; {advice_for(error)}")


def advice_for(error: Exception) -> str:
    slow = isinstance(error, TooSlow)
    return f"-X {REQUEST_TIMEOUT}=30000 waits for it" if slow else "`minibroker health` checks the cluster"


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


def at_once(
    questions: Mapping[K, Callable[[], T]], *, late: Callable[[K], Exception] | None = None
) -> dict[K, T | Exception]:
    """The answer to each question, or what it raised; up to QUESTIONS_AT_ONCE are asked in threads.

    With `late`, the others have until the deadline once one is answered; if that is over, twice as long as the first
    took, and a little more. Then what `late` makes is theirs.
    """
    found: dict[K, T | Exception] = {}
    waiting = list(questions.items())
    settled: queue.Queue[bool] = queue.Queue()

    def work() -> None:
        with suppress(IndexError):
            while True:
                name, question = waiting.pop()
                try:
                    found[name] = question()
                except Exception as error:
                    found[name] = error
                settled.put(not isinstance(found[name], Exception))

    if len(questions) == 1:
        work()
        return found
    for _ in range(min(len(questions), QUESTIONS_AT_ONCE)):
        threading.Thread(target=copy_context().run, args=(work,), daemon=True).start()
    begun = time.monotonic()
    until: float | None = None  # None: for as long as it takes
    for _ in questions:
        try:
            is_answered = settled.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if late is not None and is_answered and until is None and patience.until() < math.inf:
            until = max(patience.until(), begun + 2 * (time.monotonic() - begun) + LATER_SECONDS)
    return {name: found[name] if name in found or late is None else late(name) for name in questions}


def explained(error: Exception, address: Address) -> str:
    """A client's exception in one line, with the next step."""
    message = " ".join(" ".join(map(str, error.args)).split()).rstrip(".")
    in_brackets = f" ({message})" if message else ""
    if isinstance(error, (errors.UnsupportedVersionError, errors.UnrecognizedBrokerVersion)):
        name, release = lacking(message)
        what = f" ({name})" if name else in_brackets
        return f"the broker at {address} does not support this request{what}; use Apache Kafka {release} or later"
    if isinstance(error, (errors.KafkaTimeoutError, errors.RequestTimedOutError)):
        return f"the cluster at {address} did not answer in time{in_brackets}; see the broker's log"
    if isinstance(error, TooSlow):
        return f"{message}; {advice_for(error)}"
    if isinstance(error, NoAnswer):
        return f"{message}; check that it runs, and that this machine can reach its advertised.listeners"
    if isinstance(error, errors.LeaderNotAvailableError):
        return "the partition has no leader now; `minibroker health` names all that have none"
    if isinstance(error, errors.KafkaConfigurationError):
        return f"the client refuses its properties{in_brackets}; correct those of -X and --command-config"
    if isinstance(error, errors.InconsistentGroupProtocolError):
        return f"the members of the group use another protocol, as Kafka Connect's do, or assignor; {CHOOSE_A_GROUP}"
    if isinstance(error, NOT_THERE_YET):
        name = error_name(error.errno)
        return f"the coordinator is not there yet ({name}); try again in a few seconds, and see `minibroker health`"
    if isinstance(error, (RuntimeError, errors.NodeNotReadyError)):
        return f"the cluster at {address} has no controller now; try again in a few seconds"
    if isinstance(error, errors.BrokerResponseError) and error.errno is not None:
        advice = DENIED if error.errno in DENIALS else "see its log"
        return f"the broker at {address} refused the request: {error_name(error.errno)}; {advice}"
    return (
        f"cannot connect to a broker of the cluster at {address}{in_brackets}; check that it runs, and that this "
        "machine can reach its advertised.listeners"
    )


def lacking(message: str) -> tuple[str, str]:
    """The API that kafka-python says the broker lacks, and the release that brought it; no name for anything else."""
    found = re.search(r"does not support the '(\w+)Request'", message)
    for api in ASKED_TABLE.values():
        if found is not None and api.name == found[1]:
            return api.name, max(api.since.release, OLDEST_RELEASE, key=numbers_of)
    return "", OLDEST_RELEASE


def numbers_of(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


def error_of(code: int, message: str) -> Any:
    """kafka-python's error for librdkafka's: of that code, or of the connection for librdkafka's own codes."""
    local = errors.KafkaTimeoutError if code in LIBRDKAFKA_TIMEOUTS else errors.KafkaConnectionError
    return errors.for_code(code)(message) if code > 0 else local(message)


def error_name(code: int) -> str:
    """UNKNOWN_TOPIC_OR_PARTITION, or `error 123` for a code newer than kafka-python."""
    error = errors.for_code(code)
    return f"error {code}" if error.__name__ == "UnrecognizedBrokerError" else str(error.message)
