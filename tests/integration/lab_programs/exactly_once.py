"""A program that reaches all grades of its lab."""

import os
import signal

from confluent_kafka import Consumer, KafkaException, Producer

is_over = False


def end(*_):
    global is_over
    is_over = True


signal.signal(signal.SIGTERM, end)
servers = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]}
producer = Producer({**servers, "transactional.id": "receipts"})
producer.init_transactions()
consumer = Consumer({**servers, "group.id": "receipts", "auto.offset.reset": "earliest", "enable.auto.commit": False})
consumer.subscribe(["payments"])
while not is_over:
    messages = [each for each in consumer.consume(10, 0.5) if not each.error()]
    if not messages:
        continue
    producer.begin_transaction()
    try:
        for each in messages:
            producer.produce("receipts", f"receipt of {each.value().decode()}".encode())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
    except KafkaException:
        producer.abort_transaction()
        raise
consumer.close()
