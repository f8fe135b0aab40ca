"""The conversation held with two brokers: their equal settings, clean topics, the first difference."""

from __future__ import annotations

import time
from typing import NamedTuple

from minibroker.conformance.answers import Plain, differences
from minibroker.conformance.conversation import SocketPeer
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
COORDINATOR_POLL_SECONDS = 0.1
CLEANING_MS = 100  # without time Apache Kafka 3.9 and later delete nothing
LONGEST_DELETABLE = 200  # Apache Kafka 2.0.1 halts when it deletes a topic of a longer name (KAFKA-4893)


class Difference(NamedTuple):
    """The first step that was answered differently, and how."""

    number: int
    step: Step
    fields: list[str]

    def __str__(self) -> str:
        return "\n".join([f"step {self.number}: {self.step!r}", *(f"    {each}" for each in self.fields)])


def first_difference(
    script: Script, kafkas: list[Plain], ours: list[Plain], *, strict: bool = True
) -> Difference | None:
    """The first answer that differs. Raises ValueError if there are not as many, unless `strict` is off."""
    answered = (step for step in script if step.kind != "drop")
    for number, (step, theirs, mine) in enumerate(zip(answered, kafkas, ours, strict=strict)):
        found = differences(theirs, mine)
        if found:
            return Difference(number, step, found)
    return None


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


def wait_for_coordinator(peer: SocketPeer) -> None:
    """Apache Kafka makes its topic of groups some time after it is first asked for, and then loads it."""
    ready: Script = [call("FindCoordinator", 0, key="g"), call("OffsetFetch", 2, group_id="g", topics=[])]
    while any(answer["error_code"] for answer in peer.hold(ready, "")):
        time.sleep(COORDINATOR_POLL_SECONDS)
