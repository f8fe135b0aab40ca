"""A transactional producer of two client libraries, with one small interface."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.integration.clients import Client, ClientError, ClientKind, python_driver
from tests.integration.drivers.line_protocol import to_text

PATIENCE_SECONDS = 60.0


class TransactionalProducer(Protocol):
    """What the tests need of a client library. `Fenced` is what it raises when another has taken its place."""

    fenced: type[Exception]

    def begin(self) -> None: ...
    def write(self, topic: str, value: bytes, partition: int = 0) -> None: ...
    def flush(self) -> None: ...
    def send_offset(self, topic: str, offset: int, group: str) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class ConfluentProducer:
    fenced: type[Exception] = KafkaException

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "log_level": 0,
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._producer.init_transactions(PATIENCE_SECONDS)
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    def write(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        reader = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        offsets = [TopicPartition(topic, 0, offset)]
        self._producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), PATIENCE_SECONDS)
        reader.close()

    def close(self) -> None:
        with suppress(KafkaException):  # one that was shut out says so again
            self._producer.flush(0)


class KafkaPythonProducer:
    fenced: type[Exception] = ClientError

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        kind = ClientKind("kafka-python", lambda: python_driver("transactional"))
        with open(os.devnull, "wb") as nowhere:
            self._driver = Client(kind, bootstrap, nowhere)
        self._driver.call("start", transactional_id=transactional_id)

    def begin(self) -> None:
        self._driver.call("begin")

    def write(self, topic: str, value: bytes, partition: int = 0) -> None:
        self._driver.call("write", topic=topic, value=to_text(value), partition=partition)

    def flush(self) -> None:
        self._driver.call("flush")

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        self._driver.call("send_offset", topic=topic, offset=offset, group=group)

    def commit(self) -> None:
        self._driver.call("commit")

    def abort(self) -> None:
        self._driver.call("abort")

    def close(self) -> None:
        self._driver.close()


LIBRARIES: dict[str, Callable[[str, str], TransactionalProducer]] = {
    "confluent-kafka": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
}
