"""What producers of today make of a broker that does wrong: all is written, and once if they are idempotent."""

from __future__ import annotations

import time
from typing import Any

import pytest

from minibroker import Broker
from minibroker.protocol.api import ApiKey
from tests.integration.faulty_broker import (
    RECORDS,
    WRITERS,
    broker,
    connection_to,
    kafka_python_writes,
    started,
    values_in,
)
from tests.integration.wire import list_offsets_body, request_frame

__all__ = ["broker", "started"]


@pytest.mark.parametrize("client", WRITERS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_idempotent_producer_goes_on_after_dropped_connections_without_duplicates(
    broker: Broker, client: str, when: Any
) -> None:
    fault = broker.faults.disconnect(api="produce", when=when, skip=1, times=3)

    WRITERS[client](broker)

    assert fault.count == 3
    assert values_in(broker) == list(range(RECORDS))


@pytest.mark.parametrize("client", WRITERS)
def test_an_idempotent_producer_that_was_told_an_error_after_the_append_makes_no_duplicate(
    broker: Broker, client: str
) -> None:
    fault = broker.faults.error("REQUEST_TIMED_OUT", api="produce", topic="orders", when="after", skip=1, times=2)

    WRITERS[client](broker)

    assert fault.count == 2
    assert values_in(broker) == list(range(RECORDS))


def test_a_producer_that_is_not_idempotent_writes_twice_what_it_was_not_told_of(broker: Broker) -> None:
    broker.faults.disconnect(api="produce", when="after", times=1)

    kafka_python_writes(broker, 1, enable_idempotence=False, retries=5)

    assert values_in(broker) == [0, 0]


@pytest.mark.parametrize("client", WRITERS)
def test_not_leader_makes_a_producer_look_for_the_leader_and_go_on(broker: Broker, client: str) -> None:
    looked_up = broker.faults.delay(0.001, api="metadata")  # counts them
    fault = broker.faults.error("NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", partition=0, times=1, skip=1)

    WRITERS[client](broker)

    assert fault.count == 1
    assert looked_up.count >= 2, "once at the start, once for the fault"
    assert values_in(broker) == list(range(RECORDS))


def test_a_delay_holds_the_answer_back_until_its_end(broker: Broker) -> None:
    began = time.monotonic()
    with broker.faults.delay(0.3, api="produce", client_id="slow") as fault:
        kafka_python_writes(broker, 1, client_id="slow")
        took_seconds = time.monotonic() - began

    kafka_python_writes(broker, 1, client_id="slow")

    assert took_seconds >= 0.3
    assert (fault.count, fault.is_active) == (1, False)


def test_the_brokers_clock_ends_a_delay(broker: Broker) -> None:
    fault = broker.faults.delay(300, api="list_offsets")  # not so long that connections.max.idle.ms ends it too
    with connection_to(broker) as connection:
        connection.send(request_frame(ApiKey.LIST_OFFSETS, 2, list_offsets_body("orders")))
        fault.wait()

        broker.clock.advance(300)

        assert connection.receive_frame() is not None


def test_lifting_a_delay_lets_go_what_it_holds(broker: Broker) -> None:
    with connection_to(broker) as connection:
        with broker.faults.delay(3600, api="list_offsets") as fault:
            connection.send(request_frame(ApiKey.LIST_OFFSETS, 2, list_offsets_body("orders")))
            fault.wait()

        assert connection.receive_frame() is not None
