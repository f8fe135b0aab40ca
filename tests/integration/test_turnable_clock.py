"""`broker.clock.advance` over real sockets: what clients of today see when time passes for their broker at once."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from minibroker import Broker, BrokerError
from minibroker.protocol.api import API_TABLE, ApiKey
from tests.integration.kafka_python import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from tests.integration.members import GroupMember, wait_until, wait_until_shared
from tests.integration.transactional_producers import LIBRARIES as PRODUCERS
from tests.integration.wire import RawConnection, fetch_body, request_frame

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


def connection_to(broker: Broker) -> RawConnection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return RawConnection(host, int(port))


@pytest.fixture
def long_poll(broker: Broker) -> Iterator[Callable[[float], RawConnection]]:
    """Fetch at the end of `orders`: on the connection comes the answer. What was sent before a turn, the turn sees."""
    with contextlib.ExitStack() as connections:

        def ask(max_wait_seconds: float) -> RawConnection:
            connection = connections.enter_context(connection_to(broker))
            body = fetch_body("orders")._replace(max_wait_ms=int(max_wait_seconds * 1000), min_bytes=MANY_BYTES)
            connection.send(request_frame(ApiKey.FETCH, 4, body))
            return connection

        yield ask


# -- long polls -----------------------------------------------------------------------------------------------


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
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "nobody",
            "fetch.min.bytes": MANY_BYTES,
            "fetch.wait.max.ms": 30_000,
            "socket.timeout.ms": 60_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
    message = consumer.poll(60)
    assert message is not None
    value = message.value()
    consumer.close()
    assert value is not None
    return value


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


def test_long_polls_are_answered_as_their_waits_end_and_no_earlier(
    broker: Broker, long_poll: Callable[[float], RawConnection]
) -> None:
    long, short = long_poll(30), long_poll(10)

    broker.clock.advance(9)
    assert not short.has_answer()

    broker.clock.advance(2)
    assert short.receive_frame() and not long.has_answer()

    broker.clock.advance(20)
    assert long.receive_frame()


def test_several_turns_add_up(broker: Broker, long_poll: Callable[[float], RawConnection]) -> None:
    poll = long_poll(30)

    for _ in range(25):
        broker.clock.advance(timedelta(seconds=1))
        assert not poll.has_answer()
    broker.clock.advance(5.5)

    assert poll.receive_frame()


def test_a_connection_that_says_nothing_is_closed(broker: Broker) -> None:
    with connection_to(broker) as idle:
        idle.call(ApiKey.METADATA, 1, metadata_of("orders"))

        broker.clock.advance(timedelta(minutes=10, seconds=1))

        assert idle.receive_frame() is None


def metadata_of(topic: str) -> Any:
    message = API_TABLE[ApiKey.METADATA].request
    return message(topics=[message.row("topics")(name=topic)])


# -- groups and transactions ----------------------------------------------------------------------------------


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


def test_the_rebalance_that_a_lost_session_starts_ends_in_the_same_turn(broker: Broker, tmp_path: Path) -> None:
    broker.create_topic("shared", partitions=2)
    with (tmp_path / "members.log").open("wb") as log:
        silent, slow = (
            GroupMember("kafka-python", broker.bootstrap_servers, "group", "shared", log, **settings)
            for settings in (
                {"session_timeout_ms": 10_000},
                {"session_timeout_ms": 250_000, "max_poll_interval_ms": 30_000},
            )
        )
        wait_until_shared([silent, slow], 2)
        silent.kill()
        slow.kill()

    broker.clock.advance(5)
    assert len(members_of(broker, "group")) == 2

    broker.clock.advance(55)  # after 10 s the one is missed, 30 s later the other has not joined again

    assert members_of(broker, "group") == []


def members_of(broker: Broker, group: str) -> list[Any]:
    with connection_to(broker) as connection:
        answer = connection.call(ApiKey.DESCRIBE_GROUPS, 0, API_TABLE[ApiKey.DESCRIBE_GROUPS].request(groups=[group]))
    return list(answer.groups[0].members)


@pytest.mark.parametrize("library", PRODUCERS)
def test_a_transaction_nobody_ends_is_aborted_and_committed_readers_go_on(
    broker: Broker, producer: KafkaProducer, library: str
) -> None:
    hanging = PRODUCERS[library](broker.bootstrap_servers, "hanging")
    hanging.begin()
    hanging.write("orders", b"never committed")
    hanging.flush()
    producer.send("orders", b"after it").get()
    reader = KafkaConsumer(
        "orders",
        bootstrap_servers=broker.bootstrap_servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    assert reader.poll(timeout_ms=500) == {}

    broker.clock.advance(121)  # its timeout, a minute, and the look for such ones, each minute

    assert next(reader).value == b"after it"
    with pytest.raises(hanging.fenced):
        hanging.commit()
    reader.close()
    hanging.close()


def test_offsets_of_a_group_without_members_expire(broker: Broker) -> None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="gone", enable_auto_commit=False)
    partition = TopicPartition("orders", 0)
    consumer.assign([partition])
    consumer.commit({partition: OffsetAndMetadata(7, "", -1)})

    broker.clock.advance(6 * DAY)
    assert committed(broker, "gone") == 7

    broker.clock.advance(2 * DAY)
    assert committed(broker, "gone") is None
    consumer.close()


def committed(broker: Broker, group: str) -> int | None:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=group)
    offset: int | None = consumer.committed(TopicPartition("orders", 0))
    consumer.close()
    return offset


# -- retention and what is written down -----------------------------------------------------------------------


def test_records_past_their_retention_are_gone_with_their_files(broker: Broker, producer: KafkaProducer) -> None:
    broker.create_topic("short", partitions=1, configs={"retention.ms": str(DAY // timedelta(milliseconds=1))})
    for _ in range(3):
        producer.send("short", b"old").get()
    assert bounds(broker, "short") == (0, 3)

    broker.clock.advance(2 * DAY)

    assert bounds(broker, "short") == (3, 3)
    segments = {path.name for path in (broker.data_dir / "short-0").iterdir() if ".log" in path.name}
    assert segments == {"00000000000000000003.log"}


def test_records_that_the_broker_dates_have_the_time_it_shows(broker: Broker) -> None:
    broker.create_topic("dated", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    before = sent(broker, "dated", b"before")

    broker.clock.advance(30 * DAY)
    after = sent(broker, "dated", b"after")

    passed = timedelta(milliseconds=after.timestamp - before.timestamp)
    assert 30 * DAY <= passed < 30 * DAY + timedelta(seconds=AT_ONCE_SECONDS)
    assert abs(broker.clock.now() - datetime.now(UTC) - 30 * DAY) < timedelta(seconds=AT_ONCE_SECONDS)


def test_what_can_be_compacted_is_when_the_cleaner_looks_next(broker: Broker) -> None:
    configs = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "60000",
        "message.timestamp.type": "LogAppendTime",
    }
    broker.create_topic("latest", partitions=1, configs=configs)
    for value in (b"1", b"2"):
        sent(broker, "latest", value, key=b"key")
    broker.clock.advance(61)
    sent(broker, "latest", b"3", key=b"key")  # into a segment of its own

    broker.clock.advance(16)

    reader = KafkaConsumer("latest", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    assert [next(reader).value for _ in range(2)] == [b"2", b"3"]
    reader.close()


def sent(broker: Broker, topic: str, value: bytes, key: bytes | None = None) -> Any:
    """By a producer of its own: one whose records have all gone is unknown, and kafka-python 3.0 never gets over it."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    metadata = producer.send(topic, value, key=key).get()
    producer.close()
    return metadata


def bounds(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    partition = TopicPartition(topic, 0)
    first, end = consumer.beginning_offsets([partition])[partition], consumer.end_offsets([partition])[partition]
    consumer.close()
    return first, end


def test_a_month_is_turned_in_no_time(broker: Broker, producer: KafkaProducer) -> None:
    producer.send("orders", b"one").get()
    began = time.monotonic()

    broker.clock.advance(timedelta(days=30))

    assert time.monotonic() - began < AT_ONCE_SECONDS  # 0.5 s on a quiet machine


# -- what cannot be turned ------------------------------------------------------------------------------------


def test_the_clock_of_a_broker_that_was_killed_says_how_it_ended(broker: Broker) -> None:
    broker.clock.advance(DAY)
    broker.kill()

    with pytest.raises(BrokerError, match=r"was killed by SIGKILL; its last log lines"):
        broker.clock.advance(1)

    broker.start()
    assert abs(broker.clock.now() - datetime.now(UTC)) < timedelta(seconds=AT_ONCE_SECONDS)  # the true time again


def test_a_broker_killed_during_a_turn_ends_the_turn(broker: Broker) -> None:
    killer = threading.Timer(0.2, broker.kill)
    killer.start()

    with pytest.raises(BrokerError, match=r"was killed by SIGKILL"):
        while True:
            broker.clock.advance(300)
    killer.join()


@pytest.mark.parametrize(
    ("seconds", "reason"), [(-1, "forward only"), (float("nan"), "no number"), (1e12, "too far"), ("soon", "no number")]
)
def test_a_turn_that_is_none_is_refused(broker: Broker, seconds: Any, reason: str) -> None:
    with pytest.raises(BrokerError, match=rf"^the broker refused clock\.advance: .*{reason}"):
        broker.clock.advance(seconds)


def test_without_control_there_is_no_clock_to_turn() -> None:
    with Broker() as broker, pytest.raises(BrokerError, match=r"start it with Broker\(control=True\)"):
        broker.clock.advance(1)


def test_the_control_socket_is_for_the_broker_alone(broker: Broker) -> None:
    """Nothing of it on the Kafka port: a call there is a request that is none."""
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=AT_ONCE_SECONDS) as kafka_port:
        kafka_port.sendall(b'{"call": "clock.now"}\n')
        assert kafka_port.recv(1) == b""
