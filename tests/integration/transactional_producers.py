"""A transactional producer of two client libraries, with one small interface.

`fenced` is what it raises when another has taken its place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.integration.clients import ClientError, DriverProcess, python_driver
from tests.integration.drivers.line_protocol import to_text

PATIENCE_SECONDS = 60.0


class ConfluentProducer:
    fenced: type[Exception] = KafkaException

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._bootstrap = bootstrap
        quick = {"log_level": 0, "reconnect.backoff.max.ms": 200}
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **quick})
        self._producer.init_transactions(PATIENCE_SECONDS)
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    def write(self, topic: str, value: bytes) -> None:
        self._producer.produce(topic, value, partition=0)

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
        with open(os.devnull, "wb") as nowhere:
            self._driver = DriverProcess("kafka-python", [*python_driver("transactional"), bootstrap], nowhere)
        self._driver.call("start", transactional_id=transactional_id)
        self.begin = partial(self._do, "begin_transaction")
        self.commit = partial(self._do, "commit_transaction")
        self.abort = partial(self._do, "abort_transaction")
        self.flush = partial(self._do, "flush")
        self.close = self._driver.kill

    def _do(self, what: str) -> None:
        self._driver.call("do", what=what)

    def write(self, topic: str, value: bytes) -> None:
        self._driver.call("write", topic=topic, value=to_text(value))

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        self._driver.call("send_offset", topic=topic, offset=offset, group=group)


TransactionalProducer = ConfluentProducer | KafkaPythonProducer
LIBRARIES: dict[str, Callable[[str, str], TransactionalProducer]] = {
    "confluent-kafka": ConfluentProducer,
    "kafka-python": KafkaPythonProducer,
}
