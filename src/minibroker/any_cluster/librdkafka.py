"""The only module that imports confluent-kafka: reads and writes records with librdkafka, where it is installed.

librdkafka is several times faster than kafka-python. Both are used through `record_clients`, so a command does not
notice which of the two it has.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import methodcaller
from typing import Any

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Partition

from minibroker.any_cluster.logins import for_librdkafka
from minibroker.any_cluster.record_lines import Headers, NewRecord, OwnHeaders, is_utf8
from minibroker.any_cluster.record_text import Access
from minibroker.client.errors import CannotReadOn, NoAnswer, error_name
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.errors import ErrorCode, known_error
from minibroker.protocol.errors import KafkaError as Refusal

RECORDS_PER_POLL = 10_000
NO_EPOCH = -1  # of message formats before 0.11
ANSWER_SECONDS = 30.0
LAST_COMMIT_SECONDS = 5.0
FATAL = {  # of those that librdkafka would otherwise try again for ever
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._AUTHENTICATION,
    KafkaError._FATAL,
}
# Errors that end a client are logged at every level; we report them in a line of our own.
SILENT = logging.Logger("librdkafka", logging.CRITICAL + 1)
# Of a batch that librdkafka would fetch again for ever.
UNREADABLE = {
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.INVALID_MSG,
    KafkaError.MSG_SIZE_TOO_LARGE,
}
TIMEOUTS = {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT}
RETRIED = {  # refusals that pass
    ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_CONTROLLER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.LISTENER_NOT_FOUND, ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_NOT_AVAILABLE,
}  # fmt: skip
REFUSED_LOGINS = {KafkaError._AUTHENTICATION, KafkaError._SSL}
RECORDS_BETWEEN_POLLS = 1_000
GIVEN_UP = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}
REASON_SECONDS = 5.0
# Java's names of properties that librdkafka names otherwise.
RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "max.request.size": "message.max.bytes",
}
CONSUMER_SETTINGS = {
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "check.crcs": True,  # as Java's and kafka-python's; by default it returns damaged records as if nothing were wrong
    # By default librdkafka fetches nothing for a second once 100,000 records wait for us, which is a third of a second.
    "queued.min.messages": 200_000,
    "fetch.queue.backoff.ms": 5,
}

# For a name that is not UTF-8 the binding returns a list and sets an exception. The interpreter's own calls do not see
# that once they are specialized, and the list crashes it; a call from C does.
headers_of = methodcaller("headers")
ACCESS = Access(
    topic=Message.topic,
    partition=Message.partition,
    offset=Message.offset,
    timestamp=lambda message: message.timestamp()[1],
    key=Message.key,
    value=Message.value,
    headers=Message.headers,
    leader_epoch=lambda message: NO_EPOCH if message.leader_epoch() is None else message.leader_epoch(),
)


class LibrdkafkaConsumer:
    """Reads the partitions that it is given, or that a group assigns."""

    def __init__(self, settings: Mapping[str, Any], own_headers: OwnHeaders) -> None:
        self.access = ACCESS._replace(headers=self._headers_of)
        self._own_headers = own_headers
        self._undecodable: Any = None  # the binding crashes when it is asked for such headers a second time
        self._ended: set[TopicPartition] = set()
        self._starts: dict[TopicPartition, int] = {}  # of assigned partitions, or where one stopped
        self._sought: dict[TopicPartition, int] = {}
        self._stopped: dict[TopicPartition, Exception] = {}  # the errors of batches that it cannot read
        self.failed_commits = 0
        self._consumer = created(Consumer, {**CONSUMER_SETTINGS, **settings, "on_commit": self._on_commit})

    def _headers_of(self, message: Any) -> Headers:
        if message is not self._undecodable:
            try:
                return headers_of(message) or []
            except SystemError:  # a name is not UTF-8
                self._undecodable = message
        return self._own_headers(message.topic(), message.partition(), message.offset())

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        self._starts.update(starts)
        self._consumer.assign([Partition(at.topic, at.partition, offset) for at, offset in starts.items()])

    def subscribe(self, topics: Sequence[str], on_revoked: Callable[[], None]) -> None:
        def on_assigned(consumer: Any, partitions: Iterable[Any]) -> None:
            for at in map(of_ours, partitions):
                self._ended.discard(at)
                self._starts.pop(at, None)
                self._sought.pop(at, None)

        self._consumer.subscribe(
            list(topics),
            on_assign=on_assigned,
            on_revoke=lambda consumer, partitions: on_revoked(),
            on_lost=lambda consumer, partitions: None,  # another member has them: a commit would be refused
        )

    def poll(self, seconds: float, *, at_most: int | None) -> list[Any]:
        """Records as soon as there are any, else an empty list. Raises CannotReadOn, and errors of our client."""
        if self._stopped:
            _, error = self._stopped.popitem()
            raise CannotReadOn from error
        wanted = RECORDS_PER_POLL if at_most is None else min(at_most, RECORDS_PER_POLL)
        with raised_by_callbacks():
            first = self._consumer.poll(seconds)
        if first is None:
            return []
        messages = [first, *self._consumer.consume(wanted - 1, 0)] if wanted > 1 else [first]
        failed = [message for message in messages if message.error() is not None]
        if not failed:
            return messages
        for message in failed:
            self._on_error(message)
        return [message for message in messages if message.error() is None]

    def _on_error(self, message: Any) -> None:
        code = message.error().code()
        if code == KafkaError._PARTITION_EOF:
            self._ended.add(TopicPartition(message.topic(), message.partition()))
        elif code in UNREADABLE and message.topic() is not None:
            at = TopicPartition(message.topic(), message.partition())
            if message.offset() >= self._sought.get(at, 0):  # else it was passed over meanwhile
                self._starts.setdefault(at, message.offset())
                self._stopped[at] = error_of(code, message.error().str())
        elif code in FATAL or code not in RETRIED:  # which librdkafka tries again by itself
            raise error_of(code, message.error().str())

    def assignment(self) -> set[TopicPartition]:
        return set(map(of_ours, self._consumer.assignment()))

    def positions(self) -> dict[TopicPartition, int]:
        """The offset after the last record that `poll` returned, or before which `seek` passed over all."""
        positions = self._consumer.position(self._consumer.assignment())
        found = {of_ours(each): each.offset for each in positions if each.offset != OFFSET_INVALID}
        return found | {at: offset for at, offset in self._sought.items() if offset > found.get(at, -1)}

    def next_offset(self, at: TopicPartition) -> int | None:
        """None as long as only the group knows it."""
        return self.positions().get(at, self._starts.get(at))

    def seek(self, at: TopicPartition, offset: int) -> None:
        """Read on from there, as if all before it had been polled."""
        self._stopped.pop(at, None)
        self._sought[at] = offset
        with_errors(lambda: self._consumer.seek(Partition(at.topic, at.partition, offset)))

    def reached(self, ends: Mapping[TopicPartition, int]) -> set[TopicPartition]:
        """Return the partitions that have been read to this offset, or to their end."""
        positions = self.positions()
        return {at for at, end in ends.items() if at in self._ended or positions.get(at, -1) >= end}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {at: self._end_of(at) for at in partitions}

    def _end_of(self, at: TopicPartition) -> int:
        watermarks = with_errors(
            lambda: self._consumer.get_watermark_offsets(Partition(at.topic, at.partition), timeout=ANSWER_SECONDS)
        )
        return int(watermarks[1])

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.pause([Partition(at.topic, at.partition) for at in partitions])

    def commit_soon(self, offsets: Mapping[TopicPartition, int]) -> None:
        with_errors(lambda: self._consumer.commit(offsets=of_theirs(offsets), asynchronous=True))

    def _on_commit(self, error: object, partitions: object) -> None:
        self.failed_commits += error is not None

    def commit_revoked(self, offsets: Mapping[TopicPartition, int]) -> None:
        with_errors(lambda: self._consumer.commit(offsets=of_theirs(offsets), asynchronous=False))

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        wanted = of_theirs(offsets)
        within(
            LAST_COMMIT_SECONDS, lambda: with_errors(lambda: self._consumer.commit(offsets=wanted, asynchronous=False))
        )

    def close(self) -> None:
        self._consumer.close()


class LibrdkafkaProducer:
    """Writes records to one topic."""

    def __init__(self, topic: str, settings: Mapping[str, Any]) -> None:
        self._topic = topic
        self._settings = settings
        self._producer = created(Producer, {"delivery.report.only.error": True, **settings})
        self._sent = 0
        self._failed = 0
        self._first_error: Any = None  # of a record
        self.refused: int | None = None  # the number of that record
        self._reason: Exception | None = None  # the producer has become unusable

    def keeps(self, record: NewRecord) -> bool:
        # librdkafka takes 0 for the present, and writes 0 as the largest of negative times, by which a broker deletes.
        if record.timestamp_ms is not None and record.timestamp_ms <= 0:
            return False
        return all("\0" not in name and is_utf8(name) for name, _ in record.headers)  # it ends a name at a NUL

    def send(self, record: NewRecord, number: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    partition=-1 if record.partition is None else record.partition,
                    on_delivery=partial(self._on_failure, number),
                    timestamp=record.timestamp_ms or 0,
                    headers=record.headers or None,
                )
                break
            except BufferError:  # the queue is full
                self._serve(lambda: self._producer.poll(0.1))
                if self.refusal is not None:
                    return
            except KafkaException as error:  # such as a record above message.max.bytes
                self._on_failure(number, error.args[0], None)
                return
        self._sent += 1
        if self._sent % RECORDS_BETWEEN_POLLS == 0:
            self._serve(lambda: self._producer.poll(0))

    def _on_failure(self, number: int, error: Any, message: object) -> None:
        # The binding may call this while it raises the reason, which any handler of exceptions in here would swallow.
        self._failed += message is not None
        if self._first_error is None or (self.refused is not None and number < self.refused):
            self._first_error, self.refused = error, number

    @property
    def refusal(self) -> Exception | None:
        if self._reason is None and self._first_error is not None:
            refusal: Exception = error_of(self._first_error.code(), self._first_error.str())
            return refusal
        return self._reason

    @property
    def _lacks_reason(self) -> bool:
        """Whether records were given up, and the reason has not come yet."""
        return self._reason is None and self._first_error is not None and self._first_error.code() in GIVEN_UP

    @property
    def acknowledged(self) -> int:
        return self._sent - self._failed - len(self._producer)

    def flush(self, seconds: float) -> bool:
        """Wait for the acknowledgements; return whether all came or failed in time."""
        self._serve(lambda: self._producer.flush(seconds))
        if self._lacks_reason:
            self._ask_for_reason()
        return not len(self._producer)

    def _ask_for_reason(self) -> None:
        """Poll a producer without records: the binding loses what it raises where a callback of a record follows."""
        without_records = created(Producer, self._settings)
        deadline = time.monotonic() + REASON_SECONDS
        while self._lacks_reason and time.monotonic() < deadline:
            self._serve(lambda: without_records.poll(0.1))

    def _serve(self, callbacks: Callable[[], object]) -> None:
        """Run callbacks; what makes the producer unusable is a refusal. Raises errors of our client."""
        try:
            with raised_by_callbacks():
                callbacks()
        except KafkaException as error:  # the reason of failures that were reported before
            self._reason = error_of(error.args[0].code(), error.args[0].str())
        except SystemError:
            if self._first_error is None:
                raise

    def close(self) -> None:
        """Abandon what has not been sent."""
        self._producer.purge()
        self._serve(lambda: self._producer.flush(0))


def of_ours(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def of_theirs(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    return [Partition(at.topic, at.partition, offset) for at, offset in offsets.items()]


def within(seconds: float, ask: Callable[[], None]) -> None:
    """Ask in a thread: without a coordinator librdkafka waits for a minute, and lets no signal interrupt it.

    Raises errors of our client, REQUEST_TIMED_OUT without an answer in time.
    """
    raised: list[Exception] = []

    def run() -> None:
        try:
            ask()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, "the group's coordinator")
    for error in raised:
        raise error


def created(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Raises ValueError for a property that librdkafka does not take."""
    named = {RENAMED.get(name, name): value for name, value in for_librdkafka(settings).items()}
    try:
        return kind({"log_level": 0, "logger": SILENT, "error_cb": on_error, **named})
    except KafkaException as error:
        raise ValueError(error.args[0].str()) from error


@contextmanager
def raised_by_callbacks() -> Iterator[None]:
    """Raise what a callback raised.

    Where other callbacks follow, librdkafka's binding raises a SystemError from it, and one more from that for each, or
    only a SystemError.
    """
    try:
        yield
    except SystemError as error:
        raised: BaseException = error
        while isinstance(raised, SystemError) and raised.__cause__ is not None:
            raised = raised.__cause__
        raise raised from None


def on_error(error: Any) -> None:
    """Raise a refused login out of the call that reports it; librdkafka would try again for ever."""
    if error.code() in REFUSED_LOGINS:
        raise error_of(error.code(), error.str())


def error_of(code: int, message: str) -> Exception:
    """The error of our client for one of librdkafka, whose own codes are below 0."""
    if code in TIMEOUTS:
        return Refusal(ErrorCode.REQUEST_TIMED_OUT, message)
    if code > 0:
        return Refusal(known_error(code), error_name(code))
    return NoAnswer("a broker of the cluster", message, is_silent=False, may_be_done=True)


def with_errors(ask: Callable[[], Any]) -> Any:
    """Raises errors of our client."""
    try:
        return ask()
    except KafkaException as error:
        raise error_of(error.args[0].code(), error.args[0].str()) from error
