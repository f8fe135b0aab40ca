"""A program that reaches all grades of its lab."""

import os
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]}
admin = AdminClient(servers)
topic = NewTopic("orders", 1, 3, config={"min.insync.replicas": "2"})
for created in admin.create_topics([topic]).values():
    created.result()


def delivered(error, message):
    if error is None:
        print(message.value().decode(), flush=True)
    else:
        sys.exit(f"{message.value()} was not delivered: {error}")


producer = Producer({**servers, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 100})
for line in sys.stdin:
    producer.produce("orders", line.strip().encode(), on_delivery=delivered)
    producer.flush()
