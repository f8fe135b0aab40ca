"""A data directory that Apache Kafka 4.4.0 wrote while groups of the consumer protocol were alive, and how it goes on.

`python -m tests.books kafka-4.4.0 kafka-4.4.0-directory/group_directory --record` records it anew in tests/golden/:
without indexes, which recovery makes.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path

from benchmarks.later_kafka import LaterKafka
from minibroker.conformance.answers import Plain
from minibroker.conformance.conversation import SocketPeer
from minibroker.conformance.steps import Script
from tests.conformance.comparing import first_difference, wait_for_coordinator
from tests.conformance.consumer_groups import KAFKA_SETTINGS, SETTINGS
from tests.conformance.recordings import GOLDEN, Comparison
from tests.conformance.scripts import conversations

RECORDED = "kafka-4.4.0-group-directory.tar.gz"
ANSWERS = "answers.json"
PREFIX = "g000001-"
PATIENT: dict[str, str | int] = {"group.consumer.session.timeout.ms": 50_000}
LEFT_OUT = (".index", ".timeindex", ".lock")
BOOK = conversations("kafka-4.4.0-directory")


def compared(seeds: range) -> Comparison:
    """Have a live Apache Kafka write a directory anew, and go on with it. Raises KafkaUnavailable."""
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
            answers = held(kafka, BOOK["after"]())
            text = json.dumps(answers).encode()
            found = tarfile.TarInfo(ANSWERS)
            found.size = len(text)
            archive.addfile(found, io.BytesIO(text))
    with tarfile.open(GOLDEN / RECORDED) as archive:
        kept = archive.extractfile(ANSWERS)
        assert kept is not None
        difference = first_difference(BOOK["after"](), json.load(kept), answers)
    return Comparison(packed.getvalue(), 1, [] if difference is None else [str(difference)])


def held(kafka: LaterKafka, script: Script) -> list[Plain]:
    peer = SocketPeer(kafka.host, kafka.port)
    try:
        wait_for_coordinator(peer)
        return peer.hold(script, PREFIX)
    finally:
        peer.close()
