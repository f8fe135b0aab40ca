"""A data directory that Apache Kafka 4.4.0 wrote while groups of the consumer protocol were alive, and how it goes on.

`python -m tests.conformance.group_directory` records it anew in tests/golden/: without indexes, which recovery makes.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path

from benchmarks.later_kafka import LaterKafka
from tests.conformance.answers import Plain
from tests.conformance.consumer_groups import KAFKA_SETTINGS, SETTINGS
from tests.conformance.conversation import SocketPeer
from tests.conformance.pair import wait_for_coordinator
from tests.conformance.recordings import GOLDEN
from tests.conformance.scripts import conversations
from tests.conformance.steps import Script

RECORDED = "kafka-4.4.0-group-directory.tar.gz"
ANSWERS = "answers.json"
PREFIX = "g000001-"
PATIENT: dict[str, str | int] = {"group.consumer.session.timeout.ms": 50_000}
LEFT_OUT = (".index", ".timeindex", ".lock")
BOOK = conversations("kafka-4.4.0-directory")


def record() -> None:
    """Raises KafkaUnavailable."""
    settings = {name: str(value) for name, value in (SETTINGS | KAFKA_SETTINGS | PATIENT).items()}
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory, LaterKafka(Path(directory), settings, release="4.4.0") as kafka:
        held(kafka, BOOK["before"]())
        kafka.kill()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path in sorted((Path(directory) / "data").rglob("*")):
                if path.is_file() and path.suffix not in LEFT_OUT and path.name not in LEFT_OUT:
                    archive.add(path, path.relative_to(directory))
            kafka.restart()
            text = json.dumps(held(kafka, BOOK["after"]())).encode()
            found = tarfile.TarInfo(ANSWERS)
            found.size = len(text)
            archive.addfile(found, io.BytesIO(text))
    (GOLDEN / RECORDED).write_bytes(packed.getvalue())


def held(kafka: LaterKafka, script: Script) -> list[Plain]:
    peer = SocketPeer(kafka.host, kafka.port)
    try:
        wait_for_coordinator(peer)
        return peer.hold(script, PREFIX)
    finally:
        peer.close()


if __name__ == "__main__":
    record()
