"""The checkout and the shipping of the shop, with kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from kafka import KafkaConsumer, KafkaProducer

WORKERS = 2
GIVE_UP_MS = 1000  # on a parcel; it is tried again
LOST_SECONDS = 3  # kafka-python may keep a record that it neither sends nor gives up
POLL_MS = 1000


def check_out(servers: str, topic: str, orders: Iterable[bytes]) -> None:
    """Write the orders of a cart."""
    with KafkaProducer(bootstrap_servers=servers) as producer:
        for sent in [producer.send(topic, order) for order in orders]:
            sent.get()


def ship(servers: str, group: str, orders: str, parcels: str, is_enough: Callable[[], bool]) -> None:
    """Send a parcel for each order, several at a time. Raises KafkaError."""
    consumer = KafkaConsumer(
        orders,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=200,
    )
    producer = KafkaProducer(bootstrap_servers=servers, request_timeout_ms=GIVE_UP_MS, delivery_timeout_ms=GIVE_UP_MS)

    def send(order: bytes) -> None:
        producer.send(parcels, b"parcel of " + order).get(LOST_SECONDS)

    with ExitStack() as closing:
        closing.callback(producer.close, timeout=LOST_SECONDS)
        closing.callback(consumer.close)
        workers = closing.enter_context(ThreadPoolExecutor(WORKERS))
        while not is_enough():
            polled = consumer.poll(POLL_MS)
            at_work = [workers.submit(send, each.value) for records in polled.values() for each in records]
            for each in at_work:
                each.result()
            if at_work:
                consumer.commit()
