"""The first and last offsets of partitions, and the lag of a group, for tests: one connection, Kafka's protocol."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from minibroker.administration import refuse_unless_done
from minibroker.errors import BrokerError
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minibroker.protocol.text import counted

if TYPE_CHECKING:
    from minibroker.administration import Connection

NOT_COMMITTED = -1
FIRST_WITH_TIMES = 1  # ListOffsets
FIRST_WITH_ALL_TOPICS = 2  # OffsetFetch
NO_GROUPS_YET = ErrorCode.NOT_COORDINATOR  # the first group creates __consumer_offsets

TopicPartition = tuple[str, int]


def topic_partitions(connection: Connection) -> dict[str, list[int]]:
    """The partitions of each topic but internal ones, both in order."""
    rows = connection.ask(ApiKey.METADATA, topics=None).topics
    return {
        row.name: sorted(each.partition for each in row.partitions)
        for row in sorted(rows, key=lambda row: str(row.name))
        if not row.is_internal
    }


def offsets_at(connection: Connection, partitions: Collection[TopicPartition], time: int) -> dict[TopicPartition, int]:
    """The offset of each partition at EARLIEST_TIMESTAMP, or at LATEST_TIMESTAMP: the high watermark.

    Raises KafkaError.
    """
    if not partitions:
        return {}
    rows = API_TABLE[ApiKey.LIST_OFFSETS].request.row
    topics = [
        rows("topics")(
            topic=topic,
            partitions=[
                rows("topics.partitions")(partition=number, timestamp=time)
                for name, number in partitions
                if name == topic
            ],
        )
        for topic in {name: None for name, _ in partitions}
    ]
    answer = connection.ask(ApiKey.LIST_OFFSETS, FIRST_WITH_TIMES, replica_id=CONSUMER_REPLICA_ID, topics=topics)
    found = {}
    for topic in answer.topics:
        for row in topic.partitions:
            refuse_unless_done(row.error_code, f"find the offsets of partition {row.partition} of topic {topic.topic}")
            found[topic.topic, row.partition] = row.offset
    return found


def record_counts(connection: Connection) -> dict[str, int]:
    """The offsets between start and end of each topic: its records, unless it is compacted or has transactions."""
    partitions = pairs(topic_partitions(connection))
    starts = offsets_at(connection, partitions, EARLIEST_TIMESTAMP)
    ends = offsets_at(connection, partitions, LATEST_TIMESTAMP)
    counts: dict[str, int] = {}
    for topic, number in partitions:
        counts[topic] = counts.get(topic, 0) + ends[topic, number] - starts[topic, number]
    return counts


def pairs(partitions: dict[str, list[int]]) -> list[TopicPartition]:
    return [(topic, number) for topic, numbers in partitions.items() for number in numbers]


def lag_of(connection: Connection, group: str, topic: str | None) -> int:
    """`Broker.lag`. Raises KafkaError, and BrokerError if nothing is committed and no topic is named."""
    answer = connection.ask(ApiKey.OFFSET_FETCH, FIRST_WITH_ALL_TOPICS, group_id=group, topics=None)
    refuse_unless_done(answer.error_code, f"read the offsets of group {group}", gone=NO_GROUPS_YET)
    committed = {
        (each.name, row.partition): row.committed_offset
        for each in answer.topics
        for row in each.partitions
        if row.committed_offset != NOT_COMMITTED
    }
    present = topic_partitions(connection)
    topics = {name for name, _ in committed} & present.keys() if topic is None else {topic}
    if not topics:
        names = ", ".join(group_ids(connection)) or "none"
        raise BrokerError(f"group {group} has committed nothing; the broker's groups: {names}")
    if topic is not None and topic not in present:
        raise BrokerError(f"the broker has no topic {topic}; it has {', '.join(present) or 'none'}")
    partitions = pairs({name: present[name] for name in topics})
    starts = offsets_at(connection, partitions, EARLIEST_TIMESTAMP)
    ends = offsets_at(connection, partitions, LATEST_TIMESTAMP)
    return sum(ends[each] - committed.get(each, starts[each]) for each in partitions)


def group_ids(connection: Connection) -> list[str]:
    return sorted(row.group_id for row in connection.ask(ApiKey.LIST_GROUPS).groups)


def scene(connection: Connection) -> str:
    """The topics with their sizes and the groups with their lags, for a test that waited in vain. Raises KafkaError."""
    topics = [f"{name} ({counted(count, 'record')})" for name, count in record_counts(connection).items()]
    groups = []
    for group in group_ids(connection):
        try:
            groups.append(f"{group} (lag {lag_of(connection, group, None)})")
        except BrokerError:
            groups.append(f"{group} (nothing committed)")
    return f"topics: {', '.join(topics) or 'none'}\ngroups: {', '.join(groups) or 'none'}"
