"""Tries an installed minibroker: it is of the form that the first argument names, and passes a message on.

python .ci/first_message.py compiled
"""

from __future__ import annotations

import subprocess
import sys

from kafka import KafkaConsumer, KafkaProducer

from minibroker import Broker

WAIT_MS = 30_000


def main(form: str) -> None:
    version = subprocess.run(
        [sys.executable, "-m", "minibroker", "--version"], capture_output=True, text=True, check=True
    ).stdout
    if f"({form}" not in version:
        raise SystemExit(f"not {form}: {version.strip()}")
    with Broker() as broker:
        address = broker.bootstrap_servers
        with KafkaProducer(bootstrap_servers=address) as producer:
            producer.send("greetings", b"hello").get()
        consumer = KafkaConsumer(
            "greetings", bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_MS
        )
        values = [next(consumer).value]
        consumer.close()
    if values != [b"hello"]:
        raise SystemExit(f"read {values}")
    print(f"a message went through {version.strip()}")


if __name__ == "__main__":
    main(sys.argv[1])
