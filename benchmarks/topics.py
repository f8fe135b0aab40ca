"""Topics of the benchmark: created, filled and deleted through confluent-kafka, as on any Kafka broker."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.processes import ProcessError, module_command, run_json

ANSWER_SECONDS = 30.0
FILL_SECONDS = 300.0
RETRY_SECONDS = 0.05
# Removed files go at once: a run writes tens of gigabytes, and reads none of them again.
TOPIC_CONFIG = {"file.delete.delay.ms": "100", "retention.ms": "-1"}

QUIET = {"log_level": 2}  # librdkafka logs every connection that ends

_numbers = itertools.count(1)


class Bootstrap(Protocol):
    """A broker, or the brokers of a cluster, by their addresses."""

    @property
    def name(self) -> str: ...
    @property
    def bootstrap(self) -> str: ...


class Broker(Bootstrap, Protocol):
    """A broker under test, of any kind."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def rss_mb(self) -> float: ...
    def cpu_seconds(self) -> float: ...
    def kernel_seconds(self) -> float: ...


def create_topic(broker: Bootstrap, purpose: str, *, partitions: int = 1, replicas: int = 1) -> str:
    """Create a new topic and wait until each partition has a leader; return its name."""
    name = f"bench-{purpose}-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    new = NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=TOPIC_CONFIG)
    admin.create_topics([new], request_timeout=ANSWER_SECONDS)[name].result(ANSWER_SECONDS)
    deadline = time.monotonic() + ANSWER_SECONDS
    while True:
        found = admin.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
        with_leader = [partition for partition in found.partitions.values() if partition.leader >= 0]
        if found.error is None and len(with_leader) == partitions:
            return name
        if time.monotonic() > deadline:
            raise ProcessError(f"{broker.name} made no leader for {name} in {ANSWER_SECONDS:.0f} s")
        time.sleep(RETRY_SECONDS)


def delete_topic(broker: Bootstrap, name: str) -> None:
    """Remove a topic and its records."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    try:
        admin.delete_topics([name], request_timeout=ANSWER_SECONDS)[name].result(ANSWER_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


def fill_topic(
    broker: Bootstrap,
    topic: str,
    *,
    count: int,
    size_bytes: int,
    partitions: int = 1,
    backed_bytes: int = 0,
    bootstrap: str | None = None,
    options: Sequence[str] = (),
) -> dict[str, float]:
    """Produce `count` values of `size_bytes` from a process of its own; return its measurements.

    Through another listener, if `bootstrap` is given, with `options` of the load.

    `backed_bytes` of memory are touched and freed just before (see `benchmarks.load.confluent.back_memory`).
    """
    command = module_command("benchmarks.load.confluent", "produce", bootstrap or broker.bootstrap, topic)
    command += ["--count", str(count), "--size-bytes", str(size_bytes), "--partitions", str(partitions)]
    command += ["--backed-bytes", str(backed_bytes), *options]
    return run_json(command, seconds=FILL_SECONDS)


def settle_disk() -> None:
    """Flush all dirty pages now, so that the kernel does not do it during a round."""
    os.sync()
