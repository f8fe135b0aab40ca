"""The lab of slow work: a record that takes longer than the group allows between two polls."""

from __future__ import annotations

from collections.abc import Callable

from minibroker.lab.program import START_SECONDS, Grade, LabFailed, Program, more, none_lost, none_twice, waited
from minibroker.process import Broker

TITLE = "Slow work: max.poll.interval.ms, and polling while you work"
TASK = """\
Write a program that develops the photos in the topic `photos` of the broker at $BOOTSTRAP_SERVERS, as the only member
of the group `developers`. A photo is a value like `photo 7 20`: its number, and how many milliseconds it takes, which
the program sleeps. When a photo is developed, it prints `photo 7`. It runs until it gets SIGTERM.

The group must notice within 6 seconds that a program hangs: max.poll.interval.ms is 6000. One photo takes longer than
that. None may be lost, none developed twice, and the program must not lose its membership.
"""
STARTER = """\
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
        "group.id": "developers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "max.poll.interval.ms": 6000,
    }
)
consumer.subscribe(["photos"])
while not is_over:
    message = consumer.poll(0.5)
    if message is None or message.error():
        continue
    _, number, milliseconds = message.value().decode().split()
    time.sleep(int(milliseconds) / 1000)
    print(f"photo {number}", flush=True)
    consumer.commit(message)
consumer.close()
"""
TOPIC = "photos"
ALLOWED_MS = 6000
SHORT_MS = 20
LONG_MS = 9000
FEW = 10
PATIENCE_SECONDS = 30.0
HINT = (
    "A member that does not call poll for max.poll.interval.ms has left. pause() the partition, work in a thread, and"
    " go on calling poll, which then returns no records; resume() when the work is done."
)


def run(start: Callable[[str], Program]) -> list[Grade]:
    """Raises LabFailed."""
    with Broker(control=True, transcript=True).start(timeout_seconds=START_SECONDS) as broker:
        broker.create_topic(TOPIC)
        program = start(broker.bootstrap_servers)
        photos: list[str] = []

        def give(count: int, milliseconds: int) -> None:
            broker.produce(TOPIC, [f"{each} {milliseconds}" for each in more(photos, "photo", count)])

        try:
            give(FEW, SHORT_MS)
            if not waited(lambda: set(photos) <= set(program.claims) or program.has_ended, PATIENCE_SECONDS):
                raise LabFailed(f"the program did not develop the first photos{program.last_errors()}")
            give(1, LONG_MS)
            give(FEW, SHORT_MS)
            waited(lambda: set(photos) <= set(program.claims) or program.has_ended, PATIENCE_SECONDS)
            done = list(program.claims)
            joins, intervals_ms, left = membership(broker)
            has_ended = program.ends()
        finally:
            program.kill()
        return [
            Grade(
                bool(joins) and max(intervals_ms, default=0) <= ALLOWED_MS,
                f"max.poll.interval.ms is at most {ALLOWED_MS}"
                if intervals_ms
                else "the program is not a member of a group",
                "A group that waits for minutes for a program that hangs is no help: leave the interval short.",
            ),
            Grade(not left, "the member stays in its group" if not left else "the member has left its group", HINT),
            none_lost(done, photos, "photo", HINT),
            none_twice(done, photos, "photo", HINT),
            Grade(has_ended, "the program ends on SIGTERM", "Handle SIGTERM, and close the consumer."),
        ]


def membership(broker: Broker) -> tuple[int, list[int], bool]:
    """How often a member joined, with which max.poll.interval.ms, and whether one has left."""
    joins, intervals_ms, left = 0, [], False
    for each in broker.transcript.exchanges():
        if each.api == "JoinGroup":
            joins += 1
            intervals_ms.append(each.request.rebalance_timeout_ms)
        elif each.api == "ConsumerGroupHeartbeat":
            epoch = each.request.member_epoch
            joins += epoch == 0
            if each.request.rebalance_timeout_ms > 0:
                intervals_ms.append(each.request.rebalance_timeout_ms)
            left = left or epoch < 0
        elif each.api == "LeaveGroup":
            left = True
    return joins, intervals_ms, left
