"""Asks the leaders of partitions for their first and last offsets, and for the offset of a position.

A time means the first record that is not older; past the last record it means the end, as in Kafka's own tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from minibroker.any_cluster.cluster import (
    DENIALS,
    DENIED,
    ConfigResource,
    ConfigResourceType,
    OffsetSpec,
    TopicPartition,
    error_name,
    errors,
)
from minibroker.any_cluster.guesses import next_step
from minibroker.any_cluster.positions import Position
from minibroker.errors import CommandFailed
from minibroker.protocol.text import counted

TIMEOUT_MS = 10_000


DEFAULT_MAX_MESSAGE_BYTES = 1_000_000


class OffsetRange(NamedTuple):
    earliest: int
    latest: int


Offsets = dict[TopicPartition, int]


def partitions_of(client: Any, topics: Collection[str]) -> list[TopicPartition]:
    """Every partition of those topics, in order. Raises CommandFailed if one does not exist."""
    return sorted(
        TopicPartition(row["name"], partition["partition_index"])
        for row in topic_rows(client, topics)
        for partition in row["partitions"]
    )


def topic_rows(client: Any, topics: Collection[str]) -> list[dict[str, Any]]:
    """The metadata of those topics. Raises CommandFailed if one does not exist, or is denied."""
    rows: list[dict[str, Any]] = client.describe_topics(list(topics))
    for row in rows:
        if row["error_code"] in DENIALS:
            raise CommandFailed(f"topic {row['name']}: {error_name(row['error_code'])}; {DENIED}")
        if row["error_code"] == errors.UnknownTopicOrPartitionError.errno:
            raise CommandFailed(missing_topic(client, row["name"]))
    return rows


def leaders_of(client: Any, topic: str) -> dict[int, int]:
    """The leader of each partition, below 0 for none. Raises CommandFailed if the topic does not exist."""
    (row,) = topic_rows(client, [topic])
    return {each["partition_index"]: each["leader_id"] for each in row["partitions"]}


def chosen(partitions: Sequence[TopicPartition], numbers: Collection[int]) -> list[TopicPartition]:
    """Choose by number, all without numbers. Raises CommandFailed for a number that a topic does not have."""
    counts = Counter(each.topic for each in partitions)
    for topic, count in sorted(counts.items()):
        for number in sorted(numbers):
            if number >= count:
                raise no_such_partition(topic, number, count, "choose one of them")
    return [each for each in partitions if not numbers or each.partition in numbers]


def missing_topic(client: Any, name: str) -> str:
    """The error that a topic does not exist, with the next step."""
    names = [row["name"] for row in client.describe_topics()]
    return f"topic {name} does not exist; {next_step(name, names, '`minibroker topics list` shows the topics')}"


def max_message_bytes_of(client: Any, topic: str) -> int:
    """How large a batch the topic takes; the default of Kafka if the broker does not return its configs."""
    return config_of_topics(client, [topic], "max.message.bytes").get(topic, DEFAULT_MAX_MESSAGE_BYTES)


def config_of_topics(client: Any, topics: Sequence[str], name: str) -> dict[str, int]:
    """A config of each topic whose configs the broker returns: it may lack the right to them."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic, {name: None}) for topic in topics]
    found = client.describe_configs(resources, config_filter="all").get("topic", {}) if topics else {}
    return {topic: int(configs[name]["value"]) for topic, configs in found.items() if name in configs}


def no_such_partition(topic: str, partition: int, partitions: int, advice: str) -> CommandFailed:
    has = f"it has {counted(partitions, 'partition')}, numbered from 0"
    return CommandFailed(f"topic {topic} has no partition {partition}: {has}; {advice}")


def ranges_of(
    client: Any, partitions: Collection[TopicPartition], *, committed_only: bool = False
) -> dict[TopicPartition, OffsetRange]:
    """`committed_only` ends before the first transaction that is still open."""
    earliest = asked(client, partitions, OffsetSpec.EARLIEST)
    latest = latest_of(client, partitions, committed_only=committed_only)
    return {partition: OffsetRange(earliest[partition], latest[partition]) for partition in partitions}


def offsets_at(
    client: Any, position: Position, ranges: dict[TopicPartition, OffsetRange], *, committed_only: bool = False
) -> Offsets:
    """The offset of that position in each partition, never outside it.

    A distance is one of records, with `committed_only` of those that read_committed returns.
    """
    if position.kind == "time":
        found = asked(client, ranges, position.value)
        wanted = {partition: found[partition] for partition in ranges}
    else:
        wanted = {
            at: offset_of(client, position, at, inside, committed_only=committed_only) for at, inside in ranges.items()
        }
    return {partition: clamped(offset, ranges[partition]) for partition, offset in wanted.items()}


def offset_of(client: Any, position: Position, at: TopicPartition, inside: OffsetRange, *, committed_only: bool) -> int:
    """The offset of a position that is not a time."""
    from minibroker.any_cluster.record_distances import Counting

    if position.kind == "offset":
        return position.value
    if position.value == 0 or inside.earliest == inside.latest:
        return inside.earliest if position.kind == "beginning" else inside.latest
    counting = Counting(client, at.topic, at.partition, inside, committed_only=committed_only)
    if position.kind == "beginning":
        return counting.behind_first(position.value)
    return counting.before_last(-position.value)


def clamped(offset: int, inside: OffsetRange) -> int:
    """The nearest offset in the partition; a negative one stands for a time after its last record."""
    return inside.latest if offset < 0 else min(max(offset, inside.earliest), inside.latest)


def latest_of(client: Any, partitions: Collection[TopicPartition], *, committed_only: bool = False) -> Offsets:
    return asked(client, partitions, OffsetSpec.LATEST, committed_only=committed_only)


def asked(client: Any, partitions: Collection[TopicPartition], what: int, *, committed_only: bool = False) -> Offsets:
    if not partitions:
        return {}
    isolation = {"isolation_level": "read_committed"} if committed_only else {}
    found = client.list_partition_offsets(dict.fromkeys(partitions, what), timeout_ms=TIMEOUT_MS, **isolation)
    return {partition: row.offset for partition, row in found.items()}
