"""What consumers of today, and members of groups, make of a broker that does wrong on purpose."""

from __future__ import annotations

import socket
import struct
import time
from functools import partial

import confluent_kafka
import pytest

from minibroker import Broker
from minibroker.protocol.api import ApiKey
from tests.integration.faulty_broker import (
    PATIENCE_SECONDS,
    RECORDS,
    broker,
    confluent_consumer,
    confluent_reads,
    confluent_writes,
    connection_to,
    consumer_of,
    kafka_python_writes,
    read,
    started,
    values_in,
)
from tests.integration.kafka_python import KafkaConsumer, OffsetAndMetadata, TopicPartition
from tests.integration.wire import fetch_body, list_offsets_body, request_frame

__all__ = ["broker", "started"]


@pytest.mark.parametrize("error", ["NOT_LEADER_FOR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"])
def test_a_consumer_goes_on_after_errors_of_its_partition(broker: Broker, error: str) -> None:
    kafka_python_writes(broker)
    fault = broker.faults.error(error, api="fetch", topic="orders", partition=0, times=3)

    consumer = consumer_of(broker)
    values = read(consumer, RECORDS)
    consumer.close()

    assert fault.count == 3
    assert values == list(range(RECORDS))


def test_a_consumer_of_confluent_goes_on_when_its_fetch_session_is_struck(broker: Broker) -> None:
    consumer = confluent_consumer(broker)
    confluent_writes(broker, 10)
    first = confluent_reads(consumer, 10)
    fault = broker.faults.error("NOT_LEADER_FOR_PARTITION", api="fetch", topic="orders", partition=0, times=2)
    fault.wait(2)

    confluent_writes(broker, 10)
    second = confluent_reads(consumer, 10)
    consumer.close()

    assert (first, second) == (list(range(10)), list(range(10)))


def test_a_wrong_crc_is_kafka_pythons_error_and_right_when_it_is_lifted(broker: Broker) -> None:
    kafka_python_writes(broker, 10)
    consumer = consumer_of(broker)

    with (
        broker.faults.wrong_crc(topic="orders") as fault,
        pytest.raises(Exception, match=r"CorruptRecordError: .*failed crc check"),
    ):
        read(consumer, 10)
    consumer.close()

    assert fault.count >= 1
    assert values_in(broker) == list(range(10)), "the log was not touched"


def test_a_wrong_crc_is_confluents_error(broker: Broker) -> None:
    confluent_writes(broker, 10)
    broker.faults.wrong_crc(topic="orders", partition=0)
    consumer = confluent_consumer(broker, **{"check.crcs": True})

    deadline = time.monotonic() + PATIENCE_SECONDS
    message = None
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(0.2)
    consumer.close()

    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == confluent_kafka.KafkaError._BAD_MSG


def test_a_torn_frame_makes_clients_connect_again(broker: Broker) -> None:
    kafka_python_writes(broker)
    fault = broker.faults.torn_frame(api="fetch", times=2)

    kafka_python = consumer_of(broker)
    confluent = confluent_consumer(broker)
    values = [read(kafka_python, RECORDS), confluent_reads(confluent, RECORDS)]
    kafka_python.close()
    confluent.close()

    assert fault.count == 2
    assert values == [list(range(RECORDS))] * 2


def test_a_torn_frame_is_the_half_of_what_its_size_promises(broker: Broker) -> None:
    broker.faults.torn_frame(api="list_offsets")
    host, _, port = broker.bootstrap_servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(request_frame(ApiKey.LIST_OFFSETS, 2, list_offsets_body("orders")))
        received = b"".join(iter(lambda: sock.recv(1000), b""))

    (promised,) = struct.unpack_from(">i", received)
    assert len(received) == (4 + promised) // 2


def test_slow_bytes_trickle_to_their_client_and_nobody_else_waits(broker: Broker) -> None:
    kafka_python_writes(broker, 1)
    frame = request_frame(ApiKey.FETCH, 8, fetch_body("orders"))
    with connection_to(broker) as slow, connection_to(broker) as other:
        size_bytes = 4 + len(slow.exchange(frame) or b"")
        broker.faults.slow(size_bytes // 3, connection=slow.address)

        began = time.monotonic()
        slow.send(frame)
        assert other.exchange(frame) is not None
        other_seconds = time.monotonic() - began
        assert slow.receive_frame() is not None
        slow_seconds = time.monotonic() - began

    assert slow_seconds >= 2.85, "three seconds, of which the last piece's time passes behind it"
    assert other_seconds < 2.5


@pytest.mark.parametrize(
    ("error", "apis"),
    [
        ("NOT_COORDINATOR", ["heartbeat"]),
        ("COORDINATOR_NOT_AVAILABLE", ["find_coordinator"]),
        ("COORDINATOR_LOAD_IN_PROGRESS", ["join_group", "sync_group"]),
        ("NOT_COORDINATOR", ["join_group"]),
        ("UNKNOWN_MEMBER_ID", ["heartbeat"]),
        ("REBALANCE_IN_PROGRESS", ["heartbeat"]),
        ("COORDINATOR_LOAD_IN_PROGRESS", ["offset_fetch"]),
    ],
)
@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka"])
def test_a_member_gets_over_what_its_coordinator_says(broker: Broker, error: str, apis: list[str], client: str) -> None:
    # A member that is put out while it reads begins again, rightly: heartbeats are struck when it has read.
    while_joining = [api for api in apis if api != "heartbeat"]
    faults = [broker.faults.error(error, api=api, times=1) for api in while_joining]
    kafka_python_writes(broker, 10)

    if client == "kafka-python":
        consumer = consumer_of(broker, group_id="members", heartbeat_interval_ms=100, session_timeout_ms=1500)
        reads = partial(read, consumer)
    else:
        consumer = confluent_consumer(broker)
        reads = partial(confluent_reads, consumer)
    first = reads(10)
    faults += [broker.faults.error(error, api=api, times=1) for api in apis if api not in while_joining]
    while any(fault.is_active for fault in faults):
        reads(1, patience_seconds=0.1)
    kafka_python_writes(broker, 10)
    second = reads(10)
    consumer.close()

    assert first == list(range(10))
    assert set(second) == set(range(10)), "some of them twice, if it was put out before it committed"


def test_a_commit_that_is_struck_for_one_partition_is_kept_for_the_other(broker: Broker) -> None:
    broker.create_topic("payments", partitions=2)
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", enable_auto_commit=False, retry_backoff_ms=20
    )
    partitions = [TopicPartition("payments", number) for number in (0, 1)]
    consumer.assign(partitions)
    fault = broker.faults.error("COORDINATOR_LOAD_IN_PROGRESS", api="offset_commit", topic="payments", partition=0)
    consumer.commit_async({each: OffsetAndMetadata(7, "", -1) for each in partitions})
    while not fault.count:
        consumer.poll(20)
    fault.lift()

    committed = consumer.committed(partitions[1])
    consumer.close(autocommit=False)

    assert committed == 7
