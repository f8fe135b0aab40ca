"""Groups of the consumer protocol, beside the Apache Kafka of today: heartbeats a second of a settled member, how soon
a large group settles, what a subscription by a regular expression takes.
"""

from __future__ import annotations

import uuid

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks import frames
from benchmarks.cases.groups import wait_for_coordinator
from benchmarks.cases.requests import small_requests
from benchmarks.lab import Lab, allow_many_connections
from benchmarks.measurements import Measurement, Run
from benchmarks.processes import module_command, run_json
from benchmarks.topics import QUIET, Broker, create_topic

CASE = "consumer groups"
TOPIC = "consumer-groups"
MEMBERS = 1000
TOPICS = 1000
LOAD_SECONDS = 300.0
WARM_UPS = 2  # the JVM compiles


def measure(lab: Lab) -> list[Measurement]:
    """All of them, on every broker that has such groups."""
    brokers = lab.brokers_of_today()
    heartbeats = {broker.name: _heartbeats(lab, broker) for broker in brokers}
    samples = lab.interleave("heartbeats", heartbeats, warm_ups=WARM_UPS)
    measurements = [
        Measurement(CASE, "heartbeats_per_s", "ConsumerGroupHeartbeat, ten connections", "1/s", samples["per_s"]),
        Measurement(CASE, "heartbeat_cpu_us", "ConsumerGroupHeartbeat, server CPU", "us", samples["cpu_us"]),
    ]
    members, topics = lab.plan.amount(MEMBERS), lab.plan.amount(TOPICS)
    allow_many_connections(members + 500)
    groups = {
        each.name: _run(each, members, members, "--topic", create_topic(each, TOPIC, partitions=members))
        for each in brokers
    }
    samples = lab.interleave(f"groups of {members} members", groups, warm_ups=WARM_UPS)
    text = f"a group of {members} members"
    measurements += [
        Measurement(CASE, "joined_s", f"{text} settles", "s", samples["joined_s"]),
        Measurement(CASE, "left_s", f"{text} settles after one has left", "s", samples["left_s"]),
        Measurement(CASE, "group_cpu_s", f"{text}, server CPU until all have left", "s", samples["cpu_s"]),
    ]
    expressions = {each.name: _run(each, 1, topics, "--regex", _create_topics(each, topics)) for each in brokers}
    samples = lab.interleave(f"an expression of {topics} topics", expressions, warm_ups=WARM_UPS)
    text = f"a member's expression of {topics} topics"
    measurements += [
        Measurement(CASE, "expression_s", f"{text} is assigned", "s", samples["joined_s"]),
        Measurement(CASE, "expression_cpu_s", f"{text}, server CPU", "s", samples["cpu_s"]),
    ]
    return measurements


def _heartbeats(lab: Lab, broker: Broker) -> Run:
    """Heartbeats of one member, which has joined before."""
    group_id, topic = f"benchmark-{uuid.uuid4()}", create_topic(broker, TOPIC)
    first = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [topic], "topic_partitions": []}
    joined = wait_for_coordinator(broker, group_id, frames.consumer_group_heartbeat(group_id, "member", 0, **first))
    return small_requests(lab, broker, frames.consumer_group_heartbeat(group_id, "member", joined.member_epoch))


def _run(broker: Broker, members: int, partitions: int, *subscription: str) -> Run:
    command = module_command("benchmarks.load.consumer_groups", broker.bootstrap, *subscription)
    command += ["--members", str(members), "--partitions", str(partitions)]

    def run() -> dict[str, float]:
        before = broker.cpu_seconds()
        measured = run_json(command, seconds=LOAD_SECONDS)
        return {**measured, "cpu_s": broker.cpu_seconds() - before}

    return run


def _create_topics(broker: Broker, count: int) -> str:
    """Create topics of one partition; return an expression that matches them."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    prefix = f"bench-expression-{uuid.uuid4().hex[:8]}"
    new = [NewTopic(f"{prefix}-{number}", num_partitions=1, replication_factor=1) for number in range(count)]
    for created in admin.create_topics(new, request_timeout=LOAD_SECONDS).values():
        created.result(LOAD_SECONDS)
    return f"{prefix}-[0-9]+"
