"""Asks the leaders of partitions for their first and last offsets, and for the offset of a position.

A partition whose leader does not answer, or that has none, is left out of each answer, and noted as a shortfall. A time
means the first record that is not older; past the last record it means the end, as in Kafka's own tools.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from minibroker import patience
from minibroker.any_cluster.cluster import (
    DENIALS,
    DENIED,
    ConfigResource,
    ConfigResourceType,
    ListOffsetsRequest,
    NoAnswer,
    OffsetSpec,
    TopicPartition,
    answer_to,
    both,
    broker_ids,
    error_name,
    errors,
    lacks_answer,
    of_each,
)
from minibroker.any_cluster.positions import Position
from minibroker.any_cluster.shortfalls import lacks
from minibroker.errors import CommandFailed
from minibroker.protocol.guesses import next_step
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID
from minibroker.protocol.text import counted

ELECTION_SECONDS = 3.0  # until a partition whose leader moves is left out
RETRY_SECONDS = 0.1
NEWEST_LIST_OFFSETS = 5
PARTITIONS_A_REQUEST = 500
NOBODY = -1
MOVING = frozenset(
    {
        errors.NotLeaderForPartitionError.errno,
        errors.ReplicaNotAvailableError.errno,
        errors.FencedLeaderEpochError.errno,
        errors.UnknownLeaderEpochError.errno,
        errors.OffsetNotAvailableError.errno,
    }
)
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


def configs_of_topics(client: Any, topics: Sequence[str], *names: str) -> dict[str, dict[str, str]]:
    """These configs of each topic whose configs the broker returns: this client may lack the right to them."""
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys(names)) for topic in topics]
    found = client.describe_configs(resources, config_filter="all").get("topic", {}) if topics else {}
    return {
        topic: {name: str(configs[name]["value"]) for name in names if name in configs}
        for topic, configs in found.items()
    }


def no_such_partition(topic: str, partition: int, partitions: int, advice: str) -> CommandFailed:
    has = f"it has {counted(partitions, 'partition')}, numbered from 0"
    return CommandFailed(f"topic {topic} has no partition {partition}: {has}; {advice}")


def ranges_of(
    client: Any, partitions: Collection[TopicPartition], *, committed_only: bool = False
) -> dict[TopicPartition, OffsetRange]:
    """`committed_only` ends before the first transaction that is still open."""
    earliest, latest = ends_of(client, partitions, committed_only=committed_only)
    return {at: OffsetRange(earliest[at], latest[at]) for at in partitions if at in earliest and at in latest}


def ends_of(
    client: Any, partitions: Collection[TopicPartition], *, committed_only: bool = False
) -> tuple[Offsets, Offsets]:
    """The first offset of each partition whose leader answers, and the next one."""
    return both(
        lambda: asked(client, partitions, OffsetSpec.EARLIEST),
        lambda: latest_of(client, partitions, committed_only=committed_only),
    )


def offsets_at(
    client: Any, position: Position, ranges: dict[TopicPartition, OffsetRange], *, committed_only: bool = False
) -> Offsets:
    """The offset of that position in each partition, never outside it.

    A distance is one of records, with `committed_only` of those that read_committed returns.
    """
    if position.kind == "time":
        found = asked(client, ranges, position.value)
        wanted = {partition: found[partition] for partition in ranges if partition in found}
    else:
        wanted = {}
        for at, inside in ranges.items():
            try:
                wanted[at] = offset_of(client, position, at, inside, committed_only=committed_only)
            except NoAnswer as error:
                lacks_answer(error, named([at]))
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


def asked(
    client: Any,
    partitions: Collection[TopicPartition],
    timestamp: int,
    *,
    committed_only: bool = False,
) -> Offsets:
    """The offset of that time, or of what `OffsetSpec` names, in each partition whose leader answers."""
    found: Offsets = {}
    left = dict.fromkeys(partitions, 0)  # and the error code of each
    deadline = min(time.monotonic() + ELECTION_SECONDS, patience.until())
    while left:
        led = by_leader(client, left)

        def ask_one(leader: int, led: Mapping[int, Sequence[TopicPartition]] = led) -> dict[TopicPartition, Any]:
            return listed(client, leader, led[leader], timestamp, committed_only=committed_only)

        try:
            answers = of_each(client, led, ask_one, "what it leads")
        except NoAnswer as error:
            lacks_answer(error, "what it leads")
            break
        rows = {at: row for answer in answers.values() for at, row in answer.items()}
        found |= {at: row.offset for at, row in rows.items() if row.error_code == 0}
        left = {at: row.error_code for at, row in rows.items() if row.error_code != 0}
        is_over = time.monotonic() > deadline
        for code in set(left.values()):
            lost = [at for at, why in left.items() if why == code]
            if is_over or code not in MOVING:
                lacks(
                    f"{named(lost)}: {error_name(code)}; {DENIED if code in DENIALS else 'see the log of its leader'}"
                )
        left = {} if is_over else {at: code for at, code in left.items() if code in MOVING}
        if left:
            time.sleep(RETRY_SECONDS)
    return found


def by_leader(client: Any, partitions: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """The partitions of each leader; those without one are noted."""
    rows = client.describe_topics(sorted({at.topic for at in partitions})) if partitions else []
    leaders = {
        TopicPartition(row["name"], each["partition_index"]): each["leader_id"]
        for row in rows
        for each in row["partitions"]
    }
    led: dict[int, list[TopicPartition]] = {}
    for at in sorted(partitions):
        led.setdefault(max(NOBODY, leaders.get(at, NOBODY)), []).append(at)
    leaderless = led.pop(NOBODY, [])
    if leaderless:
        lacks(f"without a leader: {named(leaderless)}; check that the brokers of their replicas run")
    return led


def listed(
    client: Any,
    broker: int,
    partitions: Sequence[TopicPartition],
    timestamp: int,
    *,
    committed_only: bool = False,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> dict[TopicPartition, Any]:
    """The broker's rows of ListOffsets."""
    topic = ListOffsetsRequest.ListOffsetsTopic
    found: dict[TopicPartition, Any] = {}
    for start in range(0, len(partitions), PARTITIONS_A_REQUEST):
        numbers: dict[str, list[int]] = {}
        for at in partitions[start : start + PARTITIONS_A_REQUEST]:
            numbers.setdefault(at.topic, []).append(at.partition)
        request = ListOffsetsRequest(
            replica_id=replica_id,
            isolation_level=int(committed_only),
            topics=[
                topic(
                    name=name,
                    partitions=[
                        topic.ListOffsetsPartition(partition_index=each, current_leader_epoch=-1, timestamp=timestamp)
                        for each in of_topic
                    ],
                )
                for name, of_topic in numbers.items()
            ],
            max_version=NEWEST_LIST_OFFSETS,
        )
        answer = answer_to(client, request, broker=broker)
        found |= {
            TopicPartition(row.name, each.partition_index): each for row in answer.topics for each in row.partitions
        }
    return found


def bytes_of(client: Any, partitions: Sequence[TopicPartition]) -> Offsets:
    """Bytes on disk of the largest replica of each; empty on a broker before Kafka 1.0, or where ACLs deny it."""
    found: Offsets = {}
    for start in range(0, len(partitions), PARTITIONS_A_REQUEST):
        asked: dict[str, list[int]] = {}
        for each in partitions[start : start + PARTITIONS_A_REQUEST]:
            asked.setdefault(each.topic, []).append(each.partition)

        def ask(broker: int, asked: dict[str, list[int]] = asked) -> Any:
            return client.describe_log_dirs(asked, brokers=[broker])

        try:
            answers = of_each(client, broker_ids(client), ask, "what it has on disk")
        except NoAnswer as error:
            lacks_answer(error, "what it has on disk")
            return {}
        except (errors.UnsupportedVersionError, errors.BrokerResponseError):
            return {}
        for broker in (row for rows in answers.values() for row in rows):
            for directory in broker["log_dirs"]:
                for topic in directory["topics"]:
                    for row in topic["partitions"]:
                        at = TopicPartition(topic["name"], row["partition_index"])
                        found[at] = max(found.get(at, 0), row["partition_size"])
    return found


def named(partitions: Collection[tuple[str, int]], *, at_most: int = 5) -> str:
    """Partitions such as `orders-0, orders-1 and 7 more`."""
    more = len(partitions) - at_most
    shown = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)[:at_most])
    return shown + (f" and {more} more" if more > 0 else "")
