"""Killed without warning while clients write, or without room on the disk: what was acked is there afterwards.

Offsets have no holes; a full disk refuses writes and serves reads, and when there is room again it takes writes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.compression import Codec
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.integration.brokers import BrokerProcess, Minibroker
from tests.integration.clients import LIBRARIES
from tests.integration.conftest import Drivers, StartMinibroker
from tests.integration.hostile_batches import valid
from tests.integration.members import wait_until
from tests.integration.records import numbered
from tests.integration.topics import create_topic, read_everything
from tests.integration.wire import connection_to, read, the_partition, write
from tests.matrices import each_once
from tests.requests import produce_body

ROUNDS = 5
BATCHES_BEFORE_THE_KILL = 100
PARTITIONS = 3
BALLAST_BYTES = 3 * 2**20
KAFKA_STORAGE_ERROR = 56
SMALL_FILES = {"log.index.size.max.bytes": 4096, "log.segment.bytes": 1_000_000, "log.retention.ms": -1}


def write_until_it_dies(broker: Minibroker, round_number: int, acked: dict[tuple[int, int], bytes]) -> None:
    """Produce batches of changing size, partition and codec; note every record whose ack arrived.

    It is killed at any moment once some have arrived.
    """
    rng = random.Random(round_number)
    with connection_to(broker.bootstrap) as connection:
        for i in range(1_000_000):
            if i == BATCHES_BEFORE_THE_KILL:
                threading.Timer(0.2 * random.random(), broker.process.kill).start()
            values = [
                f"{round_number}.{i}.{n}".encode().ljust(rng.randrange(200), b".") for n in range(rng.randint(1, 9))
            ]
            rows = [Record(n, 1_500_000_000_000, None, value) for n, value in enumerate(values)]
            batch = bytes(build_batch(rows, codec=rng.choice([Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])))
            partition = rng.randrange(PARTITIONS)
            answer = connection.ask(ApiKey.PRODUCE, 5, **produce_body("t", batch, partition=partition))
            if answer is None:
                return
            row = the_partition(answer)
            assert row.error_code == 0
            for n, value in enumerate(values):
                acked[partition, row.base_offset + n] = value


def test_every_acked_record_survives_kill_9_and_offsets_are_dense(start_minibroker: StartMinibroker) -> None:
    settings = {"log.segment.bytes": 200_000, "log.index.interval.bytes": 512, "log.retention.ms": -1}
    acked: dict[tuple[int, int], bytes] = {}

    for round_number in range(ROUNDS):
        broker = start_minibroker(settings=settings).wait_until_ready()
        if round_number == 0:
            create_topic(broker, "t", partitions=PARTITIONS)
        write_until_it_dies(broker, round_number, acked)
        broker.wait_for_exit()

    broker = start_minibroker(settings=settings).wait_until_ready()
    assert len(acked) >= ROUNDS * BATCHES_BEFORE_THE_KILL
    for partition in range(PARTITIONS):
        records = read_everything(broker, partition)
        assert [record.offset for record in records] == list(range(len(records)))
        kept = {(partition, record.offset): record.value for record in records}
        assert {place: value for place, value in acked.items() if place[0] == partition}.items() <= kept.items()


@pytest.mark.sample(of=lambda writer: writer != "kafka-python-3.0")
@pytest.mark.parametrize("writer", ["confluent-kafka", "java-3.9", "kafka-python-3.0"])
def test_an_idempotent_producer_rides_over_a_crash_without_loss_or_duplicate(
    start_in_place: StartMinibroker, drivers: Drivers, writer: str
) -> None:
    broker = start_in_place()
    create_topic(broker, "t")
    client = drivers.get(writer, broker.bootstrap)
    client.produce("t", numbered(1), enable_idempotence=True)

    client.start_produce("t", numbered(30_000, size_bytes=100, first=1), enable_idempotence=True)
    with connection_to(broker.bootstrap) as connection:
        wait_until(lambda: read(connection, "t").high_watermark >= 2_000, "records")
    broker.kill()
    again = start_in_place()
    acked = client.finish_produce()

    assert acked == 30_000
    records = read_everything(again, 0)
    assert [record.key for record in records] == [b"%d" % i for i in range(30_001)]


@pytest.mark.parametrize(("name", "how"), each_once(LIBRARIES, ["in order", "killed"]))
def test_a_consumer_and_a_producer_live_on_over_a_restart(
    start_in_place: StartMinibroker, drivers: Drivers, name: str, how: str
) -> None:
    broker = start_in_place()
    create_topic(broker, "t")
    consumer = drivers.get(name, broker.bootstrap)
    producer = drivers.get("confluent-kafka" if name != "confluent-kafka" else "aiokafka", broker.bootstrap)
    consumer.follow("t", fetch_max_wait_ms=200)
    producer.produce("t", numbered(10))
    consumer.start_next(10)
    assert [record.offset for record in consumer.finish_next()] == list(range(10))

    if how == "killed":
        broker.kill()
    else:
        assert broker.terminate() == 0
    start_in_place()

    consumer.start_next(10)
    acked = producer.produce("t", numbered(10, first=10))
    assert [record.offset for record in acked] == list(range(10, 20))
    assert [record.offset for record in consumer.finish_next()] == list(range(10, 20))


Start = Callable[[], Minibroker]


@pytest.fixture
def start(start_minibroker: StartMinibroker, small_disk: Path) -> Start:
    """Start a broker on the small disk; a second one finds what the first has left."""
    arguments = ("--data-dir", str(small_disk / "data"))
    return lambda: start_minibroker(*arguments, settings=SMALL_FILES).wait_until_ready()


def produce_until_refused(broker: BrokerProcess) -> tuple[int, int]:
    """Fill the disk; return how many records were acked and the error code that ended it."""
    acked = 0
    with connection_to(broker.bootstrap) as connection:
        while True:
            row = write(connection, "t", valid(size_bytes=30_000))
            if row.error_code != 0:
                return acked, row.error_code
            assert row.base_offset == acked
            acked += 3


@pytest.mark.parametrize("is_killed", [False, True], ids=["at once", "after a crash"])
def test_a_full_disk_refuses_writes_serves_reads_and_recovers(start: Start, small_disk: Path, is_killed: bool) -> None:
    ballast = small_disk / "ballast"
    broker = start()
    create_topic(broker, "t")
    ballast.write_bytes(bytes(BALLAST_BYTES))

    acked, code = produce_until_refused(broker)

    assert code == KAFKA_STORAGE_ERROR
    assert acked > 0
    assert [record.offset for record in read_everything(broker, 0)] == list(range(acked))
    broker.wait_for_log(r"(?i)no space left")

    if is_killed:
        broker.kill()
    ballast.unlink()
    broker = start() if is_killed else broker
    with connection_to(broker.bootstrap) as connection:
        row = write(connection, "t", valid())
    assert (row.error_code, row.base_offset) == (0, acked)
    assert [record.offset for record in read_everything(broker, 0)] == list(range(acked + 3))
    assert broker.terminate() == 0


def test_a_topic_that_does_not_fit_is_refused_and_the_broker_goes_on(start: Start) -> None:
    broker = start()
    create_topic(broker, "t")
    produce_until_refused(broker)

    with pytest.raises(AssertionError):
        create_topic(broker, "another", partitions=50)

    assert broker.is_running
    assert read_everything(broker, 0)
