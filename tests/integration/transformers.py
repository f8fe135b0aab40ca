"""Transformers: programs that copy a topic in transactions, and a reader of what they have committed."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Producer

from tests.integration.clients import UnavailableError, go_program, java_driver, node_program, python_driver
from tests.integration.librdkafka import read_from_beginning, take
from tests.setup_clients import ROOT

RECORDS_PER_TRANSACTION = 750
PARTITIONS = 4
READ_SECONDS = 30.0
SOURCE, TARGET, GROUP = "source", "target", "transformers"
PROGRAMS: dict[str, Callable[[], list[str]]] = {
    "confluent-kafka": lambda: [*python_driver("transformer"), "confluent-kafka"],
    "kafka-python": lambda: [*python_driver("transformer"), "kafka-python"],
    "java": lambda: java_driver("3.9.0", "JavaTransformer"),
    "java-4.4": lambda: java_driver("4.4.0", "JavaTransformer"),
    "franz-go": partial(go_program, "transform"),
    "kafkajs": partial(node_program, "kafkajs_transformer"),
}


class Reader(threading.Thread):
    """Reads what is committed, from the beginning, for as long as it is let; the values by partition."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.is_stopping = threading.Event()
        settings = {"isolation_level": "read_committed", "reconnect_backoff_max_ms": 200}
        self._consumer = read_from_beginning(bootstrap, TARGET, PARTITIONS, **settings)

    @property
    def count(self) -> int:
        return sum(map(len, self.values))

    def run(self) -> None:
        while not self.is_stopping.is_set():
            take(self._consumer, self.values)
        self._consumer.close()


class Transformers:
    """So many processes with transactional ids of their own; one that ends is started again."""

    def __init__(self, libraries: Sequence[str], bootstrap: str, log: IO[bytes]) -> None:
        try:
            commands = [PROGRAMS[library]() for library in libraries]
        except UnavailableError as error:
            pytest.skip(str(error))
        settings = json.dumps({"records_per_transaction": RECORDS_PER_TRANSACTION})
        self._commands = [
            [*command, bootstrap, GROUP, SOURCE, TARGET, f"transformer-{number}", settings]
            for number, command in enumerate(commands)
        ]
        self._log = log
        self._processes = [self._start(command) for command in self._commands]
        self.ended = 0

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=ROOT)

    def kill(self, number: int) -> None:
        """kill -9; it is started again as all that end are."""
        self._processes[number].kill()
        self._processes[number].wait()

    def start_those_that_ended(self) -> None:
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self.ended += 1
                self._processes[number] = self._start(self._commands[number])

    def kill_all(self) -> None:
        for number in range(len(self._processes)):
            self.kill(number)


class Source:
    """Numbered records are written to the source; `values` are what it has, by partition."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.count = 0
        self._bootstrap = bootstrap

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(self.count, self.count + count):
            partition = number % PARTITIONS
            self.values[partition].append(b"%d" % number)
            producer.produce(SOURCE, b"%d" % number, b"key-%d" % (number % 97), partition=partition)
        self.count += count
        assert producer.flush(READ_SECONDS) == 0


@contextmanager
def transforming(libraries: Sequence[str], bootstrap: str, log_path: Path) -> Iterator[tuple[Transformers, Reader]]:
    with log_path.open("wb") as log:
        transformers, reader = Transformers(libraries, bootstrap, log), Reader(bootstrap)
        reader.start()
        try:
            yield transformers, reader
        finally:
            transformers.kill_all()
            reader.is_stopping.set()
            reader.join(READ_SECONDS)
