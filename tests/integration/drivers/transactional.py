"""Driver of a transactional producer of kafka-python, in a process of its own: it leaves sockets open when fenced."""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaProducer, OffsetAndMetadata, TopicPartition

from tests.integration.drivers.line_protocol import serve, to_bytes


class TransactionalDriver:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer: Any = None

    def start(self, transactional_id: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, topic: str, value: str, partition: int) -> None:
        self._producer.send(topic, to_bytes(value), partition=partition)

    def flush(self) -> None:
        self._producer.flush()

    def send_offset(self, topic: str, offset: int, group: str) -> None:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()


def main() -> None:
    driver = TransactionalDriver(sys.argv[1])
    names = ("start", "begin", "write", "flush", "send_offset", "commit", "abort")
    serve({name: getattr(driver, name) for name in names})


if __name__ == "__main__":
    main()
