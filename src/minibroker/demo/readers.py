"""Two consumers of a group that read the flights beside the Spark job, so that a console has a group to show.

The rule: they read until the end of the block, in threads; each commits what it has read. What they raise is not the
demo's failure: Spark's result is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

GROUP = "departure-boards"
NAMES = ("boards-1", "boards-2")
POLL_SECONDS = 0.2
RECORDS_A_POLL = 500
JOIN_SECONDS = 5.0


@contextmanager
def readers(bootstrap: str, topic: str) -> Iterator[None]:
    """Read `topic` from its beginning with two members of a group until the block ends."""
    ended = threading.Event()
    # Daemons, because leaving a group takes a minute when its broker has gone.
    threads = [threading.Thread(target=read, args=(bootstrap, topic, name, ended), daemon=True) for name in NAMES]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(JOIN_SECONDS)


def read(bootstrap: str, topic: str, name: str, ended: threading.Event) -> None:
    """Read as one member of the group until `ended` is set."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1000,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    while not ended.is_set():
        consumer.consume(RECORDS_A_POLL, POLL_SECONDS)
    consumer.close()
