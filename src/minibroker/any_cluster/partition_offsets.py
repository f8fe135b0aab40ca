"""Asks the leaders of partitions for their first and last offsets, and for those of times.

A partition whose leader does not answer, or that has none, is left out of each answer, and noted as a shortfall. A time
means the first record that is not older; past the last record it means the end, as in Kafka's own tools.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from minibroker import patience
from minibroker.admin.outcomes import DENIED
from minibroker.admin.partitions import OffsetRange, named
from minibroker.any_cluster.cluster import lacks_answer, of_each, topics_of
from minibroker.any_cluster.shortfalls import lacks
from minibroker.client.client import Client, Question
from minibroker.client.errors import DENIALS, NoAnswer, Unsupported, error_name
from minibroker.client.offsets import Offsets
from minibroker.client.offsets import offsets_at as offsets_at_times
from minibroker.client.topic_partition import TopicPartition, by_topic
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.guesses import next_step
from minibroker.protocol.message_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_LEADER
from minibroker.protocol.resources import ResourceType

PARTITIONS_A_REQUEST = 500


def partitions_of(client: Client, topics: Collection[str]) -> list[TopicPartition]:
    """Every partition of those topics, in order. Raises CommandFailed if one does not exist."""
    return sorted(
        TopicPartition(row.name, partition.partition)
        for row in topic_rows(client, topics)
        for partition in row.partitions
    )


def topic_rows(client: Client, topics: Collection[str]) -> list[Any]:
    """The metadata of those topics. Raises CommandFailed if one does not exist, or is denied."""
    rows = topics_of(client, topics)
    for row in rows:
        if row.error_code in DENIALS:
            raise CommandFailed(f"topic {row.name}: {error_name(row.error_code)}; {DENIED}")
        if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommandFailed(missing_topic(client, row.name))
    return rows


def leaders_of(client: Client, topic: str) -> dict[int, int]:
    """The leader of each partition, below 0 for none. Raises CommandFailed if the topic does not exist."""
    (row,) = topic_rows(client, [topic])
    return {each.partition: each.leader_id for each in row.partitions}


def missing_topic(client: Client, name: str) -> str:
    """The error that a topic does not exist, with the next step."""
    names = [row.name for row in topics_of(client)]
    return f"topic {name} does not exist; {next_step(name, names, '`minibroker topics list` shows the topics')}"


def configs_of_topics(client: Client, topics: Sequence[str], *names: str) -> dict[str, dict[str, str]]:
    """These configs of each topic whose configs the broker returns: this client may lack the right to them."""
    rows = [(ResourceType.TOPIC, topic, list(names)) for topic in topics]
    results = client.ask(ApiKey.DESCRIBE_CONFIGS, resources=rows).results if rows else ()
    return {
        row.resource_name: {each.name: str(each.value) for each in row.configs if each.name in names}
        for row in results
        if not row.error_code
    }


def ranges_of(
    client: Client, partitions: Collection[TopicPartition], *, committed_only: bool = False
) -> dict[TopicPartition, OffsetRange]:
    """`committed_only` ends before the first transaction that is still open."""
    earliest, latest = ends_of(client, partitions, committed_only=committed_only)
    return {at: OffsetRange(earliest[at], latest[at]) for at in partitions if at in earliest and at in latest}


def ends_of(
    client: Client, partitions: Collection[TopicPartition], *, committed_only: bool = False
) -> tuple[Offsets, Offsets]:
    """The first offset of each partition whose leader answers, and the next one."""
    earliest, latest = found_at(client, partitions, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, committed_only=committed_only)
    return earliest, latest


def latest_of(client: Client, partitions: Collection[TopicPartition], *, committed_only: bool = False) -> Offsets:
    return asked(client, partitions, LATEST_TIMESTAMP, committed_only=committed_only)


def asked(
    client: Client, partitions: Collection[TopicPartition], timestamp: int, *, committed_only: bool = False
) -> Offsets:
    """The offset of that time, or of EARLIEST_TIMESTAMP and the like, in each partition whose leader answers."""
    (found,) = found_at(client, partitions, timestamp, committed_only=committed_only)
    return found


def found_at(
    client: Client, partitions: Collection[TopicPartition], *times: int, committed_only: bool = False
) -> list[Offsets]:
    """The offsets of each of these times, all asked at once; partitions without one are noted."""
    try:
        found, lost = offsets_at_times(
            client, partitions, *times, committed_only=committed_only, until=patience.until()
        )
    except NoAnswer as error:  # to the question who leads
        lacks_answer(error, f"the offsets of {named(partitions)}", "are")
        return [{} for _ in times]
    note_lost(lost)
    return found


def note_lost(lost: Mapping[TopicPartition, Exception]) -> None:
    """Note which partitions have no offset, and why. Raises an error that is none of a broker."""
    by_code: dict[int, list[TopicPartition]] = {}
    for at, error in lost.items():
        if isinstance(error, KafkaError):
            by_code.setdefault(error.code, []).append(at)
        elif isinstance(error, NoAnswer):
            lacks_answer(error, "what it leads")
        else:
            raise error
    note_leaderless(by_code.pop(ErrorCode.LEADER_NOT_AVAILABLE, ()))
    for code, partitions in by_code.items():
        lacks(f"{named(partitions)}: {error_name(code)}; {DENIED if code in DENIALS else 'see the log of its leader'}")


def note_leaderless(partitions: Collection[TopicPartition]) -> None:
    if partitions:
        lacks(f"without a leader: {named(partitions)}; check that the brokers of their replicas run")


def by_leader(client: Client, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
    """The partitions of each leader; those without one are noted."""
    led = client.led(partitions)
    note_leaderless(led.pop(NO_LEADER, ()))
    return led


def bytes_of(client: Client, partitions: Sequence[TopicPartition]) -> Offsets:
    """Bytes on disk of the largest replica of each; empty on a broker before Kafka 1.0, or where ACLs deny it."""
    questions = {
        (broker, start): Question(
            ApiKey.DESCRIBE_LOG_DIRS,
            {"topics": list(by_topic(partitions[start : start + PARTITIONS_A_REQUEST]).items())},
            broker,
        )
        for start in range(0, len(partitions), PARTITIONS_A_REQUEST)
        for broker in client.brokers
    }
    found: Offsets = {}
    try:
        answers = of_each(client, questions, "what it has on disk")
    except NoAnswer as error:
        lacks_answer(error, "what it has on disk")
        return {}
    except Unsupported:
        return {}
    for directory in (row for answer in answers.values() for row in answer.results):
        for topic in directory.topics:
            for row in topic.partitions:
                at = TopicPartition(topic.name, row.partition)
                found[at] = max(found.get(at, 0), row.size_bytes)
    return found
