"""`broker.faults` over real sockets: what clients of today make of a broker that does wrong on purpose.

What goes over the wire, byte for byte, is in tests/broker/test_fault*.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import confluent_kafka
import pytest

from minibroker import Broker, BrokerError
from minibroker.conformance.requests import frame
from minibroker.protocol.api import ApiKey
from tests.integration.kafka_python import KafkaConsumer, KafkaProducer
from tests.integration.librdkafka import consumer_of, value_of, values_in
from tests.integration.wire import connection_to
from tests.matrices import each_once
from tests.requests import list_offsets_body

RECORDS = 200
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "auto.create.topics.enable": False,  # a client of a test before would make its topic again
}
PATIENCE_SECONDS = 60.0
POLL_MS = 1000  # kafka-python 3.0.12 forgets a rebalance that ends between two calls: none shall
STOP_SECONDS = 30.0  # on a busy machine: far less than a fault holds
ASK = frame(ApiKey.LIST_OFFSETS, 2, **list_offsets_body("orders"))


@pytest.fixture(scope="module")
def started() -> Iterator[Broker]:
    with Broker(control=True, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def broker(started: Broker) -> Iterator[Broker]:
    """Without the faults, topics and groups of tests before."""
    started.faults.lift_all()
    started.reset()
    started.create_topic("orders", partitions=1)
    yield started
    started.faults.lift_all()


def kafka_python_writes(broker: Broker, count: int = RECORDS, **settings: Any) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, retry_backoff_ms=20, reconnect_backoff_ms=20, **settings
    )
    try:
        for future in [producer.send("orders", b"%d" % number, partition=0) for number in range(count)]:
            future.get(PATIENCE_SECONDS)
    finally:
        producer.close()


def confluent_writes(broker: Broker, count: int = RECORDS, **settings: Any) -> None:
    failed: list[Any] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20}
    producer = confluent_kafka.Producer(config | settings)
    for number in range(count):
        producer.produce(
            "orders", b"%d" % number, partition=0, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        if number % 20 == 0:
            producer.flush(PATIENCE_SECONDS)  # batches of their own
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert failed == []


WRITERS = {
    "kafka-python": lambda broker: kafka_python_writes(broker, enable_idempotence=True, linger_ms=1, batch_size=100),
    "confluent-kafka": lambda broker: confluent_writes(broker, **{"enable.idempotence": True}),
}


def written(broker: Broker) -> list[int]:
    """All there is in partition 0 of the topic."""
    (values,) = values_in(broker.bootstrap_servers, "orders")
    return [int(value) for value in values]


def read(
    consumer: KafkaConsumer | confluent_kafka.Consumer, count: int, *, patience_seconds: float = PATIENCE_SECONDS
) -> list[int]:
    """So many values, or what came of them in time."""
    values: list[int] = []
    deadline = time.monotonic() + patience_seconds
    while len(values) < count and time.monotonic() < deadline:
        if isinstance(consumer, KafkaConsumer):
            values += [int(record.value) for records in consumer.poll(POLL_MS).values() for record in records]
        else:
            message = consumer.poll(0.2)
            values += [] if message is None else [int(value_of(message) or b"")]
    return values


def kafka_python_consumer(broker: Broker, **settings: Any) -> KafkaConsumer:
    quick = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, "reconnect_backoff_ms": 20}
    return KafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, **quick, **settings)


def confluent_consumer(broker: Broker, **settings: Any) -> confluent_kafka.Consumer:
    quick = {"fetch_wait_max_ms": 50, "heartbeat_interval_ms": 100, "session_timeout_ms": 1500}
    ours = {"auto_offset_reset": "earliest", "enable_auto_commit": True, **quick}
    consumer = consumer_of(broker.bootstrap_servers, "confluent", **ours, **settings)
    consumer.subscribe(["orders"])
    return consumer


def test_faults_and_a_release_together() -> None:
    with Broker(control=True, act_as="0.11") as broker:
        broker.create_topic("orders", partitions=1)
        with pytest.raises(BrokerError, match=r"Apache Kafka 0\.11\.0\.3, .* has no KAFKA_STORAGE_ERROR"):
            broker.faults.error("KAFKA_STORAGE_ERROR", api="produce")
        fault = broker.faults.error("NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", times=2)

        WRITERS["confluent-kafka"](broker)

        assert fault.count == 2
        assert written(broker) == list(range(RECORDS))


def test_faults_go_with_the_process(broker: Broker) -> None:
    with Broker(control=True) as own:
        fault = own.faults.delay(1)
        assert repr(fault) == f"<Fault: {fault}>"
        own.kill()
        assert re.fullmatch(r"<Fault \d+>", repr(fault))
        with pytest.raises(BrokerError, match="was killed by SIGKILL"):
            own.faults.active()
        own.start()

        assert own.faults.active() == []
        with pytest.raises(BrokerError, match="faults end with the broker's process"):
            _ = fault.count


def test_a_broker_that_is_held_by_faults_stops_at_once() -> None:
    with Broker(control=True) as own, connection_to(own.bootstrap_servers) as connection:
        fault = own.faults.delay(3600)
        connection.send(ASK)
        fault.wait()
        began = time.monotonic()

        assert own.stop() == 0

        assert time.monotonic() - began < STOP_SECONDS


def test_a_connection_has_one_number_in_faults_transcripts_and_the_log() -> None:
    with Broker(control=True, transcript=True) as own, connection_to(own.bootstrap_servers) as connection:
        connection.exchange(ASK)

        address = str(connection.own_address)
        (number,) = [each.number for each in own.faults.connections() if each.address == address]
        recorded = {each.connection for each in own.transcript.exchanges() if each.address == address}
        assert recorded == {number}
        connection.send(b"\x7f\xff\xff\xff")  # the size of a request that is too large
        assert connection.receive_frame() is None
        assert f"closing connection {number} of {address}" in own.log_file.read_text()


def test_a_fault_strikes_the_connection_of_a_number(broker: Broker) -> None:
    with connection_to(broker.bootstrap_servers) as connection:
        connection.exchange(ASK)

        mine = [each for each in broker.faults.connections() if each.address == str(connection.own_address)]

        assert [each.client_id for each in mine] == ["test"]
        broker.faults.disconnect(connection=mine[0].number)
        assert connection.exchange(ASK) is None


def test_a_wait_for_a_fault_that_does_not_strike_raises(broker: Broker) -> None:
    fault = broker.faults.delay(1, client_id="nobody")

    with pytest.raises(BrokerError, match=r"delay of 1 s .*; waited 0\.05 s until it has struck 1"):
        fault.wait(timeout_seconds=0.05)


def test_faults_without_control_raise_with_the_next_step() -> None:
    with Broker() as broker:
        for ask in (lambda: broker.faults, lambda: broker.clock.advance(1)):
            with pytest.raises(BrokerError, match=r"start it with Broker\(control=True\)"):
                ask()


@pytest.mark.parametrize("client", WRITERS)
@pytest.mark.parametrize(
    ("error", "how"),
    [
        ("", {"when": "before", "times": 3}),
        ("", {"when": "after", "times": 3}),
        ("REQUEST_TIMED_OUT", {"when": "after", "times": 2}),
        ("NOT_LEADER_FOR_PARTITION", {"times": 1}),
    ],
    ids=["dropped", "dropped after the append", "failed after the append", "not the leader"],
)
def test_an_idempotent_producer_goes_on_without_duplicates(
    broker: Broker, error: str, how: dict[str, Any], client: str
) -> None:
    looked_up = broker.faults.delay(0.001, api="metadata")  # counts them
    strike = partial(broker.faults.error, error, topic="orders") if error else broker.faults.disconnect
    fault = strike(api="produce", skip=1, **how)

    WRITERS[client](broker)

    assert fault.count == how["times"]
    assert written(broker) == list(range(RECORDS))
    if error == "NOT_LEADER_FOR_PARTITION":
        assert looked_up.count >= 2, "once at the start, once for the fault"


def test_a_producer_that_is_not_idempotent_writes_an_unanswered_append_twice(broker: Broker) -> None:
    broker.faults.disconnect(api="produce", when="after", times=1)

    kafka_python_writes(broker, 1, enable_idempotence=False, retries=5)

    assert written(broker) == [0, 0]


def test_the_brokers_clock_ends_a_delay(broker: Broker) -> None:
    fault = broker.faults.delay(300, api="list_offsets")  # not so long that connections.max.idle.ms ends it too
    with connection_to(broker.bootstrap_servers) as connection:
        connection.send(ASK)
        fault.wait()

        broker.clock.advance(300)

        assert connection.receive_frame() is not None


@pytest.mark.parametrize("error", ["NOT_LEADER_FOR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION", "KAFKA_STORAGE_ERROR"])
def test_a_consumer_goes_on_after_errors_of_its_partition(broker: Broker, error: str) -> None:
    kafka_python_writes(broker)
    fault = broker.faults.error(error, api="fetch", topic="orders", partition=0, times=3)

    consumer = kafka_python_consumer(broker)
    values = read(consumer, RECORDS)
    consumer.close()

    assert fault.count == 3
    assert values == list(range(RECORDS))


def test_a_wrong_crc_is_kafka_pythons_error_and_right_when_it_is_lifted(broker: Broker) -> None:
    kafka_python_writes(broker, 10)
    consumer = kafka_python_consumer(broker)

    with (
        broker.faults.wrong_crc(topic="orders") as fault,
        pytest.raises(Exception, match=r"CorruptRecordError: .*failed crc check"),
    ):
        read(consumer, 10)
    consumer.close()

    assert fault.count >= 1
    assert written(broker) == list(range(10)), "the log was not touched"


def test_a_wrong_crc_is_confluents_error(broker: Broker) -> None:
    confluent_writes(broker, 10)
    broker.faults.wrong_crc(topic="orders", partition=0)
    consumer = confluent_consumer(broker, check_crcs=True)

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

    kafka_python = kafka_python_consumer(broker)
    confluent = confluent_consumer(broker)
    values = [read(kafka_python, RECORDS), read(confluent, RECORDS)]
    kafka_python.close()
    confluent.close()

    assert fault.count == 2
    assert values == [list(range(RECORDS))] * 2


STRUCK = [
    ("NOT_COORDINATOR", ["heartbeat"]),
    ("COORDINATOR_NOT_AVAILABLE", ["find_coordinator"]),
    ("COORDINATOR_LOAD_IN_PROGRESS", ["join_group", "sync_group"]),
    ("NOT_COORDINATOR", ["join_group"]),
    ("UNKNOWN_MEMBER_ID", ["heartbeat"]),
    ("REBALANCE_IN_PROGRESS", ["heartbeat"]),
    ("COORDINATOR_LOAD_IN_PROGRESS", ["offset_fetch"]),
]


@pytest.mark.parametrize(
    ("struck", "client"), each_once(STRUCK, WRITERS), ids=lambda each: each if isinstance(each, str) else str(each[1])
)
def test_a_member_goes_on_after_an_error_of_its_coordinator(
    broker: Broker, struck: tuple[str, list[str]], client: str
) -> None:
    error, apis = struck
    # A member that is put out while it reads begins again, rightly: heartbeats are struck when it has read.
    while_joining = [api for api in apis if api != "heartbeat"]
    faults = [broker.faults.error(error, api=api, times=1) for api in while_joining]
    kafka_python_writes(broker, 10)

    if client == "kafka-python":
        consumer = kafka_python_consumer(broker, group_id="members", heartbeat_interval_ms=100, session_timeout_ms=1500)
    else:
        consumer = confluent_consumer(broker)
    first = read(consumer, 10)
    faults += [broker.faults.error(error, api=api, times=1) for api in apis if api not in while_joining]
    while any(fault.is_active for fault in faults):
        read(consumer, 1, patience_seconds=0.1)
    kafka_python_writes(broker, 10)
    second = read(consumer, 10)
    consumer.close()

    assert first == list(range(10))
    assert set(second) == set(range(10)), "some of them twice, if it was put out before it committed"


def test_an_action_runs_while_its_request_waits(broker: Broker) -> None:
    acted: list[int] = []
    call = broker.faults.call(lambda: acted.append(end_offset(broker)), api="produce", skip=1)

    confluent_writes(broker, 21)  # two batches: after the first record, and after the others

    assert acted == [1]
    assert call.count == 1
    assert broker.faults.active() == []


def end_offset(broker: Broker) -> int:
    return len(broker.records("orders"))
