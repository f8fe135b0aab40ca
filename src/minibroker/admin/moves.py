"""Moves of replicas and elections of leaders as a cluster answers, and each refusal in one line."""

from __future__ import annotations

from typing import NamedTuple

from minibroker.admin.outcomes import DENIED, Outcome
from minibroker.client.errors import error_name
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.errors import ErrorCode

INVALID_REPLICA_ASSIGNMENT = ErrorCode.INVALID_REPLICA_ASSIGNMENT
CONTROLLER_CHANGED = "the controller has just changed; try again"
ADVICE: dict[int, str] = {
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: (
        "its first replica is not alive or not in sync; see `minibroker topics describe {topic}`"
    ),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is alive; start one of its brokers",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "`minibroker topics moves` lists what moves",
    INVALID_REPLICA_ASSIGNMENT: "name brokers that are alive, each once",
    ErrorCode.NOT_CONTROLLER: CONTROLLER_CHANGED,
    ErrorCode.REQUEST_TIMED_OUT: "it may still be done; see `minibroker topics describe {topic}`",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: DENIED,
}


class Move(NamedTuple):
    """A partition whose replicas move: the replicas before and after, and which are added and removed."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]


def outcome_of(at: TopicPartition, code: int, done: str) -> Outcome:
    name = f"{at.topic}-{at.partition}"
    if code == ErrorCode.ELECTION_NOT_NEEDED:
        return Outcome(name, "unchanged")
    return Outcome(name, "failed", refusal(name, code, at.topic)) if code else Outcome(name, done)


def refusal(name: str, code: int, topic: str = "TOPIC") -> str:
    advice = ADVICE.get(code, "see the log of the controller").format(topic=topic)
    return f"{name}: {error_name(code)}; {advice}"
