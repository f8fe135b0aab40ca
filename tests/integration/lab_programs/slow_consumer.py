"""A program that reaches all grades of its lab."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, TopicPartition

is_over = False


def end(*_):
    global is_over
    is_over = True


def develop(milliseconds):
    time.sleep(milliseconds / 1000)


signal.signal(signal.SIGTERM, end)
consumer = Consumer(
    {
        "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
        "group.id": "developers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "max.poll.interval.ms": 6000,
    }
)
consumer.subscribe(["photos"])
pool = ThreadPoolExecutor(1)
while not is_over:
    message = consumer.poll(0.2)
    if message is None or message.error():
        continue
    partition = [TopicPartition(message.topic(), message.partition())]
    _, number, milliseconds = message.value().decode().split()
    work = pool.submit(develop, int(milliseconds))
    consumer.pause(partition)
    while not work.done():
        assert consumer.poll(0.05) is None
    consumer.resume(partition)
    print(f"photo {number}", flush=True)
    consumer.commit(message)
consumer.close()
