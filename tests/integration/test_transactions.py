"""Transactional producers of two client libraries, and read_committed consumers: all of a transaction, or nothing.

Also while the broker is killed, and when the data directory changes hands with Apache Kafka 2.0.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.integration.brokers import BrokerProcess
from tests.integration.conftest import StartMinibroker
from tests.integration.foreign_directory import apache_kafka_on
from tests.integration.librdkafka import consumer_of, values_in
from tests.integration.members import answer_of, wait_until
from tests.integration.topics import create_topic_over
from tests.integration.transactional_producers import (
    LIBRARIES,
    PATIENCE_SECONDS,
    ConfluentProducer,
    TransactionalProducer,
)
from tests.integration.wire import connection_to

SETTINGS: dict[str, str | int] = {"transaction.state.log.num.partitions": 3}
NAMES = count()

NewProducer = Callable[..., TransactionalProducer]


@pytest.fixture(params=LIBRARIES)
def new_producer(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[NewProducer]:
    """Make producers of one library; they are closed in the end."""
    made: list[TransactionalProducer] = []

    def new(transactional_id: str, bootstrap: str = broker.bootstrap) -> TransactionalProducer:
        made.append(LIBRARIES[request.param](bootstrap, transactional_id))
        return made[-1]

    yield new
    for producer in made:
        producer.close()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    return created(broker.bootstrap, f"transactions-{next(NAMES)}")


def created(bootstrap: str, name: str, partitions: int = 1) -> str:
    with connection_to(bootstrap) as connection:
        create_topic_over(connection, name, partitions)
    return name


def read(bootstrap: str, topic: str) -> list[bytes]:
    """Read the committed records of the topic's partition."""
    (values,) = values_in(bootstrap, topic)
    return values


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = consumer_of(bootstrap, group)
    (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_SECONDS)
    consumer.close()
    return int(found.offset)


def transact(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    """Commit a transaction with these."""
    producer.begin()
    for value in values:
        producer.write(topic, value)
    producer.commit()


def leave_open(producer: TransactionalProducer, topic: str, value: bytes) -> None:
    producer.begin()
    producer.write(topic, value)
    producer.flush()


@pytest.mark.ability("transactions")
def test_a_second_producer_shuts_out_the_first(broker: BrokerProcess, new_producer: NewProducer, topic: str) -> None:
    first = new_producer(topic)
    leave_open(first, topic, b"first")

    transact(new_producer(topic), topic, b"second")
    with pytest.raises(first.fenced):
        first.commit()

    wait_until_read(broker.bootstrap, topic, [b"second"])


@pytest.mark.ability("transactions")
def test_offsets_are_committed_with_the_records_made_of_them(
    broker: BrokerProcess, new_producer: NewProducer, topic: str
) -> None:
    """Consume, transform, produce: twice aborted, and done again, nothing is lost and nothing twice."""
    source, group = created(broker.bootstrap, f"{topic}-source"), f"{topic}-group"
    transact(new_producer(f"{topic}-filler"), source, *(b"%d" % number for number in range(30)))
    producer = new_producer(topic)

    offsets = []
    for is_commit in (False, True, True, False, True):
        position = max(0, committed_offset(broker.bootstrap, group, source))
        producer.begin()
        for value in read(broker.bootstrap, source)[position : position + 10]:
            producer.write(topic, b"made of " + value)
        producer.send_offset(source, position + 10, group)
        producer.commit() if is_commit else producer.abort()
        offsets.append(max(0, committed_offset(broker.bootstrap, group, source)))

    assert offsets == [0, 10, 20, 20, 30]
    wait_until_read(broker.bootstrap, topic, [b"made of %d" % number for number in range(30)])


@pytest.mark.nightly  # by day Kafka goes on with our transactions in test_mixed_coordinators.py
def test_apache_kafka_goes_on_with_the_transactions_of_a_killed_minibroker(
    start_minibroker: StartMinibroker, tmp_path: Path
) -> None:
    minibroker = start_minibroker(settings=SETTINGS).wait_until_ready()
    created(minibroker.bootstrap, "t", 2)
    whole, half = (ConfluentProducer(minibroker.bootstrap, each) for each in ("whole", "half"))
    transact(whole, "t", b"committed")
    identity = identity_of(minibroker, "half")
    leave_open(half, "t", b"open")
    minibroker.kill()

    with apache_kafka_on(minibroker.data_dir, tmp_path / "kafka", settings=SETTINGS) as kafka_broker:
        before = read(kafka_broker.bootstrap, "t")
        ended = end(kafka_broker, "half", identity, is_commit=True)
        wait_until_read(kafka_broker.bootstrap, "t", [b"committed", b"open"])
        transact(ConfluentProducer(kafka_broker.bootstrap, "whole"), "t", b"by kafka")
        wait_until_read(kafka_broker.bootstrap, "t", [b"committed", b"open", b"by kafka"])
        kafka_broker.stop()
    back = start_minibroker(settings=SETTINGS).wait_until_ready()
    transact(ConfluentProducer(back.bootstrap, "whole"), "t", b"by minibroker")

    assert before == [b"committed"]
    assert ended == ErrorCode.NONE
    assert read(back.bootstrap, "t") == [b"committed", b"open", b"by kafka", b"by minibroker"]


def identity_of(broker: BrokerProcess, transactional_id: str) -> tuple[int, int]:
    """The producer id and epoch that a transactional id has."""
    with connection_to(broker.bootstrap) as connection:
        answer = connection.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[transactional_id])
    (row,) = answer.transactions
    assert row.error_code == ErrorCode.NONE
    return row.producer_id, row.producer_epoch


def end(broker: Any, transactional_id: str, identity: tuple[int, int], *, is_commit: bool) -> int:
    """End the transaction in its producer's name, once the coordinator has loaded it; the error code."""
    named = {"transactional_id": transactional_id, "producer_id": identity[0], "producer_epoch": identity[1]}
    loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    with connection_to(broker.bootstrap) as connection:
        answer = answer_of(
            lambda: connection.call(ApiKey.END_TXN, 1, **named, is_commit=is_commit), loading, "the coordinator"
        )
    return int(answer.error_code)


def wait_until_read(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    """Apache Kafka writes markers after it has answered."""
    expected = list(values)
    wait_until(lambda: read(bootstrap, topic) == expected, f"{expected} in {topic}")
