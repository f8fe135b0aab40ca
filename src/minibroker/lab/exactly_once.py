"""The lab of delivery semantics: a program that copies is killed between all that it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from minibroker.lab.program import START_SECONDS, Grade, LabFailed, Program, more, none_lost, none_twice, waited
from minibroker.process import Broker

TITLE = "Exactly once: transactions from topic to topic"
TASK = """\
Write a program that reads the topic `payments` of the broker at $BOOTSTRAP_SERVERS, and writes a receipt for each
payment to the topic `receipts`: for the value `payment 7` the value `receipt of payment 7`. Both topics are there. The
program runs until it gets SIGTERM.

The lab kills the program with SIGKILL at bad moments, and starts it again. Who reads the receipts with
isolation.level=read_committed must find each one once.
"""
STARTER = """\
import os

from confluent_kafka import Consumer, Producer

servers = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]}
consumer = Consumer({**servers, "group.id": "receipts", "auto.offset.reset": "earliest", "enable.auto.commit": False})
consumer.subscribe(["payments"])
producer = Producer(servers)
while True:
    message = consumer.poll(1.0)
    if message is None or message.error():
        continue
    producer.produce("receipts", f"receipt of {message.value().decode()}".encode())
    producer.flush()
    consumer.commit(message, asynchronous=False)
"""
PAYMENTS, RECEIPTS = "payments", "receipts"
COUNT = 10
PATIENCE_SECONDS = 30.0
MOMENT_SECONDS = 0.5  # for what a program does beside the request that was refused
SESSION_SECONDS = 50  # longer than what clients take for a session
LOST = "It committed an offset before the receipt was in the log: then a program that dies has promised too much."
TWICE = (
    "It wrote a receipt before its offset was committed, and died in between. A transaction has both or none: see"
    " transactional.id and send_offsets_to_transaction."
)


def run(start: Callable[[str], Program]) -> list[Grade]:
    """Raises LabFailed."""
    with Broker(control=True).start(timeout_seconds=START_SECONDS) as broker:
        broker.create_topic(PAYMENTS)
        broker.create_topic(RECEIPTS)
        paid: list[str] = []

        def pay() -> None:
            broker.produce(PAYMENTS, more(paid, "payment", COUNT))

        def is_copied() -> bool:
            return {f"receipt of {each}" for each in paid[-COUNT:]} <= set(receipts(broker))

        program = start(broker.bootstrap_servers)
        try:
            pay()
            if not waited(lambda: is_copied() or program.has_ended, PATIENCE_SECONDS) or program.has_ended:
                raise LabFailed(f"the program did not write the first receipts{program.last_errors()}")
            # The receipts are written and no offset can be committed; then no receipt can be written.
            for apis in (("OffsetCommit", "TxnOffsetCommit"), ("Produce",)):
                with broker.faults.disconnect(api=apis, topic=PAYMENTS if len(apis) > 1 else RECEIPTS) as fault:
                    pay()
                    waited(lambda fault=fault: fault.count > 0, PATIENCE_SECONDS)  # type: ignore[misc]
                    time.sleep(MOMENT_SECONDS)
                    program.kill()
                broker.clock.advance(SESSION_SECONDS)  # its membership ends
                program = start(broker.bootstrap_servers)
                waited(is_copied, PATIENCE_SECONDS)
            pay()
            is_alive = waited(is_copied, PATIENCE_SECONDS)
            has_ended = program.ends()
        finally:
            program.kill()
        done, wanted = receipts(broker), [f"receipt of {each}" for each in paid]
        return [
            none_lost(done, wanted, "receipt", LOST),
            none_twice(done, wanted, "receipt", TWICE),
            Grade(
                is_alive,
                "the program goes on where it was killed",
                "A reader of committed records waits for a transaction that nobody ends. The same transactional.id"
                " after a start aborts the one before.",
            ),
            Grade(has_ended, "the program ends on SIGTERM", "Handle SIGTERM, and close the consumer."),
        ]


def receipts(broker: Broker) -> Sequence[str]:
    """The values that a reader of committed records finds."""
    return [(each.value or b"").decode(errors="replace") for each in broker.records(RECEIPTS, read_committed=True)]
