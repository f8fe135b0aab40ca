"""The only module that imports kafka-python: connects with it, and explains its exceptions in a line.

Every failure inside `connected` is a CommandFailed with the next step. A plain connection of our own comes first and
reports an unreachable cluster within seconds: kafka-python retries until its timeout, and gives no reason.
"""

from __future__ import annotations

import logging
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from minibroker.cli.address import Address
from minibroker.cli.failures import CommandFailed

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec
    from kafka.structs import OffsetAndMetadata

__all__ = ["ConfigResource", "ConfigResourceType", "KafkaAdminClient", "KafkaConsumer", "KafkaProducer"]
__all__ += ["OffsetAndMetadata", "OffsetSpec", "TopicPartition", "connected", "error_name", "errors"]

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 30.0
CLIENT_ID = "minibroker-cli"
OR_ANOTHER = "or name another with --bootstrap-server HOST:PORT"

# Our one line explains more.
logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


@contextmanager
def connected(bootstrap: Sequence[Address]) -> Iterator[Any]:
    """A KafkaAdminClient of the cluster behind the first address that can be reached. Raises CommandFailed."""
    address = first_reachable(bootstrap)
    try:
        client = KafkaAdminClient(
            bootstrap_servers=str(address),
            client_id=CLIENT_ID,
            bootstrap_timeout_ms=CONNECT_SECONDS * 1000,
            request_timeout_ms=ANSWER_SECONDS * 1000,
        )
    except errors.KafkaError as error:
        raise CommandFailed(
            f"no Kafka broker answers in PLAINTEXT at {address} (this command speaks neither TLS nor SASL); wait "
            f"until it has started, correct the port, {OR_ANOTHER}"
        ) from error
    with closing(client), failures_explained(address):
        yield client


@contextmanager
def producing(bootstrap: Sequence[Address], **settings: Any) -> Iterator[Any]:
    """A KafkaProducer with those settings. Raises CommandFailed."""
    address = first_reachable(bootstrap)
    with failures_explained(address):
        producer = KafkaProducer(bootstrap_servers=str(address), client_id=CLIENT_ID, **settings)
        try:
            yield producer
        finally:
            close(producer)


def close(producer: Any) -> None:
    """Abandon unanswered records here; kafka-python would do it with a traceback when the producer is collected."""
    try:
        producer.close(timeout=CONNECT_SECONDS)
    except errors.KafkaTimeoutError:
        producer._sender.force_close()
        producer.close(timeout=CONNECT_SECONDS)


@contextmanager
def consuming(bootstrap: Sequence[Address], **settings: Any) -> Iterator[Any]:
    """A KafkaConsumer with those settings. Raises CommandFailed."""
    address = first_reachable(bootstrap)
    with (
        failures_explained(address),
        closing(KafkaConsumer(bootstrap_servers=str(address), client_id=CLIENT_ID, **settings)) as client,
    ):
        yield client


@contextmanager
def failures_explained(address: Address) -> Iterator[None]:
    """Turn what kafka-python raises inside into a CommandFailed."""
    try:
        yield
    # kafka-python raises RuntimeError when the controller changes faster than it can follow.
    except (errors.KafkaError, RuntimeError) as error:
        raise CommandFailed(explained(error, address)) from error


def first_reachable(addresses: Sequence[Address]) -> Address:
    """The first address that accepts a connection; all are tried within CONNECT_SECONDS. Raises CommandFailed."""
    deadline = time.monotonic() + CONNECT_SECONDS
    for left in range(len(addresses), 1, -1):
        try:
            return reached(addresses[-left], seconds=(deadline - time.monotonic()) / left)
        except CommandFailed:
            continue
    return reached(addresses[-1], seconds=deadline - time.monotonic())


def reached(address: Address, *, seconds: float) -> Address:
    """The address, once it accepts a connection. Raises CommandFailed."""
    try:
        socket.create_connection(address, timeout=seconds).close()
    except ConnectionRefusedError as error:
        raise CommandFailed(f"no broker at {address}; start one with `minibroker serve`, {OR_ANOTHER}") from error
    except socket.gaierror as error:
        raise CommandFailed(f"unknown host in {address} ({error.strerror}); correct it, {OR_ANOTHER}") from error
    except TimeoutError as error:
        raise CommandFailed(
            f"no answer from {address} within {CONNECT_SECONDS:.0f} s; check that a broker runs there, {OR_ANOTHER}"
        ) from error
    except OSError as error:
        raise CommandFailed(f"cannot reach {address} ({error.strerror}); correct it, {OR_ANOTHER}") from error
    return address


def explained(error: Exception, address: Address) -> str:
    """A client's exception in one line, with the next step."""
    message = " ".join(" ".join(map(str, error.args)).split()).rstrip(".")
    in_brackets = f" ({message})" if message else ""
    if isinstance(error, (errors.UnsupportedVersionError, errors.UnrecognizedBrokerVersion)):
        return f"the broker at {address} does not support this request{in_brackets}; use Apache Kafka 0.11 or later"
    if isinstance(error, (errors.KafkaTimeoutError, errors.RequestTimedOutError)):
        return f"the cluster at {address} did not answer in time{in_brackets}; see the broker's log"
    if isinstance(error, RuntimeError):
        return f"the cluster at {address} has no controller now; try again in a few seconds"
    if isinstance(error, errors.BrokerResponseError):
        return f"the broker at {address} refused the request: {error_name(error.errno)}; see its log"
    return (
        f"cannot connect to a broker of the cluster at {address}{in_brackets}; check that it runs, and that this "
        "machine can reach its advertised.listeners"
    )


def error_name(code: int) -> str:
    """UNKNOWN_TOPIC_OR_PARTITION, or `error 123` for a code newer than kafka-python."""
    error = errors.for_code(code)
    return f"error {code}" if error.__name__ == "UnrecognizedBrokerError" else str(error.message)
