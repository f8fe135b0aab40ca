"""Clients of share groups take one list of steps (share_steps.py) on minibroker, and on Apache Kafka 4.4.0."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.apache_kafka import KafkaUnavailable
from benchmarks.later_kafka import LaterKafka
from minibroker import Cluster
from tests.integration.brokers import Minibroker
from tests.integration.clients import DriverProcess, UnavailableError
from tests.integration.share_steps import DRIVERS, STEPS, Stage
from tests.jvm import QUICK_JVM

SETTINGS: dict[str, str | int] = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.min.record.lock.duration.ms": 1000,
    "auto.create.topics.enable": "false",
    "log.retention.ms": -1,
}
# Those that have no effect in minibroker: it assigns at once.
KAFKA_SETTINGS: dict[str, str | int] = {
    "group.share.assignor.offload.enable": "false",
    "group.share.assignment.interval.ms": 0,
    "group.share.min.assignment.interval.ms": 0,
}
KAFKA = "Apache Kafka 4.4.0"
CLUSTER = "a cluster of three"
numbers = itertools.count()


class Address(NamedTuple):
    """The address of the brokers."""

    bootstrap: str


@contextmanager
def started(name: str, folder: Path) -> Iterator[Any]:
    """Raises KafkaUnavailable."""
    broker: Any
    if name == CLUSTER:
        with Cluster(3, settings=SETTINGS) as cluster:
            yield Address(cluster.bootstrap_servers.split(",")[0])  # as each client takes it
        return
    if name == KAFKA:
        settings = {key: str(value) for key, value in (SETTINGS | KAFKA_SETTINGS).items()}
        broker = LaterKafka(folder, settings, release="4.4.0", java_options=QUICK_JVM)
    else:
        broker = Minibroker(folder, settings=SETTINGS)
    try:
        yield broker.start() if name == KAFKA else broker.wait_until_ready()
    finally:
        broker.kill()


@pytest.fixture(
    scope="module", params=["minibroker", *(pytest.param(each, marks=pytest.mark.nightly) for each in (CLUSTER, KAFKA))]
)
def share_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    try:
        with started(request.param, tmp_path_factory.mktemp("broker")) as broker:
            yield broker
    except KafkaUnavailable as error:
        pytest.skip(f"needs {KAFKA}: {error}")


@pytest.fixture(scope="module")
def stage_of(share_broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Stage]]:
    running: dict[str, DriverProcess] = {}
    with (tmp_path_factory.mktemp("sharers") / "log").open("wb") as log:

        def stage(client: str) -> Stage:
            if client not in running or not running[client].is_running:
                try:
                    running[client] = DriverProcess(client, [*DRIVERS[client](), share_broker.bootstrap], log)
                except UnavailableError as error:
                    pytest.skip(str(error))
            name = f"{client.replace(' ', '-')}-{next(numbers)}"
            return Stage(client, share_broker.bootstrap, running[client], log, name)

        yield stage
        for driver in running.values():
            driver.kill()


@pytest.mark.ability("share groups")
@pytest.mark.parametrize("client", DRIVERS)
@pytest.mark.parametrize("title", STEPS)
def test_a_client_of_share_groups(client: str, title: str, stage_of: Callable[[str], Stage]) -> None:
    step = STEPS[title]
    if client in step.lacks:
        pytest.skip(f"{client} {step.lacks[client]}")
    stage = stage_of(client)
    step.take(stage)
    stage.end()
