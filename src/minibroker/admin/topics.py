"""Topics as a cluster answers, and each refusal in one line, with the next step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from minibroker.admin.configs import UNKNOWN
from minibroker.admin.outcomes import DENIED, Outcome
from minibroker.client.errors import error_name
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.guesses import next_step
from minibroker.protocol.text import without_java_types

NO_ERROR = 0
ALL_CONFIGS = "`minibroker topics describe TOPIC --all-configs` lists all settings"
ADVICE: dict[int, str] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: (
        "choose another name, or see it with `minibroker topics describe {name}`; "
        "`minibroker topics create --if-not-exists` accepts it"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use letters, digits, `.`, `_` and `-`, 249 at most",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the cluster has fewer brokers; lower the replication factor",
    ErrorCode.INVALID_PARTITIONS: "choose another number of partitions",
    ErrorCode.INVALID_CONFIG: f"correct it; {ALL_CONFIGS}",
    ErrorCode.UNKNOWN_SERVER_ERROR: "see the broker's log",
    ErrorCode.OFFSET_OUT_OF_RANGE: "`minibroker offsets {name}` shows where its partitions begin and end",
    ErrorCode.TOPIC_DELETION_DISABLED: "start the broker with delete.topic.enable=true",
    ErrorCode.REQUEST_TIMED_OUT: "it may still complete; check with `minibroker topics list`",
    ErrorCode.NOT_CONTROLLER: "the controller has just changed; try again",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: DENIED,
}
COLLIDES = re.compile(" collides with existing topics?: ")  # in Kafka's message, whose code is that of a malformed name
COLLISION = "choose another name: in names of metrics, `.` and `_` are the same"


class TopicSummary(NamedTuple):
    name: str
    partitions: int
    replication_factor: int
    internal: bool


class TopicSizes(NamedTuple):
    """None where no broker returned it."""

    messages: int | None  # offsets from the first to the last record: a compacted topic has fewer
    size_bytes: int | None  # on disk, of the largest replica of each partition


class Partition(NamedTuple):
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    earliest: int | None
    latest: int | None


class Deletion(NamedTuple):
    """A partition whose records were deleted up to `earliest`."""

    partition: int
    earliest_before: int
    earliest: int
    latest: int


class TopicDescription(NamedTuple):
    name: str
    internal: bool
    partitions: list[Partition]
    configs: dict[str, str | None]  # set on the topic
    defaults: dict[str, str | None]  # all others


def internal_refusal(name: str, advice: str) -> str:
    return f"topic {name} is internal, with the state of groups or transactions; {advice}"


def outcome_of(row: Any, done: str, harmless: Mapping[int, str]) -> Outcome:
    name, code = row.name, row.error_code
    if code == NO_ERROR:
        return Outcome(name, done)
    if code in harmless:
        return Outcome(name, harmless[code])
    return Outcome(name, "failed", refusal(name, code, row.error_message))


def refusal_of_deletion(name: str, code: int) -> str:
    """Why records were not deleted."""
    if code == ErrorCode.POLICY_VIOLATION:
        return (
            f"topic {name} is compacted: a record goes when a newer one has its key; "
            f"`minibroker configs set --topic {name} cleanup.policy=compact,delete` allows more"
        )
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return internal_refusal(name, "Kafka deletes none of its records")
    return refusal(name, code)


def refusal(name: str, code: int, message: str | None = None) -> str:
    """A topic's error in one line: the broker's message, and the next step."""
    if message:
        reason = without_java_types(" ".join(message.split()).rstrip("."))
    else:
        reason = f"topic {name} does not exist" if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error_name(code)
    subject = "" if name in reason else f"topic {name}: "
    advice = COLLISION if COLLIDES.search(reason) else ADVICE.get(code)
    if (unknown := UNKNOWN.search(reason)) is not None:
        from minibroker.storage.config import TOPIC_CONFIGS

        advice = next_step(unknown[1], TOPIC_CONFIGS, ALL_CONFIGS)
    return f"{subject}{reason}" + (f"; {advice.format(name=name)}" if advice else "")
