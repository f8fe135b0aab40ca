"""`broker.clock.advance` over real sockets: what clients of today see when time passes for their broker at once.

What expires by then is in tests/broker/; a transaction past its timeout is in the recipe too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from minibroker import Broker, BrokerError
from tests.integration.kafka_python import KafkaConsumer, KafkaProducer, TopicPartition
from tests.integration.librdkafka import consumer_of, value_of
from tests.integration.members import GroupMember, wait_until, wait_until_shared

DAY = timedelta(days=1)
AT_ONCE_SECONDS = 15.0  # of real time, on a busy machine: half of what the clients ask the broker to wait
MANY_BYTES = 1_000_000  # more than there are: a fetch that wants so many waits as long as it may
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.max.session.timeout.ms": 600_000}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(control=True, settings=SETTINGS) as broker:
        broker.create_topic("orders", partitions=1)
        yield broker


@pytest.fixture
def producer(broker: Broker) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    yield producer
    producer.close()


def kafka_python_reads_one(broker: Broker) -> bytes:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        fetch_min_bytes=MANY_BYTES,
        fetch_max_wait_ms=30_000,
        request_timeout_ms=60_000,
    )
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    value: bytes = next(consumer).value
    consumer.close()
    return value


def confluent_kafka_reads_one(broker: Broker) -> bytes:
    patient: dict[str, Any] = {"fetch_min_bytes": MANY_BYTES, "fetch_wait_max_ms": 30_000, "socket_timeout_ms": 60_000}
    consumer = consumer_of(broker.bootstrap_servers, **patient)
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    return value_of(message) or b""


@pytest.mark.parametrize("read_one", [kafka_python_reads_one, confluent_kafka_reads_one])
def test_a_long_poll_of_a_client_ends_when_the_clock_is_turned(
    broker: Broker, producer: KafkaProducer, read_one: Any
) -> None:
    producer.send("orders", b"one").get()
    values: list[bytes] = []
    reader = threading.Thread(target=lambda: values.append(read_one(broker)))
    began = time.monotonic()
    reader.start()

    while reader.is_alive():
        broker.clock.advance(30)
        reader.join(0.1)

    assert values == [b"one"]
    assert time.monotonic() - began < AT_ONCE_SECONDS


@pytest.mark.parametrize("library", ["kafka-python", "confluent-kafka"])
def test_a_member_that_is_silent_is_put_out_and_the_group_goes_on(broker: Broker, library: str, tmp_path: Path) -> None:
    broker.create_topic("shared", partitions=4)
    with (tmp_path / "members.log").open("wb") as log:
        silent, other = (
            GroupMember(library, broker.bootstrap_servers, "group", "shared", log, session_timeout_ms=milliseconds)
            for milliseconds in (60_000, 250_000)
        )
        wait_until_shared([silent, other], 4)
        silent.kill()

        broker.clock.advance(61)

        wait_until(lambda: other.assignment() == [0, 1, 2, 3], "the other has it all", seconds=AT_ONCE_SECONDS)
        other.kill()


def test_the_clock_of_a_killed_broker_raises_with_its_end(broker: Broker) -> None:
    broker.clock.advance(DAY)
    broker.kill()

    with pytest.raises(BrokerError, match=r"was killed by SIGKILL; its last log lines"):
        broker.clock.advance(1)

    broker.start()
    assert abs(broker.clock.now() - datetime.now(UTC)) < timedelta(seconds=AT_ONCE_SECONDS)  # the true time again
