"""A program that reaches all grades of its lab."""

import os
import signal
import time

from confluent_kafka import Consumer

is_over = False


def end(*_):
    global is_over
    is_over = True


signal.signal(signal.SIGTERM, end)
consumer = Consumer(
    {
        "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
        "group.id": "workers",
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
        "session.timeout.ms": 6000,
    }
)
consumer.subscribe(["jobs"])
while not is_over:
    message = consumer.poll(0.2)
    if message is None or message.error():
        continue
    _, number, milliseconds = message.value().decode().split()
    time.sleep(int(milliseconds) / 1000)
    print(f"job {number}", flush=True)
    consumer.store_offsets(message)
consumer.close()
