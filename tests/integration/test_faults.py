"""`broker.faults` over real sockets: several at once, with a release to act as, and to the end of the process."""

from __future__ import annotations

import re
import time

import pytest

from minibroker import Broker, BrokerError
from minibroker.protocol.api import ApiKey
from tests.integration.faulty_broker import (
    RECORDS,
    WRITERS,
    broker,
    connection_to,
    started,
    values_in,
)
from tests.integration.wire import list_offsets_body, request_frame

__all__ = ["broker", "started"]

STOP_SECONDS = 30.0  # on a busy machine: far less than a fault holds


def test_two_faults_at_once_are_both_met(broker: Broker) -> None:
    with (
        broker.faults.delay(0.05, api="produce") as delay,
        broker.faults.error("NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", times=2) as error,
    ):
        assert broker.faults.active() == [delay, error]
        WRITERS["kafka-python"](broker)

    assert delay.count > 2
    assert error.count == 2
    assert broker.faults.active() == []
    assert values_in(broker) == list(range(RECORDS))


def test_faults_and_a_release_together() -> None:
    with Broker(control=True, act_as="0.11") as broker:
        broker.create_topic("orders", partitions=1)
        with pytest.raises(BrokerError, match=r"Apache Kafka 0\.11\.0\.3, .* has no KAFKA_STORAGE_ERROR"):
            broker.faults.error("KAFKA_STORAGE_ERROR", api="produce")
        fault = broker.faults.error("NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", times=2)

        WRITERS["confluent-kafka"](broker)

        assert fault.count == 2
        assert values_in(broker) == list(range(RECORDS))


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
        with pytest.raises(BrokerError, match="faults go with the broker's process"):
            _ = fault.count


def test_a_broker_that_is_held_by_faults_stops_at_once() -> None:
    with Broker(control=True) as own, connection_to(own) as connection:
        fault = own.faults.delay(3600)
        connection.send(request_frame(ApiKey.LIST_OFFSETS, 2, list_offsets_body("orders")))
        fault.wait()
        began = time.monotonic()

        assert own.stop() == 0

        assert time.monotonic() - began < STOP_SECONDS


def test_connections_are_told_by_their_numbers(broker: Broker) -> None:
    with connection_to(broker) as connection:
        connection.exchange(request_frame(ApiKey.LIST_OFFSETS, 2, list_offsets_body("orders")))

        mine = [each for each in broker.faults.connections() if each.address == connection.address]

        assert [each.client_id for each in mine] == ["wire-test"]
        broker.faults.disconnect(connection=mine[0].number)
        assert connection.exchange(request_frame(ApiKey.LIST_OFFSETS, 2, list_offsets_body("orders"))) is None


def test_a_fault_that_does_not_strike_is_an_error_for_who_waits(broker: Broker) -> None:
    fault = broker.faults.delay(1, client_id="nobody")

    with pytest.raises(BrokerError, match=r"delay of 1 s .*; waited 0\.05 s until it has struck 1"):
        fault.wait(timeout_seconds=0.05)


def test_a_broker_without_control_says_how_to_have_faults() -> None:
    broker = Broker()
    with pytest.raises(BrokerError, match=r"start it with Broker\(control=True\)"):
        _ = broker.faults
    broker.close()
