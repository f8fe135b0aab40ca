"""Settings of brokers that are compared, and the end of a conversation: its topics are deleted."""

from __future__ import annotations

from minibroker.conformance.steps import Script, Step, call

# What both are started with: nothing may happen by itself while they are compared.
SETTINGS: dict[str, str | int] = {
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 3_600_000,
    "log.cleaner.enable": "false",
    "max.incremental.fetch.session.cache.slots": 100_000,
    "log.segment.delete.delay.ms": 100,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
}
CLEANING_MS = 100  # without time Apache Kafka 3.9 and later delete nothing
LONGEST_DELETABLE = 200  # Apache Kafka 2.0.1 halts when it deletes a topic of a longer name (KAFKA-4893)


def cleaning(script: Script) -> Step:
    """Delete every topic the script may have created; that some do not exist is no matter."""
    names = {
        topic[0]
        for step in script
        if step.api == "CreateTopics" and step.raw is None
        for topic in step.body["topics"]
        if topic[0].startswith("@") and len(topic[0]) <= LONGEST_DELETABLE
    }
    return call("DeleteTopics", 1, topic_names=sorted(names), timeout_ms=CLEANING_MS)
