"""Reads and writes records: with librdkafka where confluent-kafka is installed, else with kafka-python.

Both have one shape here, so that `consume` and `produce` do not know which they have. librdkafka is several times
faster. Where it does not take a client property, kafka-python does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Protocol

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.client_properties import normalized
from minibroker.any_cluster.cluster import failures_explained, first_reachable
from minibroker.any_cluster.record_appends import ExactAppends
from minibroker.any_cluster.record_lines import NewRecord, OwnHeaders
from minibroker.any_cluster.record_text import Access
from minibroker.client.address import Address
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.client_ids import OF_COMMANDS as CLIENT_ID
from minibroker.protocol.errors import ErrorCode, KafkaError

LAST_FLUSH_SECONDS = 35.0  # by then every record is acknowledged or has failed
RECONNECT_MS = 1_000  # at most, between two tries to connect to a broker that is gone
# The broker limits the size of a record and reports it; the client's own limit must not be lower.
MAX_REQUEST_BYTES = 100 * 1024 * 1024
BATCH_BYTES = 1_000_000
QUEUE_KBYTES = 128 * 1024


class RecordConsumer(Protocol):
    """Reads partitions that are assigned to it, or that a group assigns. Raises errors of our client."""

    @property
    def access(self) -> Access: ...

    failed_commits: int  # of those that were not waited for

    def assign(self, starts: Mapping[TopicPartition, int]) -> None: ...
    def subscribe(self, topics: Sequence[str], on_revoked: Callable[[], None]) -> None: ...
    def poll(self, seconds: float, *, at_most: int | None) -> list[Any]: ...  # or raises CannotReadOn
    def next_offset(self, at: TopicPartition) -> int | None: ...
    def seek(self, at: TopicPartition, offset: int) -> None: ...
    def assignment(self) -> set[TopicPartition]: ...
    def positions(self) -> dict[TopicPartition, int]: ...
    def reached(self, ends: Mapping[TopicPartition, int]) -> set[TopicPartition]: ...
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...
    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...
    def commit_soon(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def commit_revoked(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...
    def close(self) -> None: ...


class RecordProducer(Protocol):
    """Writes records to one topic. `refusal` is the first error of a record, as an error of our client,
    `refused` the number of that record if it is known."""

    @property
    def refusal(self) -> Exception | None: ...
    @property
    def refused(self) -> int | None: ...
    @property
    def acknowledged(self) -> int: ...
    def send(self, record: NewRecord, number: int) -> None: ...
    def flush(self, seconds: float) -> bool: ...
    def close(self) -> None: ...


class LibraryProducer(RecordProducer, Protocol):
    """A client library's producer."""

    def keeps(self, record: NewRecord) -> bool:
        """Whether it sends the record as it is."""


@contextmanager
def consuming(cluster: Cluster, own_headers: OwnHeaders, **settings: str) -> Iterator[RecordConsumer]:
    """A consumer with these settings under Kafka's names. Raises CommandFailed, also for failures inside.

    `own_headers` returns those of a record whose headers the library cannot decode.
    """
    properties = normalized(cluster.properties)
    address = first_reachable(cluster.addresses, properties)
    with failures_explained(address):
        given = {"client.id": CLIENT_ID, **properties, **settings}
        given |= {"reconnect.backoff.max.ms": str(RECONNECT_MS)}
        with closing(consumer_of(str(cluster), address, given, own_headers)) as consumer:
            yield consumer


def consumer_of(
    addresses: str, reached: Address, settings: Mapping[str, str], own_headers: OwnHeaders
) -> RecordConsumer:
    """kafka-python would wait for the first address that accepts a connection: it gets the one that has answered."""
    try:
        from minibroker.any_cluster.librdkafka import LibrdkafkaConsumer

        # librdkafka asks for a group id of every consumer; one that is assigned its partitions does not use it.
        named = {"group.id": CLIENT_ID, **settings, "bootstrap.servers": addresses}
        return LibrdkafkaConsumer(named, own_headers)
    except (ModuleNotFoundError, ValueError):
        from minibroker.any_cluster.kafka_python import KafkaPythonConsumer, consumer  # slow to import

        return KafkaPythonConsumer(consumer(str(reached), settings))


@contextmanager
def producing(cluster: Cluster, topic: str, *, batch_bytes: int, **settings: str) -> Iterator[RecordProducer]:
    """A producer with these settings under Kafka's names. Raises CommandFailed, also for failures inside.

    `batch_bytes` is what the topic takes at once.
    """
    properties = normalized(cluster.properties)
    address = first_reachable(cluster.addresses, properties)
    with failures_explained(address):
        given = {"client.id": CLIENT_ID, "linger.ms": "5", **properties, **settings}
        given |= {"reconnect.backoff.max.ms": str(RECONNECT_MS)}
        library = producer_of(str(cluster), address, topic, given, batch_bytes)
        exact = ExactAppends(cluster, topic, given, batch_bytes)
        with closing(ExactProducer(library, exact)) as producer:
            yield producer


def producer_of(
    addresses: str, reached: Address, topic: str, settings: Mapping[str, str], batch_bytes: int
) -> LibraryProducer:
    """As `consumer_of`."""
    limits = {
        "message.max.bytes": MAX_REQUEST_BYTES,
        "batch.size": min(batch_bytes, BATCH_BYTES),
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
        "partitioner": "murmur2_random",  # as Java's and kafka-python's
    }
    try:
        from minibroker.any_cluster.librdkafka import LibrdkafkaProducer

        return LibrdkafkaProducer(topic, {**limits, **settings, "bootstrap.servers": addresses})
    except (ModuleNotFoundError, ValueError):
        own = {
            "max.request.size": str(MAX_REQUEST_BYTES),
            "batch.size": str(min(batch_bytes, BATCH_BYTES)),
            "max.block.ms": settings["delivery.timeout.ms"],
        }
        from minibroker.any_cluster.kafka_python import KafkaPythonProducer, producer  # slow to import

        return KafkaPythonProducer(topic, producer(str(reached), own | dict(settings)))


class ExactProducer:
    """A library's producer, and appends of our own for the records that it would change, all in their order."""

    def __init__(self, library: LibraryProducer, exact: ExactAppends) -> None:
        self._library = library
        self._exact = exact
        self._is_exact = False  # the last record was

    @property
    def refusal(self) -> Exception | None:
        return self._library.refusal or self._exact.refusal

    @property
    def acknowledged(self) -> int:
        return self._library.acknowledged + self._exact.acknowledged

    @property
    def refused(self) -> int | None:
        return self._library.refused

    def send(self, record: NewRecord, number: int) -> None:
        is_exact = not self._library.keeps(record)
        if is_exact is not self._is_exact:
            self._is_exact = is_exact
            if not self.flush(LAST_FLUSH_SECONDS):
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the acknowledgements of earlier records")
        if is_exact:
            self._exact.send(record)
        else:
            self._library.send(record, number)

    def flush(self, seconds: float) -> bool:
        """Wait for the acknowledgements; return whether all came or failed in time."""
        self._exact.flush()
        return self._library.flush(seconds)

    def close(self) -> None:
        """Abandon what has not been sent."""
        self._exact.close()
        self._library.close()
