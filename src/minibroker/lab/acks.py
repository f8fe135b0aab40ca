"""The lab of acks and min.insync.replicas: a cluster whose leaders die."""

from __future__ import annotations

from collections.abc import Callable

from minibroker.cluster import Cluster
from minibroker.errors import BrokerError
from minibroker.lab.program import START_SECONDS, Grade, LabFailed, Program, more, none_twice, some_of, waited

TITLE = "What is acknowledged is kept: acks, min.insync.replicas, idempotence"
TASK = """\
Write a program that reads orders from its standard input, one a line, and sends each to the topic `orders` of the
cluster at $BOOTSTRAP_SERVERS. It creates the topic itself: one partition, three replicas. It prints an order once that
order cannot be lost any more, and ends with status 0 after the last one.

The cluster has three brokers. The lab loses an answer, has followers fall behind, and destroys the leader, twice: once
while the followers are in sync and late, once while the leader is the only replica in sync. At least two of the three
brokers are up, and the machines of two never burn at the same time.
"""
STARTER = """\
import os
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"]}
admin = AdminClient(servers)
for created in admin.create_topics([NewTopic("orders", 1, 3)]).values():
    created.result()

producer = Producer({**servers, "acks": "1"})
for line in sys.stdin:
    order = line.strip()
    producer.produce("orders", order.encode())
    producer.poll(0)
    print(order)
producer.flush()
"""
TOPIC = "orders"
FEW = 5
HELD_SECONDS = 4.0  # far below replica.lag.time.max.ms
PATIENCE_SECONDS = 30.0
UNSENT_SECONDS = 600.0  # for which orders are not sent again, or until the lab has looked
SHOWN_SECONDS = 3.0  # within which a new leader shows all that it has
LOST = (
    "An answer to acks=1 says that the leader has the record, and no answer was waited for where there is no callback."
    " acks=all waits for the replicas that are in sync."
)
ALONE = "With min.insync.replicas=1 the last replica that is in sync acknowledges alone."
TWICE = "A producer that got no answer sends again. With enable.idempotence the broker knows what it has already."


def run(start: Callable[[str], Program]) -> list[Grade]:
    """Raises LabFailed."""
    cluster = Cluster(brokers=3, settings={"auto.create.topics.enable": "false"})
    with cluster.start(timeout_seconds=START_SECONDS):
        program = start(cluster.bootstrap_servers)
        try:
            return graded(cluster, program)
        finally:
            program.kill()


def graded(cluster: Cluster, program: Program) -> list[Grade]:
    if not waited(lambda: TOPIC in cluster.topics() or program.has_ended, PATIENCE_SECONDS):
        raise LabFailed(f"the program has not created the topic {TOPIC} in {PATIENCE_SECONDS:g} s")
    try:
        replicas = len(cluster.replicas(TOPIC))
        leader = cluster.until_leader(TOPIC)
    except BrokerError:
        raise LabFailed(f"the program has ended, and created no topic {TOPIC}{program.last_errors()}") from None
    if replicas != 3:
        raise LabFailed(f"the topic {TOPIC} has {replicas} replicas, and should have 3")
    orders: list[str] = []

    def give(count: int, *, seconds: float) -> None:
        new = more(orders, "order", count)
        program.give(new)
        waited(lambda: set(new) <= set(program.claims) or program.has_ended, seconds)

    # 1. An answer is lost.
    cluster.broker(leader).faults.disconnect(api="produce", when="after", times=1)
    give(20, seconds=PATIENCE_SECONDS)
    # 2. The followers are late, and the leader dies.
    cluster.until_isr(TOPIC, 0, {1, 2, 3})
    for each in {1, 2, 3} - {leader}:
        cluster.hold_follower(each)
    give(FEW, seconds=HELD_SECONDS)
    with cluster.faults.delay(UNSENT_SECONDS, api="produce"):  # so that it is seen what the leader took with it
        claimed = list(program.claims)
        cluster.kill(leader)
        cluster.release_follower()
        second = cluster.until_leader(TOPIC, not_=leader)
        missing = unfound(cluster, claimed, orders)
    cluster.start(leader, timeout_seconds=START_SECONDS)
    cluster.until_isr(TOPIC, 0, {1, 2, 3}, timeout=PATIENCE_SECONDS)
    waited(lambda: set(orders) <= set(program.claims) or program.has_ended, PATIENCE_SECONDS)
    # 3. The leader is alone in sync, and its machine burns.
    for each in {1, 2, 3} - {second}:
        cluster.shrink_isr(TOPIC, 0, each)
    give(FEW, seconds=HELD_SECONDS)
    with cluster.faults.delay(UNSENT_SECONDS, api="produce"):
        claimed_alone = list(program.claims)
        cluster.kill(second)
        cluster.release_follower()
        cluster.unclean_election(TOPIC, 0)
        missing_alone = [each for each in unfound(cluster, claimed_alone, orders) if each not in missing]
    cluster.start(second, timeout_seconds=START_SECONDS)
    cluster.until_isr(TOPIC, 0, {1, 2, 3}, timeout=PATIENCE_SECONDS)
    waited(lambda: set(orders) <= set(program.claims) or program.has_ended, PATIENCE_SECONDS)
    program.end_input()
    has_ended = program.ends(asked=False)
    done = values(cluster)
    unsent = [each for each in orders if each not in done and each not in missing + missing_alone]
    return [
        Grade(
            not missing,
            "what was printed outlives a leader whose followers were late"
            if not missing
            else f"printed, and lost with the leader: {some_of(missing)}",
            LOST,
        ),
        Grade(
            not missing_alone,
            "what was printed outlives a leader that was alone in sync"
            if not missing_alone
            else f"printed, and lost with the last replica in sync: {some_of(missing_alone)}",
            ALONE,
        ),
        Grade(
            not unsent,
            "every order arrives in the end" if not unsent else f"never sent again: {some_of(unsent)}",
            "What was refused, or not answered, is to be sent again: see retries and delivery.timeout.ms.",
        ),
        none_twice(done, orders, "order", TWICE),
        Grade(has_ended, "the program ends after the last order", "It should end when its standard input does."),
    ]


def values(cluster: Cluster) -> list[str]:
    return [(each.value or b"").decode(errors="replace") for each in cluster.records(TOPIC)]


def unfound(cluster: Cluster, claimed: list[str], orders: list[str]) -> list[str]:
    """The orders that were printed, and are not in the log that is left.

    A new leader shows its last records once its followers have told it that they have them.
    """
    missing: list[str] = []

    def is_all_there() -> bool:
        here = set(values(cluster))
        missing[:] = [each for each in orders if each in claimed and each not in here]
        return not missing

    waited(is_all_there, SHOWN_SECONDS)
    return missing
