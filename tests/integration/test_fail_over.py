"""Clients of a cluster of ours, whose coordinators and leaders die: nothing is lost, doubled, or seen in part."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from minibroker import Cluster
from minibroker.history.checking import check
from minibroker.history.lines import read_lines
from minibroker.history.recorder import HistoryWriter, RecordedConsumer
from tests.integration.clients import (
    KINDS,
    LIBRARIES,
    Client,
    DriverProcess,
    UnavailableError,
    go_program,
    java_driver,
    python_driver,
)
from tests.integration.clusters import QUICK_REFRESH, WAIT_SECONDS, new_topic, produce, producer_of, read, roles, until
from tests.integration.records import Record
from tests.nemesis.workload import Reader, end_of
from tests.setup_clients import OLD_KAFKA_PYTHON, python_of

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
RECORDS = 3000
SEGMENT_BYTES = 100_000
RECORDED: dict[str, Callable[[], list[str]]] = {
    "confluent-kafka": lambda: [*python_driver("recorded"), "confluent-kafka"],
    "franz-go": lambda: go_program("recorded"),
    "java": lambda: java_driver("3.9.0", "JavaRecorded"),
    "java-4.4": lambda: java_driver("4.4.0", "JavaRecorded"),
    "aiokafka": lambda: [*python_driver("recorded"), "aiokafka"],
    "kafka-python-3.0": lambda: [*python_driver("recorded"), "kafka-python"],
    "kafka-python-2.3": lambda: [*python_driver("recorded", python_of(OLD_KAFKA_PYTHON)), "kafka-python"],
}
ONE_PARTITION = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=ONE_PARTITION) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    cluster.restore()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    until(lambda: all(is_in_sync(admin, name) for name in admin.list_topics(timeout=WAIT_SECONDS).topics))
    return admin


def is_in_sync(admin: AdminClient, topic: str) -> bool:
    return all(in_sync == [1, 2, 3] for _, in_sync in roles(admin, topic))


def coordinator(admin: AdminClient, topic: str) -> int:
    until(lambda: topic in admin.list_topics(timeout=WAIT_SECONDS).topics and roles(admin, topic)[0][0] > 0)
    return roles(admin, topic)[0][0]


@pytest.mark.parametrize("who", ["coordinator", "leader"])
def test_a_transaction_is_whole_though_a_broker_dies_before_its_markers(
    cluster: Cluster, admin: AdminClient, who: str
) -> None:
    commits, aborts = (producer_of(cluster, **{"transactional.id": f"{who} {ends}"}) for ends in ("commits", "aborts"))
    for producer in (commits, aborts):
        producer.init_transactions(WAIT_SECONDS)
    coordinates = coordinator(admin, TRANSACTIONS)
    leader, other = (each for each in cluster.broker_ids if each != coordinates)
    topic = new_topic(admin, f"whole-{who}", [[leader, other, coordinates], [other, leader, coordinates]])
    for producer, value in ((aborts, b"nothing"), (commits, b"whole")):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, value, partition=partition)
        assert producer.flush(WAIT_SECONDS) == 0
    with cluster.broker(leader).faults.delay(60, api="write_txn_markers") as held:
        aborts.abort_transaction(WAIT_SECONDS)
        commits.commit_transaction(WAIT_SECONDS)
        held.wait()

        cluster.kill(coordinates if who == "coordinator" else leader)
        until(lambda: all(lead in cluster.broker_ids for lead, _ in roles(admin, topic)))
        if who == "leader":
            assert committed(cluster, topic, 0) == committed(cluster, topic, 1) == [b"whole"]
    if who == "coordinator":
        assert committed(cluster, topic, 0) == committed(cluster, topic, 1) == [b"whole"]


def committed(cluster: Cluster, topic: str, partition: int) -> list[bytes]:
    """The first record that a consumer with read_committed gets."""
    return read(cluster, topic, 1, partition=partition, **{"isolation.level": "read_committed"})


def test_a_broker_that_has_lost_its_log_directory_ends_and_others_lead(cluster: Cluster, admin: AdminClient) -> None:
    topic = new_topic(admin, "directory", [[1, 2, 3]], **{"segment.bytes": str(SEGMENT_BYTES)})
    produce(producer_of(cluster), topic, [b"before"])
    folder = cluster.broker(1).data_dir / f"{topic}-0"
    shutil.rmtree(folder)
    folder.touch()  # in the way of a new segment

    for _ in range(2):
        produce(producer_of(cluster), topic, [b"x" * (SEGMENT_BYTES // 2)])

    until(lambda: roles(admin, topic) == [(2, [2, 3])])
    assert read(cluster, topic, 3)[0] == b"before"
    until(lambda: 1 not in admin.list_topics(timeout=WAIT_SECONDS).brokers)
    folder.unlink()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_group_goes_on_with_its_next_coordinator(cluster: Cluster, admin: AdminClient, how: str) -> None:
    topic = new_topic(admin, f"group-{how}", [[1, 2, 3]])
    assigned: list[int] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUICK_REFRESH,
        }
    )
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.append(len(partitions)))
    producer = producer_of(cluster)
    seen: list[bytes] = []

    def goes_on(value: bytes) -> None:
        producer.produce(topic, value, partition=0)
        assert producer.flush(WAIT_SECONDS) == 0
        until(lambda: polled(consumer, seen) == value)
        consumer.commit(asynchronous=False)

    goes_on(b"before")
    getattr(cluster, how)(coordinator(admin, OFFSETS))
    goes_on(b"after")

    (position,) = consumer.committed([TopicPartition(topic, 0)], WAIT_SECONDS)
    consumer.close()
    assert (assigned, seen, position.offset) == ([1], [b"before", b"after"], 2)


def polled(consumer: Consumer, seen: list[bytes]) -> bytes | None:
    message = consumer.poll(0.1)
    if message is not None and message.error() is None:
        seen.append(message.value() or b"")
    return seen[-1] if seen else None


@pytest.mark.ability("fail-over")
@pytest.mark.parametrize("name", LIBRARIES)
def test_clients_write_and_read_on_while_the_leader_dies(
    cluster: Cluster, admin: AdminClient, name: str, tmp_path: Path
) -> None:
    topic = new_topic(admin, f"dies-{name}", [[1, 2, 3]])
    with open(tmp_path / "log", "wb") as log, contextlib.ExitStack() as closing:
        try:
            writer, reader = (Client(KINDS[name], cluster.bootstrap_servers, log) for _ in range(2))
        except UnavailableError as error:
            pytest.skip(str(error))
        closing.callback(writer.kill)
        closing.callback(reader.kill)
        reader.follow(topic)
        reader.start_next(RECORDS)
        writer.start_produce(topic, [Record(None, b"%d" % number) for number in range(RECORDS)], acks="all")
        log_of_leader = cluster.broker(1).data_dir / f"{topic}-0" / f"{0:020}.log"
        until(lambda: log_of_leader.stat().st_size > 0)

        cluster.kill(1)

        assert writer.finish_produce() == RECORDS
        values = {record.value for record in reader.finish_next()}
    written = {b"%d" % number for number in range(RECORDS)}
    assert values <= written
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic})

    def end() -> int:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), WAIT_SECONDS)[1])

    until(lambda: end() >= RECORDS)  # the high watermark of a new leader is behind until its followers have fetched
    assert set(read(cluster, topic, end())) == written  # those that were sent again may be there twice


@pytest.mark.ability("fail-over")
@pytest.mark.nightly  # the rounds of `make nemesis` in .ci/run kill brokers, too
@pytest.mark.parametrize("library", RECORDED)
def test_the_history_of_a_rolling_kill_is_clean(
    cluster: Cluster, admin: AdminClient, library: str, tmp_path: Path
) -> None:
    topic = new_topic(admin, f"rolling-{library}", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    path = tmp_path / "history"
    with open(tmp_path / "log", "wb") as log, contextlib.ExitStack() as closing:
        try:
            client = DriverProcess(library, [*RECORDED[library](), cluster.bootstrap_servers, topic, str(path)], log)
        except UnavailableError as error:
            pytest.skip(str(error))
        closing.callback(client.kill)

        def go_on() -> None:
            """Wait until all of its loops have."""
            goals = {name: count + 5 for name, count in client.call("progress").items()}
            until(lambda: all(count >= goals[name] for name, count in client.call("progress").items()))

        for broker_id in cluster.broker_ids:
            go_on()
            cluster.kill(broker_id)
            go_on()
            cluster.start(broker_id)
            until(lambda: is_in_sync(admin, topic))
        client.call("finish")
    with HistoryWriter(path) as history:
        read_all(cluster, topic, history)

    assert check(read_lines(path)) == []


def read_all(cluster: Cluster, topic: str, history: HistoryWriter) -> None:
    reader = Reader({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, **QUICK_REFRESH})
    consumer = RecordedConsumer(history, "last", reader)
    places = [(topic, partition) for partition in range(3)]
    consumer.assign([(*place, 0) for place in places])
    deadline = time.monotonic() + WAIT_SECONDS
    while any(reader.ends.get(place, -1) < end_of(reader, place) for place in places):
        assert time.monotonic() < deadline, f"only read until {reader.ends}"
        consumer.poll(0.2)
    consumer.close()
