"""Invoices, receipts, stock and payments of the shop, with confluent-kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

CONSUMING = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 200,
}
GIVE_UP_MS = 1000  # on a receipt: the customer waits
POLL_SECONDS = 0.1


class NotDelivered(Exception):
    """The broker has not confirmed a record."""


def write_invoices(servers: str, topic: str, orders: Iterable[bytes]) -> None:
    """Write an invoice for each order."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for order in orders:
        producer.produce(topic, b"invoice of " + order)
    producer.flush()


def write_receipts(servers: str, topic: str, orders: Iterable[bytes]) -> None:
    """Write a receipt for each order, until all are written. Raises NotDelivered."""
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": GIVE_UP_MS})
    for order in orders:
        producer.produce(topic, b"receipt of " + order, on_delivery=delivered)
    producer.flush()
    if failed:
        raise NotDelivered(failed)


class Stock:
    """How many of each article orders have taken, counted anew from the first order on by each process."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self.taken: Counter[bytes] = Counter()
        self._consumer = Consumer({**CONSUMING, "bootstrap.servers": servers, "group.id": group})
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.taken.clear()
        for each in partitions:
            each.offset = 0
        consumer.assign(partitions)

    def count(self, is_enough: Callable[[], bool]) -> None:
        """Count orders as they come."""
        try:
            while not is_enough():
                message = self._consumer.poll(POLL_SECONDS)
                if message is not None and message.error() is None:
                    self.taken[message.value()] += 1
        finally:
            self._consumer.close()


def book_payments(servers: str, group: str, orders: str, payments: str, is_enough: Callable[[], bool]) -> None:
    """Book a payment for each order exactly once, with its offset in a transaction."""
    consumer = Consumer({**CONSUMING, "bootstrap.servers": servers, "group.id": group})
    consumer.subscribe([orders])
    producer = booking(servers, group)
    try:
        while not is_enough():
            messages = [each for each in consumer.consume(10, POLL_SECONDS) if each.error() is None]
            if not messages:
                continue
            try:
                producer.begin_transaction()
                for each in messages:
                    producer.produce(payments, b"payment of " + each.value())
                offsets = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
                producer.commit_transaction()
            except KafkaException:
                try:
                    producer.abort_transaction()
                except KafkaException:  # fenced: the broker has aborted it
                    producer = booking(servers, group)
                for each in reversed(messages):
                    consumer.seek(TopicPartition(each.topic(), each.partition(), each.offset()))
    finally:
        consumer.close()


def booking(servers: str, group: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": group,
            "message.timeout.ms": GIVE_UP_MS,
            "transaction.timeout.ms": GIVE_UP_MS,
        }
    )
    producer.init_transactions()
    return producer
