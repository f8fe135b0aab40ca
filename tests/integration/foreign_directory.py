"""Apache Kafka 2.0.1 on a data directory that another broker wrote.

Kafka knows a topic by ZooKeeper alone: a log that ZooKeeper does not know is left lying. So the topics of the
directory are registered there before the broker starts, with the partitions, configs and leader epochs they have.
The other way round needs nothing: minibroker reads topics off the folders.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from minibroker.protocol.api import ApiKey
from minibroker.storage.files.checkpoints import read_checkpoint
from minibroker.storage.files.file_names import LEADER_EPOCH_CHECKPOINT, parse_partition_directory
from tests.integration.members import wait_until
from tests.integration.wire import RawConnection
from tests.requests import by_name, framed

TOPIC_STORE = "minibroker.json"
ANSWER_SECONDS = 2.0
CREATE = 1  # ZooKeeper's operation
NODE_EXISTS = -110
ALL_PERMISSIONS = 31
SESSION_TIMEOUT_MS = 30_000


class ForeignTopic(NamedTuple):
    """A topic as a data directory has it."""

    leader_epochs: dict[int, int]  # the newest by partition, -1 where there is none
    configs: dict[str, str]


@contextmanager
def apache_kafka_on(
    data_dir: Path, work_dir: Path, *, settings: Mapping[str, object] | None = None
) -> Iterator[ApacheKafka]:
    """Start Apache Kafka 2.0.1 on `data_dir`, which no other process may have open; it leads every partition then.

    ZooKeeper and the logs of both go to `work_dir`. `kafka.stop()` inside the block ends it in order; leaving the
    block kills what still runs. Skips the test where Apache Kafka cannot be had.
    """
    try:
        jars = kafka_jars()
    except KafkaUnavailable as error:
        pytest.skip(f"needs Apache Kafka 2.0.1: {error}")
    broker_id = broker_id_of(data_dir)
    topics = topics_of(data_dir)
    kafka = ApacheKafka(
        jars, work_dir, settings={**(settings or {}), "log.dirs": data_dir, "broker.id": broker_id}, heap="512m"
    )
    kafka.data_dir = data_dir
    try:
        kafka.start_zookeeper()
        register_topics(kafka.zookeeper_port, broker_id, topics)
        kafka.spawn_broker()
        kafka.wait_until_ready()
        wait_until_led(kafka, topics)
        yield kafka
    finally:
        kafka.kill()


def broker_id_of(data_dir: Path) -> int:
    """The broker a directory belongs to, by its meta.properties."""
    lines = (data_dir / "meta.properties").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("broker.id=")).partition("=")[2])


def topics_of(data_dir: Path) -> dict[str, ForeignTopic]:
    """The topics by their folders, with the configs that minibroker keeps."""
    store = data_dir / TOPIC_STORE
    kept = json.loads(store.read_text())["topics"] if store.exists() else {}
    epochs: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for folder in sorted(data_dir.iterdir()):
        topic_partition = parse_partition_directory(folder.name) if folder.is_dir() else None
        if topic_partition is not None:
            known = read_checkpoint(folder / LEADER_EPOCH_CHECKPOINT, 2)
            epochs[topic_partition.topic][topic_partition.partition] = int(known[-1][0]) if known else -1
    return {name: ForeignTopic(of_topic, kept.get(name, {}).get("configs", {})) for name, of_topic in epochs.items()}


def register_topics(zookeeper_port: int, broker_id: int, topics: Mapping[str, ForeignTopic]) -> None:
    """Write into an empty ZooKeeper what Kafka's controller would have written as it created the topics."""
    with ZooKeeper(zookeeper_port) as zookeeper:
        for name, topic in topics.items():
            assignment = {str(partition): [broker_id] for partition in topic.leader_epochs}
            zookeeper.create(f"/brokers/topics/{name}", {"version": 1, "partitions": assignment})
            zookeeper.create(f"/config/topics/{name}", {"version": 1, "config": topic.configs})
            for partition, leader_epoch in topic.leader_epochs.items():
                state = {"controller_epoch": 1, "leader": broker_id, "version": 1, "isr": [broker_id]}
                zookeeper.create(
                    f"/brokers/topics/{name}/partitions/{partition}/state", {**state, "leader_epoch": leader_epoch + 1}
                )


def wait_until_led(kafka: ApacheKafka, topics: Mapping[str, ForeignTopic]) -> None:
    """Return once every partition of the topics has a leader: only then are they in Kafka's metadata."""
    with RawConnection(kafka.host, kafka.port) as connection:

        def is_led() -> bool:
            found = connection.call(ApiKey.METADATA, 1, topics=by_name(*topics)).topics
            return not any(row.error_code for topic in found for row in (topic, *topic.partitions))

        wait_until(is_led, "the leaders of all topics")


class ZooKeeper:
    """As much of a ZooKeeper client as creating nodes needs. Use it in a `with` block."""

    def __init__(self, port: int) -> None:
        self._transaction_id = 0
        self._known: set[str] = set()
        wait_until(lambda: self._connect(port), "a session with ZooKeeper")

    def _connect(self, port: int) -> bool:
        """Open a session; False while ZooKeeper hangs up or is silent, as it is until it runs."""
        self._connection = RawConnection("127.0.0.1", port, answer_seconds=ANSWER_SECONDS)
        # protocol version, last zxid, session timeout in ms, session id, password
        hello = struct.pack(">iqiq", 0, 0, SESSION_TIMEOUT_MS, 0) + framed(bytes(16))
        try:
            is_open = self._connection.exchange(framed(hello)) is not None
        except TimeoutError:
            is_open = False
        if not is_open:
            self._connection.close()
        return is_open

    def __enter__(self) -> ZooKeeper:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def create(self, path: str, document: Any) -> None:
        """Create a node that stays, with a JSON document in it, and the nodes above it."""
        above = path.rpartition("/")[0]
        if above and above not in self._known:
            self.create(above, None)
        self._transaction_id += 1
        world = struct.pack(">ii", 1, ALL_PERMISSIONS) + framed(b"world") + framed(b"anyone")
        request = (
            struct.pack(">ii", self._transaction_id, CREATE)
            + framed(path.encode())
            + framed(json.dumps(document).encode())
            + world
        )
        answer = self._connection.exchange(framed(request + struct.pack(">i", 0)))
        assert answer is not None, "ZooKeeper hung up"
        _, _, error = struct.unpack_from(">iqi", answer)
        assert error in (0, NODE_EXISTS), f"ZooKeeper answers {error} to the creation of {path}"
        self._known.add(path)
