"""Apache Kafka 2.0.1 on a data directory that another broker wrote.

Kafka knows a topic by ZooKeeper alone: a log that ZooKeeper does not know is left lying. So the topics of the
directory are registered there before the broker starts, with the partitions, configs and leader epochs they have.
The other way round needs nothing: minibroker reads topics off the folders.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from minibroker.conformance.raw_connection import RawConnection
from minibroker.protocol.api import ApiKey
from minibroker.storage.files.checkpoints import read_checkpoint
from minibroker.storage.files.file_names import LEADER_EPOCH_CHECKPOINT, parse_partition_directory
from minibroker.zookeeper.messages import Create, ReplyCode, ZooKeeperError, is_error
from minibroker.zookeeper.session import ZooKeeperClient
from tests.integration.members import wait_until
from tests.requests import by_name

TOPIC_STORE = "minibroker.json"
SESSION_TIMEOUT_MS = 30_000
CONNECT_MS = 20_000


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
    nodes: dict[str, object] = {}

    def add(path: str, document: object) -> None:
        *above, _ = accumulate(path.split("/")[1:], "{}/{}".format, initial="")
        for each in above[1:]:
            nodes.setdefault(each, None)
        nodes[path] = document

    for name, topic in topics.items():
        assignment = {str(partition): [broker_id] for partition in topic.leader_epochs}
        add(f"/brokers/topics/{name}", {"version": 1, "partitions": assignment})
        add(f"/config/topics/{name}", {"version": 1, "config": topic.configs})
        for partition, leader_epoch in topic.leader_epochs.items():
            state = {"controller_epoch": 1, "leader": broker_id, "version": 1, "isr": [broker_id]}
            add(f"/brokers/topics/{name}/partitions/{partition}/state", {**state, "leader_epoch": leader_epoch + 1})
    client = ZooKeeperClient("", session_timeout_ms=SESSION_TIMEOUT_MS)
    client.connect([("127.0.0.1", zookeeper_port)], timeout_ms=CONNECT_MS)
    answers = client.ask_all([Create(path, json.dumps(document).encode()) for path, document in nodes.items()])
    client.close()
    wrong = [each for each in answers if isinstance(each, ZooKeeperError) and not is_error(each, ReplyCode.NODE_EXISTS)]
    assert wrong == []


def wait_until_led(kafka: ApacheKafka, topics: Mapping[str, ForeignTopic]) -> None:
    """Return once every partition of the topics has a leader: only then are they in Kafka's metadata."""
    with RawConnection(kafka.host, kafka.port) as connection:

        def is_led() -> bool:
            found = connection.call(ApiKey.METADATA, 1, topics=by_name(*topics)).topics
            return not any(row.error_code for topic in found for row in (topic, *topic.partitions))

        wait_until(is_led, "the leaders of all topics")
