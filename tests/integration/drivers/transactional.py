"""Driver of a transactional producer of kafka-python, in a process of its own: it leaves sockets open when fenced."""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.integration.drivers.line_protocol import serve_driver, to_bytes


class TransactionalDriver:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: Any = None

    def start(self, transactional_id: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def write(self, topic: str, value: str) -> None:
        self._producer.send(topic, to_bytes(value), partition=0)

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def do(self, what: str) -> None:
        """Call a method that takes nothing: begin, commit or abort the transaction, or flush."""
        getattr(self._producer, what)()


if __name__ == "__main__":
    serve_driver(TransactionalDriver(sys.argv[1]))
