"""Coordinators that move between minibroker and Apache Kafka 2.0.1: groups go on, and transactions stay whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientPartition

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import OffsetRecord, offset_key, offset_value
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import Record, build_batch
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.transaction_records import TransactionRecord, encode_key, encode_value
from minibroker.transcript.exchanges import read_transcript
from tests.integration.clusters import QUICK_REFRESH, WAIT_SECONDS
from tests.integration.coordinator_requests import GROUP, PRODUCER, TOPIC, TRANSACTIONAL_ID, answers
from tests.integration.members import wait_until
from tests.integration.mixed_cluster import MixedCluster, read
from tests.integration.wire import connection_to

KAFKA, OURS = 1, 3  # coordinate in turn
LEADERS = (2, 4)  # of each kind
COORDINATED = OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS: dict[str, str | int] = {"zookeeper.session.timeout.ms": 3000}
OFFSET_VALUE = offset_value(OffsetRecord(5, -1, "", 0, None), 1 << 50)
TRANSACTION_VALUE = encode_value(TransactionRecord(7, 0, 60_000, 0, frozenset(), 0, -1))
BATCHES = 100_000
OF_FETCHERS = {("OffsetForLeaderEpoch", 1), ("Fetch", 8)}
BETWEEN_BROKERS = {*OF_FETCHERS, ("WriteTxnMarkers", 0)}  # and no ApiVersions
REFUSED_MARKER = "Error processing append operation on partition written-"
KILLED, STOPPED = MixedCluster.kill, MixedCluster.stop


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The requests to broker 4."""
    return tmp_path_factory.mktemp("transcripts") / "transcript"


@pytest.fixture(scope="module")
def cluster(jars: Path, tmp_path_factory: pytest.TempPathFactory, transcript: Path) -> Iterator[MixedCluster]:
    """Apache Kafka brokers 1 and 2, minibrokers 3 and 4; broker 3 or 1 coordinates all groups and transactional ids."""
    cluster = MixedCluster(jars, tmp_path_factory.mktemp("cluster"))
    try:
        for broker_id in (KAFKA, OURS, 2):
            start(cluster, broker_id)
        cluster.start_ours(4, "--transcript", str(transcript), **SETTINGS)
        cluster.create_topic("followed", [4, OURS, KAFKA])
        for topic in COORDINATED:
            cluster.create_topic(topic, [OURS, KAFKA], cleanup_policy="compact")
        cluster.create_topic(TOPIC, [2])
        cluster.await_same_metadata()
        yield cluster
    finally:
        cluster.close()


def start(cluster: MixedCluster, broker_id: int, **settings: int) -> None:
    cluster.await_gone(broker_id)
    (cluster.start_kafka if broker_id in (1, 2) else cluster.start_ours)(broker_id, **SETTINGS, **settings)


def await_coordinator(cluster: MixedCluster, topic: str, broker_id: int) -> None:
    cluster.await_state(topic, 0, lambda state: state.leader == broker_id)


def test_a_broker_that_does_not_coordinate_answers_as_kafka(cluster: MixedCluster) -> None:
    kafka, ours = (answers(cluster.bootstrap(each)) for each in LEADERS)
    assert {asked: (ours[asked], answer) for asked, answer in kafka.items() if ours[asked] != answer} == {}


@pytest.mark.nightly
def test_a_coordinator_that_loads_answers_as_kafka(jars: Path, tmp_path: Path) -> None:
    kafka, ours = (answers_while_loading(MixedCluster(jars, tmp_path / str(each)), each) for each in (KAFKA, OURS))
    assert {asked: (ours[asked], answer) for asked, answer in kafka.items() if ours[asked] != answer} == {}


def answers_while_loading(cluster: MixedCluster, broker_id: int) -> dict[str, Any]:
    try:
        start(cluster, broker_id)
        for topic in (*COORDINATED, TOPIC):
            cluster.create_topic(topic, [broker_id])
        cluster.stop(broker_id)
        folder = cluster.brokers[broker_id].data_dir
        write_long_log(folder / f"{OFFSETS}-0", offset_key(GROUP, TopicPartition(TOPIC, 0)), OFFSET_VALUE)
        write_long_log(folder / f"{TRANSACTIONS}-0", encode_key(TRANSACTIONAL_ID), TRANSACTION_VALUE)
        start(cluster, broker_id, **{"offsets.load.buffer.size": 1, "transaction.state.log.load.buffer.size": 1})
        wait_until(lambda: is_loading(cluster.bootstrap()), "the coordinators")
        found = answers(cluster.bootstrap())
        assert is_loading(cluster.bootstrap())
        return found
    finally:
        cluster.close()


def is_loading(bootstrap: str) -> bool:
    with connection_to(bootstrap) as connection:
        (group,) = connection.call(ApiKey.DESCRIBE_GROUPS, 0, groups=[GROUP]).groups
        end = connection.call(ApiKey.END_TXN, 0, **PRODUCER, is_commit=True)
    return {group.error_code, end.error_code} == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def write_long_log(folder: Path, key: bytes, value: bytes) -> None:
    """Have a log with so many batches that to load it takes seconds, if it is read batch by batch."""
    for path in folder.glob("*.*index"):
        path.unlink()
    now_ms = int(time.time() * 1000)
    batch = build_batch([Record(0, now_ms, key, value)], leader_epoch=0)
    with (folder / f"{0:020}.log").open("wb") as log:
        for offset in range(BATCHES):
            batch[:8] = offset.to_bytes(8, "big")
            log.write(batch)


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((KILLED,), id="once"),
        pytest.param((KILLED, KILLED, STOPPED, STOPPED), id="there-and-back", marks=pytest.mark.nightly),
    ],
)
def test_groups_and_transactions_go_on_with_a_coordinator_of_the_other_kind(
    cluster: MixedCluster, transcript: Path, ends: Sequence[Callable[[MixedCluster, int], None]]
) -> None:
    group, transactions = LiveGroup(cluster, f"read-{len(ends)}"), Transactions(cluster, f"written-{len(ends)}")
    group.goes_on("first")
    for number, end in enumerate(ends):
        for topic in COORDINATED:
            cluster.await_state(topic, 0, lambda state: len(state.in_sync_replicas) == 2)
        state = cluster.state(OFFSETS)
        assert state is not None
        before, after = (OURS, KAFKA) if state.leader == OURS else (KAFKA, OURS)
        transactions.decide()
        end(cluster, before)
        for topic in COORDINATED:
            await_coordinator(cluster, topic, after)
        group.goes_on(f"after {number}")
        transactions.complete()
        start(cluster, before)
    group.close()
    for topic, brokers in ((group.topic, LEADERS), *((topic, (KAFKA, OURS)) for topic in COORDINATED)):
        cluster.await_same_logs(topic, *brokers)
    assert OF_FETCHERS <= spoken_by(OURS, transcript) <= spoken_by(KAFKA, transcript) == BETWEEN_BROKERS
    assert [line for each in (1, 2) for line in cluster.errors_of(each) if REFUSED_MARKER not in line] == []


def spoken_by(broker_id: int, transcript: Path) -> set[tuple[str, int]]:
    """The requests of a broker's fetchers and of its coordinator to broker 4, with their versions."""
    return {
        (exchange.api, exchange.version)
        for exchange in read_transcript(transcript)
        if (exchange.client_id or "").startswith(f"broker-{broker_id}-")
    }


class LiveGroup:
    """A member that reads what is written, and commits; it was assigned its partition once."""

    def __init__(self, cluster: MixedCluster, topic: str) -> None:
        cluster.create_topic(topic, LEADERS)
        self.topic = topic
        address = {"bootstrap.servers": cluster.bootstrap(), **QUICK_REFRESH}
        settings = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        self._cluster = cluster
        self._assigned: list[int] = []
        self._consumer = Consumer({**address, **settings})
        self._consumer.subscribe([topic], on_assign=lambda _, partitions: self._assigned.append(len(partitions)))
        self._producer = Producer(address)
        self._seen: list[str] = []
        self._written: list[str] = []

    def goes_on(self, value: str) -> None:
        self._producer.produce(self.topic, value, partition=0)
        self._written.append(value)
        assert self._producer.flush(WAIT_SECONDS) == 0
        self._cluster.eventually(self._polled, lambda: f"read {self._seen}")
        self._cluster.eventually(self._committed, lambda: "not committed")
        (position,) = self._consumer.committed([ClientPartition(self.topic, 0)], WAIT_SECONDS)
        assert (self._assigned, self._seen, position.offset) == ([1], self._written, len(self._written))

    def _polled(self) -> bool:
        message = self._consumer.poll(0.1)
        if message is not None and message.error() is None:
            self._seen.append((message.value() or b"").decode())
        return self._seen == self._written

    def _committed(self) -> bool:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:  # librdkafka does not know yet what its new coordinator supports
            assert error.args[0].code() == KafkaError._UNSUPPORTED_FEATURE, error
            return False
        return True

    def close(self) -> None:
        self._consumer.close()


class Transactions:
    """One that commits and one that aborts, over leaders of both kinds, whose markers wait for the next coordinator."""

    def __init__(self, cluster: MixedCluster, topic: str) -> None:
        cluster.create_topic(topic, LEADERS, LEADERS[::-1])
        self._cluster = cluster
        self._topic = topic
        self._producers = [self._producer(**{"transactional.id": name}) for name in ("commits", "aborts")]
        for producer in self._producers:
            producer.init_transactions(WAIT_SECONDS)
        self._plain = self._producer()
        self._readable: list[str] = []

    def _producer(self, **settings: str) -> Producer:
        return Producer({"bootstrap.servers": self._cluster.bootstrap(), **QUICK_REFRESH, **settings})

    def _write(self, producer: Producer, value: str) -> None:
        for number in range(2):
            producer.produce(self._topic, value, partition=number)
        assert producer.flush(WAIT_SECONDS) == 0

    def decide(self) -> None:
        """Commit and abort; no leader takes a marker yet, for want of in-sync replicas."""
        committed = f"whole {len(self._readable)}"
        for producer, value in zip(self._producers, (committed, "nothing"), strict=True):
            producer.begin_transaction()
            self._write(producer, value)
        self._demand_replicas(3)
        ends = [self._log_ends()]
        for producer, end in zip(self._producers, ("commit_transaction", "abort_transaction"), strict=True):
            getattr(producer, end)(WAIT_SECONDS)
        assert [self._log_ends()] == ends
        self._readable.append(committed)

    def complete(self) -> None:
        """Have the leaders take markers: what comes behind both transactions is read, and none of the aborted one."""
        self._demand_replicas(1)
        end = f"end {len(self._readable)}"
        self._write(self._plain, end)
        self._readable.append(end)
        for number, leader in enumerate(LEADERS):
            found = read(
                self._cluster.bootstrap(leader),
                self._topic,
                len(self._readable),
                number=number,
                isolation="read_committed",
            )
            assert found == self._readable

    def _demand_replicas(self, count: int) -> None:
        logged = len(self._cluster.brokers[2].log_text)
        with connection_to(self._cluster.bootstrap(4)) as ours:
            configs = [("min.insync.replicas", str(count))]
            answer = ours.call(ApiKey.ALTER_CONFIGS, 0, resources=[(ResourceType.TOPIC, self._topic, configs)])
        assert answer.responses[0].error_code == ErrorCode.NONE
        self._cluster.brokers[2].wait_for_log(f"topics/{self._topic} with config: .*-> {count}", after=logged)

    def _log_ends(self) -> list[bytes]:
        return [self._cluster.log_of(leader, self._topic, number) for number, leader in enumerate(LEADERS)]
