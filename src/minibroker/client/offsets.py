"""Asks the leaders of partitions for offsets, all at once, and again while leaders move."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from minibroker.client.client import RETRY_SECONDS, Client, Question
from minibroker.client.topic_partition import TopicPartition, by_topic
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError, known_error
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, NO_LEADER

ELECTION_SECONDS = 3.0  # until a partition whose leader moves is given up
AT_ONCE = 500  # partitions in a request
NOT_COMMITTED = -1
MOVING = frozenset(
    {
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
Offsets = dict[TopicPartition, int]


class Found(NamedTuple):
    """For each time the offsets of partitions, and why others have none."""

    offsets: list[Offsets]
    lost: dict[TopicPartition, Exception]


def offsets_at(
    client: Client,
    partitions: Collection[TopicPartition],
    *times: int,
    committed_only: bool = False,
    until: float = float("inf"),
) -> Found:
    """The offset of each partition at each of these times, which are in ms since 1970, or as EARLIEST_TIMESTAMP."""
    found = Found([{} for _ in times], {})
    deadline = min(time.monotonic() + ELECTION_SECONDS, until)
    left = set(partitions)
    while left:
        led = client.led(left)
        found.lost.update(dict.fromkeys(led.pop(NO_LEADER, ()), KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)))
        asked = {
            (leader, start, number): listing(leader, of_leader[start : start + AT_ONCE], at, committed_only)
            for leader, of_leader in led.items()
            for start in range(0, len(of_leader), AT_ONCE)
            for number, at in enumerate(times)
        }
        left, is_over = set(), time.monotonic() > deadline
        for (leader, start, number), answer in client.answers(asked).items():
            if isinstance(answer, Exception):
                found.lost.update(dict.fromkeys(led[leader][start : start + AT_ONCE], answer))
                continue
            for topic in answer.topics:
                for row in topic.partitions:
                    at = TopicPartition(topic.topic, row.partition)
                    if row.error_code == ErrorCode.NONE:
                        found.offsets[number][at] = row.offset
                    elif row.error_code in MOVING and not is_over:
                        left.add(at)
                    else:
                        found.lost[at] = KafkaError(known_error(row.error_code))
        if left:
            time.sleep(RETRY_SECONDS)
    return found


def listing(
    broker: int,
    partitions: Sequence[TopicPartition],
    timestamp: int,
    committed_only: bool = False,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> Question:
    """ListOffsets of these partitions."""
    row = ASKED_TABLE[ApiKey.LIST_OFFSETS].request.row
    topics = [
        row("topics")(topic, [row("topics.partitions")(partition=number, timestamp=timestamp) for number in numbers])
        for topic, numbers in by_topic(partitions).items()
    ]
    body = {"replica_id": replica_id, "isolation_level": int(committed_only), "topics": topics}
    return Question(ApiKey.LIST_OFFSETS, body, broker)
