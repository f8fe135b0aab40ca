"""The shop's own tests, which know of no faults."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle

import pytest
import with_aiokafka
import with_confluent
import with_kafka_python
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from minibroker import Broker

ORDERS = [b"order %d" % number for number in range(6)]
PATIENCE_SECONDS = 25.0
PASSING = (AiokafkaError, KafkaException, KafkaError, TimeoutError, with_confluent.NotDelivered)


@pytest.fixture
def orders(minibroker: Broker, minibroker_topic: str) -> str:
    """A topic with the orders."""
    minibroker.produce(minibroker_topic, ORDERS)
    return minibroker_topic


@pytest.fixture
def results(minibroker: Broker, minibroker_unique: Callable[[str], str]) -> str:
    """The topic that a service writes."""
    name = minibroker_unique("results")
    minibroker.create_topic(name, partitions=1)
    return name


def keep_running(service: Callable[[], object]) -> None:
    """Start a service again when it fails, as a supervisor does."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            service()
            return
        except PASSING:
            if time.monotonic() > deadline:
                raise


def done(minibroker: Broker, group: str, topic: str) -> Callable[[], bool]:
    """Whether the group has committed each record of the topic."""
    deadline = time.monotonic() + PATIENCE_SECONDS

    def is_done() -> bool:
        assert time.monotonic() < deadline, f"{minibroker.lag(group, topic)} are still to be done"
        return minibroker.lag(group, topic) == 0

    return is_done


def written(minibroker: Broker, topic: str) -> Counter[bytes]:
    """How often each order is in what a service has written."""
    records = minibroker.records(topic, read_committed=True)
    return Counter(each.value.rpartition(b" of ")[2] for each in records if each.value is not None)


def test_each_order_of_a_cart_is_written(minibroker: Broker, minibroker_topic: str) -> None:
    with_kafka_python.check_out(minibroker.bootstrap_servers, minibroker_topic, ORDERS)

    assert written(minibroker, minibroker_topic).keys() == set(ORDERS)


def test_each_order_gets_an_invoice(minibroker: Broker, minibroker_topic: str) -> None:
    with_confluent.write_invoices(minibroker.bootstrap_servers, minibroker_topic, ORDERS)

    assert written(minibroker, minibroker_topic) == Counter(ORDERS)


def test_each_order_gets_a_receipt(minibroker: Broker, minibroker_topic: str) -> None:
    keep_running(lambda: with_confluent.write_receipts(minibroker.bootstrap_servers, minibroker_topic, ORDERS))

    assert written(minibroker, minibroker_topic).keys() == set(ORDERS)


def test_stock_is_what_orders_have_taken(minibroker: Broker, minibroker_topic: str) -> None:
    stock = with_confluent.Stock()
    deadline = time.monotonic() + PATIENCE_SECONDS
    unsold = ORDERS.copy()
    sold: Counter[bytes] = Counter()
    rounds = cycle((False, False, True))

    def is_enough() -> bool:
        """Sell a piece each third round that finds all counted."""
        assert time.monotonic() < deadline, f"{stock.taken} instead of {sold}"
        if stock.taken.total() < sold.total() or not next(rounds):
            return False
        if not unsold:
            return True
        piece = unsold.pop()
        sold[piece] += 1
        minibroker.produce(minibroker_topic, [piece])
        return False

    keep_running(lambda: stock.count(minibroker.bootstrap_servers, minibroker_topic, minibroker_topic, is_enough))

    assert stock.taken == sold


def test_each_payment_is_booked_once(minibroker: Broker, orders: str, results: str) -> None:
    is_done = done(minibroker, orders, orders)
    keep_running(lambda: with_confluent.book_payments(minibroker.bootstrap_servers, orders, orders, results, is_done))

    assert written(minibroker, results) == Counter(ORDERS)


def test_each_order_gets_a_parcel(minibroker: Broker, orders: str, results: str) -> None:
    is_done = done(minibroker, orders, orders)
    keep_running(lambda: with_kafka_python.ship(minibroker.bootstrap_servers, orders, orders, results, is_done))

    assert written(minibroker, results).keys() == set(ORDERS)


def test_each_order_is_confirmed(minibroker: Broker, orders: str, results: str) -> None:
    is_done = done(minibroker, orders, orders)
    keep_running(
        lambda: asyncio.run(with_aiokafka.confirm(minibroker.bootstrap_servers, orders, orders, results, is_done))
    )

    assert written(minibroker, results).keys() == set(ORDERS)


def test_each_payment_is_entered_once(minibroker: Broker, orders: str, results: str) -> None:
    minibroker.produce(orders, ORDERS[:2])  # they come again
    is_done = done(minibroker, orders, orders)
    keep_running(
        lambda: asyncio.run(with_aiokafka.enter(minibroker.bootstrap_servers, orders, orders, results, is_done))
    )

    assert written(minibroker, results) == Counter(ORDERS)
