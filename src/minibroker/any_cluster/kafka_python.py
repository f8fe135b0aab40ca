"""The only module that imports kafka-python: it reads and writes records where confluent-kafka is not installed.

Its errors leave it as those of our client.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from minibroker.any_cluster import codecs
from minibroker.any_cluster.bootstrap import Properties
from minibroker.any_cluster.client_properties import for_kafka_python, unknown_of
from minibroker.any_cluster.logins import login_of
from minibroker.any_cluster.record_lines import NewRecord, is_utf8
from minibroker.any_cluster.record_text import ATTRIBUTES
from minibroker.client.errors import CannotReadOn, ClientError, NoAnswer, check
from minibroker.client.topic_partition import TopicPartition as OurPartition
from minibroker.errors import BadValue
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.guesses import next_step

with warnings.catch_warnings():
    # kafka-python 3.0 reads its schemas with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition, codec, errors
    from kafka.admin import KafkaAdminClient
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.record import default_records, legacy_records
    from kafka.structs import OffsetAndMetadata

__all__ = ["KafkaAdminClient", "KafkaConsumer", "KafkaProducer", "OffsetAndMetadata", "TopicPartition", "errors"]

CLASSIC = "classic"  # the protocol of groups that kafka-python speaks
CLOSE_SECONDS = 3.0
RECORDS_PER_POLL = 500
MILLISECONDS = 1000
LAST_COMMIT_MS = 5_000
# kafka-python 3.0 forgets a rebalance that ends between two calls of poll, and joins again, perhaps for ever.
JOIN_SECONDS = 2.0

codecs.complete(codec, default_records, legacy_records)
# Our one line explains more.
logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)


@contextmanager
def errors_of_ours() -> Iterator[None]:
    """Raise what kafka-python raises inside as an error of our client."""
    try:
        yield
    except errors.KafkaError as error:
        raise error_of(error) from error


def error_of(error: Exception) -> Exception:
    """The error of our client for one of kafka-python."""
    text = " ".join(" ".join(map(str, error.args)).split())
    if isinstance(error, (errors.KafkaTimeoutError, errors.RequestTimedOutError)):
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, text or None)
    if errors.ClusterAuthorizationFailedError.__name__ in text:  # kafka-python has the error in a text
        return KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if isinstance(error, errors.CommitFailedError):
        return KafkaError(ErrorCode.ILLEGAL_GENERATION, text)
    if isinstance(error, errors.BrokerResponseError) and error.errno is not None:
        try:
            check(error.errno)
        except KafkaError as refusal:
            return refusal
    if isinstance(error, errors.KafkaConfigurationError):
        return BadValue(f"the client refuses its properties ({text}); correct those of -X and --command-config")
    if isinstance(error, errors.KafkaConnectionError):
        return NoAnswer("the broker", text, is_silent=False, may_be_done=True)
    return ClientError(text or type(error).__name__)


def check_known(properties: Properties) -> None:
    """Raises BadValue for one of these normalized properties that no client knows."""
    known = [kind.DEFAULT_CONFIG for kind in (KafkaAdminClient, KafkaConsumer, KafkaProducer)]
    for name in unknown_of(properties, known):
        names = (each.replace("_", ".") for config in known for each in config)
        step = next_step(name, names, "write one such as security.protocol=SSL")
        raise BadValue(f"{name} is not a property of Kafka's clients; {step}")


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
    with errors_of_ours():
        return KafkaProducer(**settings_of(settings, KafkaProducer), bootstrap_servers=addresses.split(","))


def consumer(addresses: str, settings: Properties) -> Any:
    """A KafkaConsumer with those normalized properties; it never commits by itself. Raises BadValue."""
    if settings.get("group.protocol", CLASSIC).lower() != CLASSIC:
        raise BadValue("group.protocol=consumer takes confluent-kafka; install that, or leave the property out")
    typed = settings_of(settings, KafkaConsumer)
    with errors_of_ours():
        return KafkaConsumer(**typed, bootstrap_servers=addresses.split(","), enable_auto_commit=False)


def revocation_listener(on_revoked: Callable[[], None]) -> Any:
    """Calls that function before a rebalance takes partitions away."""

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: object) -> None:
            on_revoked()

        def on_partitions_assigned(self, assigned: object) -> None:
            """Nothing to do."""

    return Listener()


def with_metadata(offsets: Mapping[Any, int]) -> dict[Any, Any]:
    return {TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}


class KafkaPythonConsumer:
    """kafka-python's consumer."""

    access = ATTRIBUTES

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self.failed_commits = 0
        self._positions: dict[OurPartition, int] = {}

    @errors_of_ours()
    def assign(self, starts: Mapping[OurPartition, int]) -> None:
        self._consumer.assign([TopicPartition(*at) for at in starts])
        for at, offset in starts.items():
            self._consumer.seek(TopicPartition(*at), offset)

    @errors_of_ours()
    def subscribe(self, topics: Sequence[str], on_revoked: Callable[[], None]) -> None:
        def revoked() -> None:
            on_revoked()
            self._positions.clear()

        self._consumer.subscribe(list(topics), listener=revocation_listener(revoked))

    def poll(self, seconds: float, *, at_most: int | None) -> list[Any]:
        """Records as soon as there are any, else an empty list."""
        wanted = RECORDS_PER_POLL if at_most is None else min(at_most, RECORDS_PER_POLL)
        if not self._consumer.assignment():
            seconds = max(seconds, JOIN_SECONDS)
        try:
            polled = self._consumer.poll(seconds * MILLISECONDS, max_records=wanted)
        except Exception as error:  # a codec raises errors of its own
            raise CannotReadOn from error_of(error) if isinstance(error, errors.KafkaError) else error
        for partition, records in polled.items():
            self._positions[partition] = records[-1].offset + 1
        return [record for records in polled.values() for record in records]

    @errors_of_ours()
    def next_offset(self, at: OurPartition) -> int | None:
        position: int | None = self._consumer.position(TopicPartition(*at))
        return position

    @errors_of_ours()
    def seek(self, at: OurPartition, offset: int) -> None:
        """Read on from there, as if all before it had been polled."""
        self._consumer.seek(TopicPartition(*at), offset)
        self._positions[at] = offset

    def assignment(self) -> set[OurPartition]:
        assigned: set[OurPartition] = self._consumer.assignment()
        return assigned

    def positions(self) -> dict[OurPartition, int]:
        """The offset after the last record that `poll` returned, of partitions that had one."""
        mine = self.assignment()
        return {partition: offset for partition, offset in self._positions.items() if partition in mine}

    @errors_of_ours()
    def reached(self, ends: Mapping[OurPartition, int]) -> set[OurPartition]:
        """Return the partitions that have been read to this offset."""
        return {at for at, end in ends.items() if self._consumer.position(TopicPartition(*at)) >= end}

    @errors_of_ours()
    def end_offsets(self, partitions: Iterable[OurPartition]) -> dict[OurPartition, int]:
        ends: dict[OurPartition, int] = self._consumer.end_offsets([TopicPartition(*at) for at in partitions])
        return ends

    def pause(self, partitions: Iterable[OurPartition]) -> None:
        self._consumer.pause(*(TopicPartition(*at) for at in partitions))

    @errors_of_ours()
    def commit_soon(self, offsets: Mapping[OurPartition, int]) -> None:
        self._consumer.commit_async(with_metadata(offsets), callback=self._on_commit)

    def _on_commit(self, offsets: object, response: object) -> None:
        self.failed_commits += isinstance(response, Exception)

    def commit_revoked(self, offsets: Mapping[OurPartition, int]) -> None:
        """Do nothing: in a rebalance kafka-python answers no commit; the next member reads these records again."""

    @errors_of_ours()
    def commit(self, offsets: Mapping[OurPartition, int]) -> None:
        self._consumer.commit(with_metadata(offsets), timeout_ms=LAST_COMMIT_MS)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonProducer:
    """kafka-python's producer."""

    def __init__(self, topic: str, producer: Any) -> None:
        self._topic = topic
        self._producer = producer
        self.acknowledged = 0
        self.refusal: Exception | None = None
        self.refused: int | None = None

    def keeps(self, record: NewRecord) -> bool:
        is_null = record.key is None and record.value is None
        return (
            not is_null
            and (record.timestamp_ms or 0) >= 0
            and all(value is not None and is_utf8(name) for name, value in record.headers)
        )

    @errors_of_ours()
    def send(self, record: NewRecord, number: int) -> None:
        sending = self._producer.send(
            self._topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
        )
        sending.add_callback(self._on_acknowledged).add_errback(partial(self._on_refused, number))

    def _on_acknowledged(self, metadata: object) -> None:
        self.acknowledged += 1

    def _on_refused(self, number: int, error: Exception) -> None:
        if self.refused is None or number < self.refused:
            self.refusal, self.refused = error_of(error), number

    def flush(self, seconds: float) -> bool:
        """Wait for the acknowledgements; return whether all came or failed in time."""
        try:
            self._producer.flush(timeout=seconds)
        except errors.KafkaTimeoutError:
            return False
        return True

    def close(self) -> None:
        """Abandon what has not been sent."""
        with suppress(errors.KafkaTimeoutError):  # it gives up what is not acknowledged
            self._producer.close(timeout=CLOSE_SECONDS)
