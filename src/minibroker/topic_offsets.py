"""The first and last offsets of partitions, and the lag of a group, for tests."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from minibroker.any_cluster.described_groups import group_ids
from minibroker.client.coordinators import at_coordinators, committed_offsets
from minibroker.client.offsets import Offsets, offsets_at
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import BrokerError
from minibroker.protocol.message_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minibroker.protocol.text import counted

if TYPE_CHECKING:
    from minibroker.client.client import Client


def topic_partitions(client: Client) -> dict[str, list[int]]:
    """The partitions of each topic but internal ones, both in order."""
    return {
        row.name: sorted(each.partition for each in row.partitions)
        for row in sorted(client.metadata().topics, key=lambda row: str(row.name))
        if not row.is_internal
    }


def ranges_of(client: Client, partitions: Collection[TopicPartition]) -> tuple[Offsets, Offsets]:
    """The first offsets of partitions, and their high watermarks. Raises KafkaError, and ClientError."""
    (starts, ends), lost = offsets_at(client, partitions, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    for error in lost.values():
        raise error
    return starts, ends


def record_counts(client: Client) -> dict[str, int]:
    """The offsets between start and end of each topic: its records, unless it is compacted or has transactions."""
    partitions = pairs(topic_partitions(client))
    starts, ends = ranges_of(client, partitions)
    counts: dict[str, int] = {}
    for at in partitions:
        counts[at.topic] = counts.get(at.topic, 0) + ends[at] - starts[at]
    return counts


def pairs(partitions: dict[str, list[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]


def lag_of(client: Client, group: str, topic: str | None) -> int:
    """`Broker.lag`. Raises KafkaError, and BrokerError if nothing is committed and no topic is named."""
    found, lost = at_coordinators(client, [group], lambda led: committed_offsets(client, led))
    for error in lost.values():
        raise error
    committed = found[group]
    present = topic_partitions(client)
    topics = {at.topic for at in committed} & present.keys() if topic is None else {topic}
    if not topics:
        names = ", ".join(group_ids(client)) or "none"
        raise BrokerError(f"group {group} has committed nothing; the broker's groups: {names}")
    if topic is not None and topic not in present:
        raise BrokerError(f"the broker has no topic {topic}; it has {', '.join(present) or 'none'}")
    partitions = pairs({name: present[name] for name in topics})
    starts, ends = ranges_of(client, partitions)
    return sum(ends[each] - committed.get(each, starts[each]) for each in partitions)


def scene(client: Client) -> str:
    """The topics with their sizes and the groups with their lags, for a test that waited in vain. Raises KafkaError."""
    topics = [f"{name} ({counted(count, 'record')})" for name, count in record_counts(client).items()]
    groups = []
    for group in group_ids(client):
        try:
            groups.append(f"{group} (lag {lag_of(client, group, None)})")
        except BrokerError:
            groups.append(f"{group} (nothing committed)")
    return f"topics: {', '.join(topics) or 'none'}\ngroups: {', '.join(groups) or 'none'}"
