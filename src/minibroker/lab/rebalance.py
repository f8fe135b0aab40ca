"""The lab of groups: members come, leave and die."""

from __future__ import annotations

import time
from collections.abc import Callable

from minibroker.lab.program import START_SECONDS, Grade, LabFailed, Program, more, none_lost, none_twice, waited
from minibroker.process import Broker

TITLE = "Members come, leave and die: rebalances, and when to commit"
TASK = """\
Write a program that does the jobs in the topic `jobs` of the broker at $BOOTSTRAP_SERVERS, as a member of the group
`workers`. A job is a value like `job 7 20`: its number, and how many milliseconds it takes, which the program sleeps.
When a job is done, and not before, the program prints `job 7`. It runs until it gets SIGTERM.

The lab starts a second program beside the first one, ends the first one in order (SIGTERM), starts a third one, and
kills the second one while it works (SIGKILL). No job may be lost. Where members join and leave in order, no job may be
done twice. A member that is gone must be noticed soon: the broker allows a session.timeout.ms of at most 6000.
"""
STARTER = """\
import os
import time

from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"],
        "group.id": "workers",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
    }
)
consumer.subscribe(["jobs"])
while True:
    message = consumer.poll(1.0)
    if message is None or message.error():
        continue
    _, number, milliseconds = message.value().decode().split()
    time.sleep(int(milliseconds) / 1000)
    print(f"job {number}", flush=True)
"""
TOPIC = "jobs"
GROUP = "workers"
PARTITIONS = 2
COUNT = 30
SHORT_MS = 20
ENDED_MS = 2_000  # of the job in which a member is to end
MOMENT_SECONDS = 0.5  # in which it begins that job
TRIALS = 3  # to find the moment in which a job is not committed
LONG_MS = 8_000
WORKED_SECONDS = 12.0  # of two long jobs: longer than the interval at which clients commit by themselves
PATIENCE_SECONDS = 40.0
SESSION_MS = 6000
LOST = (
    "A job's offset was committed before the job was done. What commits by itself commits what the program has got,"
    " done or not: commit, or store the offset, when the job is done."
)
TWICE = (
    "A member that ends is to commit what it has done, and to leave: handle SIGTERM, and close the consumer. One"
    " that reads without a group, or from the start after a rebalance, does what others have done."
)


def run(start: Callable[[str], Program]) -> list[Grade]:
    """Raises LabFailed."""
    with Broker(settings={"group.max.session.timeout.ms": SESSION_MS}).start(timeout_seconds=START_SECONDS) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        programs = [start(broker.bootstrap_servers)]
        try:
            return graded(broker, programs, start)
        finally:
            for each in programs:
                each.kill()


def graded(broker: Broker, programs: list[Program], start: Callable[[str], Program]) -> list[Grade]:
    given: list[str] = []

    def give(milliseconds: list[int], partition: int | None = None) -> None:
        jobs = zip(more(given, "job", len(milliseconds)), milliseconds, strict=True)
        broker.produce(TOPIC, [f"{name} {each}" for name, each in jobs], partition=partition)

    def done() -> list[str]:
        return [claim for each in programs for claim in each.claims]

    def is_done() -> bool:
        return set(given) <= set(done())

    def until_committed(seconds: float = WORKED_SECONDS) -> None:
        waited(is_done, PATIENCE_SECONDS)
        waited(lambda: broker.lag(GROUP, TOPIC) == 0, seconds)

    give([SHORT_MS] * COUNT)
    if not waited(lambda: is_done() or programs[0].has_ended, PATIENCE_SECONDS):
        raise LabFailed(f"the program did not do the first jobs in {PATIENCE_SECONDS:g} s{programs[0].last_errors()}")
    if programs[0].has_ended:
        raise LabFailed(f"the program has ended by itself{programs[0].last_errors()}")
    programs.append(start(broker.bootstrap_servers))
    is_shared = until_both_work(give, programs, is_done)
    # The first one is to end at work, behind a job that it has not committed yet, if it does not commit each one: it
    # gets both when it has just committed by itself.
    for partition in range(PARTITIONS):
        give([SHORT_MS], partition)
        until_committed()
        if given[-1] in programs[0].claims:
            break
    for _ in range(TRIALS):
        give([SHORT_MS], partition)
        until_committed()
        give([SHORT_MS, ENDED_MS], partition)
        waited(lambda: given[-2] in done(), PATIENCE_SECONDS)
        time.sleep(MOMENT_SECONDS)
        if broker.lag(GROUP, TOPIC) > 1:
            break
        waited(is_done, PATIENCE_SECONDS)
    has_ended = programs[0].ends()
    time.sleep(SESSION_MS / 1000 + 1)  # only then do others get what it has not left
    until_committed(PATIENCE_SECONDS)  # what it has not committed, another one does again
    in_order = none_twice(done(), given, "job", TWICE)
    # A job for each partition, so that one is at work; the member dies when it has committed one, or in the other.
    give([LONG_MS] * PARTITIONS)
    waited(lambda: broker.lag(GROUP, TOPIC) < PARTITIONS, WORKED_SECONDS)
    programs[1].kill()
    programs.append(start(broker.bootstrap_servers))
    waited(is_done, PARTITIONS * LONG_MS / 1000 + PATIENCE_SECONDS)
    return [
        Grade(
            is_shared,
            "two members share the jobs",
            "Members of one group.id share the partitions: subscribe to the topic.",
        ),
        in_order,
        Grade(has_ended, "a member ends on SIGTERM", "Handle SIGTERM, and close the consumer."),
        none_lost(done(), given, "job", LOST),
    ]


def until_both_work(give: Callable[[list[int]], None], programs: list[Program], is_done: Callable[[], bool]) -> bool:
    """Give jobs until the newest program has done some; return whether it has."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not programs[-1].claims:
        if time.monotonic() > deadline or programs[-1].has_ended:
            return False
        give([SHORT_MS] * PARTITIONS)
        waited(lambda: bool(programs[-1].claims), 1.0)
    return waited(is_done, PATIENCE_SECONDS)
