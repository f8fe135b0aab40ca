"""Clients with each release of Apache Kafka, and with minibroker that acts as it: they do the same, or refuse alike.

At night. `make matrix` notes what passed with minibroker (tests/client_matrix.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Producer

from benchmarks.apache_kafka import KafkaUnavailable
from minibroker.broker.config.profiles import RELEASES, profile_of
from minibroker.conformance.conversation import SocketPeer
from minibroker.conformance.recordings import NAMES
from minibroker.conformance.steps import call
from minibroker.protocol.api import ApiKey
from minibroker.protocol.api_table import RELEASES_UNTIL_2_0, versions_of
from tests.conformance.comparing import wait_for_coordinator
from tests.conformance.digests import apache_kafka
from tests.integration.brokers import Minibroker
from tests.integration.clients import ClientError
from tests.integration.conftest import Drivers, Join
from tests.integration.drivers.line_protocol import Deadline
from tests.integration.members import LIBRARIES, wait_until, wait_until_read
from tests.integration.records import numbered
from tests.integration.transformers import PARTITIONS, PROGRAMS, SOURCE, TARGET, Source, transforming

pytestmark = pytest.mark.nightly
SIDES = ("minibroker", "kafka")
WRITERS = ("kafka-python-3.0", "confluent-kafka", "aiokafka", "java-3.9", "java-0.10.2", "java-0.11", "java-1.1")
# Which of these clients cannot do it with the release: Java's of 4.x wants 2.1 and later, that of 3.9 wants idempotence
# and KIP-447; aiokafka writes batches of magic 2 alone, and 4.x takes no others.
REFUSED = {
    "writes": {("java-3.9", "0.10"), ("aiokafka", "0.10"), ("java-0.10.2", "4.0"), ("java-0.10.2", "4.4")},
    "reads in a group": {*product(["java-4.4"], RELEASES_UNTIL_2_0)},
    "transforms": {*product(PROGRAMS, ["0.10"]), *product(["java", "java-4.4"], RELEASES_UNTIL_2_0)},
}
RECORDS = 200


def of_releases(ability: str, clients: Iterable[str]) -> pytest.MarkDecorator:
    """Each client with each release on both sides; those that minibroker serves have a cell of the matrix."""
    rows = [
        pytest.param(
            *(side, name, client),
            marks=[pytest.mark.ability(f"as {name}", client)]
            if side == "minibroker" and (client, name) not in REFUSED[ability]
            else [],
        )
        for side, name, client in product(SIDES, RELEASES, clients)
        if (side == "minibroker" or name in NAMES)
        and (ability != "transforms" or (client, name) not in REFUSED[ability])
    ]
    return pytest.mark.parametrize(("side", "name", "client"), rows)


@contextmanager
def served(side: str, name: str, directory: Path) -> Iterator[str]:
    """The address of a release, or of minibroker that acts as it, with the topics of these tests."""
    if side == "kafka":
        try:
            with apache_kafka(name, directory) as (host, port):
                yield prepared(host, port, name)
        except KafkaUnavailable as reason:
            pytest.skip(str(reason))
        return
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
    known: dict[str, str | int] = {
        each: value for each, value in settings.items() if profile_of(name).has_setting(each)
    }
    broker = Minibroker(directory, "--act-as", name, settings=known)
    try:
        broker.wait_until_ready()
        yield prepared(broker.host, broker.port, name)
    finally:
        broker.kill()


def prepared(host: str, port: int, name: str) -> str:
    version = min(2, versions_of(name)[ApiKey.CREATE_TOPICS][1])
    with closing(SocketPeer(host, port)) as peer:
        wait_for_coordinator(peer)
        topics: list[object] = [(topic, PARTITIONS, 1, [], []) for topic in ("topic", SOURCE, TARGET)]
        (answer,) = peer.hold([call("CreateTopics", version, topics=topics, timeout_ms=20_000)], "")
        assert [row["error_code"] for row in answer["topics"]] == [0, 0, 0]
    return f"{host}:{port}"


@of_releases("writes", WRITERS)
def test_it_writes_and_reads(side: str, name: str, client: str, tmp_path: Path, drivers: Drivers) -> None:
    with served(side, name, tmp_path) as bootstrap:
        driver = drivers.get(client, bootstrap)
        if (client, name) in REFUSED["writes"]:
            with pytest.raises(ClientError):
                driver.produce("topic", numbered(20))
            return

        driver.produce("topic", numbered(20), codec="gzip")

        assert [each.value for each in driver.consume("topic", 20)] == [each.value for each in numbered(20)]


@of_releases("reads in a group", (*LIBRARIES, "java-4.4"))
def test_it_reads_in_a_group(side: str, name: str, client: str, tmp_path: Path, join: Join) -> None:
    values = [str(number) for number in range(10)]
    with served(side, name, tmp_path) as bootstrap:
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for value in values:
            producer.produce("topic", value, partition=0)
        assert producer.flush(60) == 0
        member = join(client, "group", "topic", bootstrap=bootstrap)
        if (client, name) in REFUSED["reads in a group"]:
            wait_until(lambda: member.failure() is not None, f"{client} to refuse {name}")
            return

        wait_until_read(values, member)
        member.commit()

        assert member.committed(0) == len(values)


@of_releases("transforms", PROGRAMS)
def test_it_transforms_in_transactions(side: str, name: str, client: str, tmp_path: Path) -> None:
    with served(side, name, tmp_path / "broker") as bootstrap:
        source = Source(bootstrap)
        source.write(RECORDS)
        with transforming([client], bootstrap, tmp_path / "transformers.log") as (transformers, reader):
            deadline = Deadline(120)
            while reader.count < source.count:
                deadline.seconds_left(f"{source.count} records, have {reader.count}")
                transformers.start_those_that_ended()
                time.sleep(0.02)

    assert reader.values == source.values
