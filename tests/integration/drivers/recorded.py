"""Driver that sends, transacts and polls without end with one library, and records the history of it.

    python -m tests.integration.drivers.recorded LIBRARY BOOTSTRAP TOPIC HISTORY

It is three processes of the history: `p` has an idempotent producer, `x0` sends a record to each partition in each
transaction, `c` is a member of a group which reads what is committed. `progress` counts the records that were sent,
the transactions that were committed, and the records that were polled; `finish` ends all three and returns the same.
An error that ends one of them is raised by both. A producer that has lost a request is replaced: `x1` is the next one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from typing import Any

from tests.integration.drivers.line_protocol import serve_driver
from tests.integration.drivers.stepped import Stepped, new_loop

PARTITIONS = 3
POLL_SECONDS = 0.1
BETWEEN_SENDS_SECONDS = 0.002
LOST_SECONDS = 5.0
Settings = dict[str, Any]
Done = Callable[[int | None, object], None]  # the offset, or None and the error
Row = list[Any]  # topic, partition, offset and value


class LostRequest(Exception):
    """A producer waits for the answer to a request that it has not sent, and would do so for ever."""


class RecordedDriver:
    def __init__(self, library: Any, bootstrap: str, topic: str, history: str) -> None:
        self._library = library
        self._bootstrap = bootstrap
        self._topic = topic
        self._file = os.open(history, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._counts = {"sent": 0, "committed": 0, "polled": 0}
        self._ids = count()
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._caught, args=(each,), daemon=True)
            for each in (self._send, self._transact, self._consume)
        ]
        for thread in self._threads:
            thread.start()

    def progress(self) -> dict[str, int]:
        for failure in self._failures:
            raise failure
        return self._counts

    def finish(self) -> dict[str, int]:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        return self.progress()

    def _caught(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failures.append(error)

    def _note(self, process: str, event: str, operation: str, **fields: Any) -> None:
        row = {"process": process, "event": event, "operation": operation, **fields}
        os.write(self._file, json.dumps(row).encode() + b"\n")

    def _sent(self, process: str, producer: Any, value: str, partition: int) -> None:
        number = next(self._ids)

        def done(offset: int | None, error: object = None) -> None:
            if error is None:
                self._note(process, "ok", "send", id=number, offset=offset)
            else:
                self._note(process, "info", "send", id=number, error=repr(error))

        self._note(process, "invoke", "send", id=number, topic=self._topic, partition=partition, value=value)
        producer.send(self._topic, value.encode(), partition, done)

    def _send(self) -> None:
        producer = self._library(self._bootstrap).producer(None)
        while not self._is_over.is_set():
            self._sent("p", producer, f"p {self._counts['sent']}", self._counts["sent"] % PARTITIONS)
            self._counts["sent"] += 1
            producer.pause()
        producer.flush()

    def _transact(self) -> None:
        for number in count():
            with suppress(LostRequest):
                self._transact_by(f"x{number}")
                break

    def _transact_by(self, process: str) -> None:
        """Raises LostRequest."""
        producer = self._library(self._bootstrap).producer(self._topic)
        while not self._is_over.is_set():
            producer.begin_transaction()
            self._note(process, "ok", "begin")
            for partition in range(PARTITIONS):
                self._sent(process, producer, f"{process} {self._counts['committed']} {partition}", partition)
            producer.flush()
            self._note(process, "invoke", "commit")
            producer.commit_transaction()
            self._note(process, "ok", "commit")
            self._counts["committed"] += 1

    def _consume(self) -> None:
        consumer = self._library(self._bootstrap).consumer(self._topic, self._on_assigned)
        self._note("c", "ok", "subscribe", topics=[self._topic])
        while not self._is_over.is_set():
            self._note("c", "invoke", "poll")
            records = consumer.polled()
            self._note("c", "ok", "poll", records=records, isolation="read_committed")
            self._counts["polled"] += len(records)
        consumer.close()

    def _on_assigned(self, partitions: Iterable[Any]) -> None:
        self._note("c", "ok", "assign", partitions=sorted([each.topic, each.partition] for each in partitions))


class Through:
    """A thing that a library made, with its methods, and those that each library has by another name."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._common: Settings = {"bootstrap_servers": bootstrap, "retry_backoff_ms": 50}

    def producer(self, transactional_id: str | None) -> Any:
        import kafka

        settings = self._common | {"enable_idempotence": True, "transactional_id": transactional_id}
        producer = kafka.KafkaProducer(**settings)
        if transactional_id is not None:
            answered_in_time(producer.init_transactions)
        return KafkaPythonProducer(producer)

    def consumer(self, topic: str, on_assigned: Callable[[Iterable[Any]], None]) -> Any:
        import kafka

        consumer = kafka.KafkaConsumer(**self._common, **READING, group_id=topic)
        consumer.subscribe([topic], listener=listener_of(kafka, on_assigned))
        return KafkaPythonConsumer(consumer)


def listener_of(library: Any, on_assigned: Callable[[Iterable[Any]], None]) -> Any:
    class Listener(library.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, _: Any) -> None:
            pass

        def on_partitions_assigned(self, partitions: Any) -> None:
            on_assigned(partitions)

    return Listener()


READING: Settings = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}


class KafkaPythonProducer(Through):
    """Loses a request for the coordinator of its transactions that has no connection (Sender, in 2.3 and in 3.0)."""

    def send(self, topic: str, value: bytes, partition: int, done: Done) -> None:
        future = self._made.send(topic, value, partition=partition)
        future.add_callback(lambda metadata: done(metadata.offset, None))
        future.add_errback(lambda error: done(None, error))

    def pause(self) -> None:
        time.sleep(BETWEEN_SENDS_SECONDS)

    def flush(self) -> None:
        """Raises LostRequest."""
        answered_in_time(self._made.flush)

    def commit_transaction(self) -> None:
        """Raises LostRequest."""
        answered_in_time(self._made.commit_transaction)


def answered_in_time(call: Callable[[], None]) -> None:
    """Raises LostRequest."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            call()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        done.result(LOST_SECONDS)
    except TimeoutError:
        raise LostRequest from None


class KafkaPythonConsumer(Through):
    def polled(self) -> list[Row]:
        return rows_of(self._made.poll(timeout_ms=int(POLL_SECONDS * 1000)))


def rows_of(batches: dict[Any, list[Any]]) -> list[Row]:
    return [[row.topic, row.partition, row.offset, row.value.decode()] for batch in batches.values() for row in batch]


class Aiokafka:
    def __init__(self, bootstrap: str) -> None:
        self._common: Settings = {"bootstrap_servers": bootstrap, "retry_backoff_ms": 50}
        self._loop = new_loop()

    def producer(self, transactional_id: str | None) -> Any:
        import aiokafka

        settings = self._common | {"enable_idempotence": True, "transactional_id": transactional_id}
        return AiokafkaProducer(self._loop, Stepped(self._loop, aiokafka.AIOKafkaProducer, **settings))

    def consumer(self, topic: str, on_assigned: Callable[[Iterable[Any]], None]) -> Any:
        import aiokafka

        consumer = Stepped(self._loop, aiokafka.AIOKafkaConsumer, **self._common, **READING, group_id=topic)
        consumer.subscribe([topic], listener=listener_of(aiokafka, on_assigned))
        return AiokafkaConsumer(consumer)


class AiokafkaProducer(Through):
    def __init__(self, loop: asyncio.AbstractEventLoop, made: Any) -> None:
        super().__init__(made)
        self._loop = loop

    def send(self, topic: str, value: bytes, partition: int, done: Done) -> None:
        def on_done(future: Any) -> None:
            error = future.exception()
            done(None if error else future.result().offset, error)

        self._made.send(topic, value, partition=partition).add_done_callback(on_done)

    def pause(self) -> None:
        self._loop.run_until_complete(asyncio.sleep(BETWEEN_SENDS_SECONDS))


class AiokafkaConsumer(Through):
    def polled(self) -> list[Row]:
        return rows_of(self._made.getmany(timeout_ms=int(POLL_SECONDS * 1000)))

    def close(self) -> None:
        self._made.stop()


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        # librdkafka asks for a new leader once a second, which is most of the time that a test waits
        quick = {"topic.metadata.refresh.fast.interval.ms": 50, "retry.backoff.ms": 50, "log_level": 0}
        self._common: Settings = {"bootstrap.servers": bootstrap, **quick}

    def producer(self, transactional_id: str | None) -> Any:
        from confluent_kafka import Producer

        if transactional_id is None:
            return ConfluentProducer(Producer({**self._common, "enable.idempotence": True}))
        producer = Producer({**self._common, "transactional.id": transactional_id})
        producer.init_transactions()
        return ConfluentProducer(producer)

    def consumer(self, topic: str, on_assigned: Callable[[Iterable[Any]], None]) -> Any:
        from confluent_kafka import Consumer

        consumer = Consumer({**self._common, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic], on_assign=lambda _, partitions: on_assigned(partitions))
        return ConfluentConsumer(consumer)


class ConfluentProducer(Through):
    def send(self, topic: str, value: bytes, partition: int, done: Done) -> None:
        def on_delivery(error: Any, message: Any) -> None:
            done(None if error else message.offset(), error)

        self._made.produce(topic, value, partition=partition, on_delivery=on_delivery)

    def pause(self) -> None:
        self._made.poll(BETWEEN_SENDS_SECONDS)


class ConfluentConsumer(Through):
    def polled(self) -> list[Row]:
        return [
            [each.topic(), each.partition(), each.offset(), each.value().decode()]
            for each in self._made.consume(500, POLL_SECONDS)
            if each.error() is None
        ]


LIBRARIES = {"kafka-python": KafkaPython, "aiokafka": Aiokafka, "confluent-kafka": Confluent}


if __name__ == "__main__":
    library, *arguments = sys.argv[1:]
    serve_driver(RecordedDriver(LIBRARIES[library], *arguments))
