"""A data directory that Apache Kafka 4.4.0 wrote while groups of the consumer protocol were alive, and how it goes on.

`python -m tests.conformance.group_directory` records it anew in tests/golden/: without indexes, which recovery makes.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.later_kafka import LaterKafka
from tests.conformance.answers import Plain
from tests.conformance.consumer_groups import KAFKA_SETTINGS, SETTINGS
from tests.conformance.conversation import SocketPeer
from tests.conformance.pair import wait_for_coordinator
from tests.conformance.recordings import GOLDEN
from tests.conformance.scripts.consumer_groups import (
    MATCHING_MS,
    beats,
    committed,
    described,
    fetched,
    heartbeat,
    joins,
    topics,
    wait,
)
from tests.conformance.steps import Script, Told

RECORDED = "kafka-4.4.0-group-directory.tar.gz"
ANSWERS = "answers.json"
PREFIX = "g000001-"
PATIENT: dict[str, str | int] = {"group.consumer.session.timeout.ms": 50_000}
LEFT_OUT = (".index", ".timeindex", ".lock")
RANGED: dict[str, Any] = {"group_id": "@ranged"}
MATCHING: dict[str, Any] = {"group_id": "@matching"}


def before() -> Script:
    """Three groups: with a static member, by range, by a regular expression; two are in the middle of a rebalance."""
    by_range: dict[str, Any] = {**RANGED, "server_assignor": "range"}
    expression: dict[str, Any] = {**MATCHING, "subscribed_topic_names": None, "subscribed_topic_regex": "@t.*"}
    return [
        *topics(("@t", 4), ("@u", 3)),
        *(joins("one", "@t", instance_id="i"), joins("two", "@t"), beats("one"), beats("two"), beats("one")),
        committed("one", Told("one", "member_epoch")),
        *(joins("r1", "@t", "@u", **by_range), joins("r2", "@t", **by_range)),
        *(beats("r1", topic_partitions=None, **RANGED), beats("r2", **RANGED)),
        *(joins("m1", **expression), wait(MATCHING_MS), beats("m1", **MATCHING), beats("m1", **MATCHING)),
    ]


def after() -> Script:
    """The same groups, described and gone on with."""
    return [
        *(described("@group"), described("@ranged"), described("@matching"), fetched()),
        *(heartbeat("one", 3, instance_id="i"), heartbeat("two", 3), heartbeat("one", 2), heartbeat("two", 99)),
        *(heartbeat("r1", 2, **RANGED), heartbeat("r2", 3, **RANGED), heartbeat("m1", 2, **MATCHING)),
        *(committed("two", 3, 7), fetched(member="one", epoch=3), described("@group"), described("@ranged")),
    ]


def record() -> None:
    """Raises KafkaUnavailable."""
    settings = {name: str(value) for name, value in (SETTINGS | KAFKA_SETTINGS | PATIENT).items()}
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as directory, LaterKafka(Path(directory), settings, release="4.4.0") as kafka:
        held(kafka, before())
        kafka.kill()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path in sorted((Path(directory) / "data").rglob("*")):
                if path.is_file() and path.suffix not in LEFT_OUT and path.name not in LEFT_OUT:
                    archive.add(path, path.relative_to(directory))
            kafka.restart()
            text = json.dumps(held(kafka, after())).encode()
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
