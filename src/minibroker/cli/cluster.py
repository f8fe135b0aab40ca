"""The one door to kafka-python: importing it, connecting with it, and its exceptions as lines for a person.

Everything that goes wrong inside `connected` is a CommandFailed that says what to do. A cluster that is not there is
told within seconds, by a first connection of our own: kafka-python tries until the time is up, and does not say why.
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
    # kafka-python 3.0 reads its schemas by a function of the standard library that is deprecated.
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

# The one line of ours says more.
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
            f"what listens at {address} does not answer as a Kafka broker in PLAINTEXT (TLS and SASL listeners are "
            f"not for this command); see whether it has finished starting, correct the port, {OR_ANOTHER}"
        ) from error
    with closing(client), told(address):
        yield client


@contextmanager
def producing(bootstrap: Sequence[Address], **settings: Any) -> Iterator[Any]:
    """A KafkaProducer with those settings. Raises CommandFailed."""
    address = first_reachable(bootstrap)
    with told(address):
        producer = KafkaProducer(bootstrap_servers=str(address), client_id=CLIENT_ID, **settings)
        try:
            yield producer
        finally:
            close(producer)


def close(producer: Any) -> None:
    """What is unanswered now is given up, and not by a traceback when kafka-python's producer is collected."""
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
        told(address),
        closing(KafkaConsumer(bootstrap_servers=str(address), client_id=CLIENT_ID, **settings)) as client,
    ):
        yield client


@contextmanager
def told(address: Address) -> Iterator[None]:
    """What kafka-python raises inside becomes a CommandFailed."""
    try:
        yield
    # RuntimeError is how kafka-python says that the controller changes faster than it can follow.
    except (errors.KafkaError, RuntimeError) as error:
        raise CommandFailed(explained(error, address)) from error


def first_reachable(addresses: Sequence[Address]) -> Address:
    """The first that accepts a connection, all tried within CONNECT_SECONDS. Raises CommandFailed, of the last."""
    deadline = time.monotonic() + CONNECT_SECONDS
    for left in range(len(addresses), 1, -1):
        try:
            return reached(addresses[-left], seconds=(deadline - time.monotonic()) / left)
        except CommandFailed:
            continue
    return reached(addresses[-1], seconds=deadline - time.monotonic())


def reached(address: Address, *, seconds: float) -> Address:
    """The address, which accepts connections. Raises CommandFailed."""
    try:
        socket.create_connection(address, timeout=seconds).close()
    except ConnectionRefusedError as error:
        raise CommandFailed(f"no broker at {address}; start one with `minibroker serve`, {OR_ANOTHER}") from error
    except socket.gaierror as error:
        raise CommandFailed(
            f"cannot find the host of {address} ({error.strerror}); correct it, {OR_ANOTHER}"
        ) from error
    except TimeoutError as error:
        raise CommandFailed(
            f"no answer from {address} within {CONNECT_SECONDS:.0f} s; see whether a broker is up there, {OR_ANOTHER}"
        ) from error
    except OSError as error:
        raise CommandFailed(f"cannot reach {address} ({error.strerror}); correct it, {OR_ANOTHER}") from error
    return address


def explained(error: Exception, address: Address) -> str:
    """What a client's exception means, in one line."""
    said = " ".join(" ".join(map(str, error.args)).split()).rstrip(".")
    in_brackets = f" ({said})" if said else ""
    if isinstance(error, (errors.UnsupportedVersionError, errors.UnrecognizedBrokerVersion)):
        return f"the broker at {address} lacks what this command asks{in_brackets}; it takes a Kafka from 0.11 on"
    if isinstance(error, (errors.KafkaTimeoutError, errors.RequestTimedOutError)):
        return f"the cluster of {address} did not answer in time{in_brackets}; the broker's log may say why"
    if isinstance(error, RuntimeError):
        return f"the cluster of {address} has no controller at the moment; try again in some seconds"
    if isinstance(error, errors.BrokerResponseError):
        return f"the broker at {address} refuses: {error_name(error.errno)}; its log may say why"
    return (
        f"no connection to a broker of the cluster of {address}{in_brackets}; see whether it is up, and whether the "
        "address that its advertised.listeners name can be reached from here"
    )


def error_name(code: int) -> str:
    """UNKNOWN_TOPIC_OR_PARTITION, or `error 123` for one that came after kafka-python."""
    error = errors.for_code(code)
    return f"error {code}" if error.__name__ == "UnrecognizedBrokerError" else str(error.message)
