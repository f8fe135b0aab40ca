"""The requests of the `topics` commands; `admin/` has what the answers mean.

A broker's refusal becomes one line with the next step. Any other failure is a CommandFailed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from minibroker.admin.configs import Subject, in_ms, source_of
from minibroker.admin.outcomes import Outcome, in_order
from minibroker.admin.partitions import chosen
from minibroker.admin.positions import Position
from minibroker.admin.topics import (
    NO_ERROR,
    Deletion,
    Partition,
    TopicDescription,
    TopicSizes,
    TopicSummary,
    internal_refusal,
    outcome_of,
    refusal,
    refusal_of_deletion,
)
from minibroker.any_cluster.acl_admin import hidden_unless
from minibroker.any_cluster.cluster import both, lacks_answer, of_each, topics_of
from minibroker.any_cluster.config_admin import configs_of
from minibroker.any_cluster.partition_offsets import (
    by_leader,
    bytes_of,
    ends_of,
    missing_topic,
    partitions_of,
    ranges_of,
)
from minibroker.any_cluster.record_distances import offsets_at
from minibroker.client.client import Client, Question
from minibroker.client.errors import NoAnswer
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID

REQUEST_TIMEOUT_MS = 25_000  # of the broker; the client itself waits a little longer
SET_ON_TOPIC = "DYNAMIC_TOPIC_CONFIG"
NOTHING_HARMLESS: Mapping[int, str] = {}


def topics(client: Client) -> list[TopicSummary]:
    """All topics by name."""
    topics = sorted(
        TopicSummary(
            row.name,
            len(row.partitions),
            max((len(partition.replica_nodes) for partition in row.partitions), default=0),
            row.is_internal,
        )
        for row in topics_of(client)
    )
    return hidden_unless(topics, client, "topics")


def sizes(client: Client, topics: Iterable[TopicSummary]) -> dict[str, TopicSizes]:
    """The messages and bytes of these topics by name."""
    partitions = [TopicPartition(each.name, number) for each in topics for number in range(each.partitions)]
    ranges, sizes = both(lambda: ranges_of(client, partitions), lambda: bytes_of(client, partitions))
    found: dict[str, TopicSizes] = {}
    for at in partitions:
        before = found.get(at.topic, TopicSizes(0, 0))
        inside, size = ranges.get(at), sizes.get(at)
        found[at.topic] = TopicSizes(
            None if inside is None or before.messages is None else before.messages + inside.latest - inside.earliest,
            None if size is None or before.size_bytes is None else before.size_bytes + size,
        )
    return found


def create(
    client: Client,
    names: Sequence[str],
    *,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    may_exist: bool,
) -> list[Outcome]:
    rows = [(name, partitions, replication_factor, (), list(configs.items())) for name in dict.fromkeys(names)]
    answer = client.at_controller(ApiKey.CREATE_TOPICS, topics=rows, timeout_ms=REQUEST_TIMEOUT_MS)
    harmless: dict[int, str] = {ErrorCode.TOPIC_ALREADY_EXISTS: "exists"} if may_exist else {}
    outcomes = in_order(names, (outcome_of(row, "created", harmless) for row in answer.topics))
    return [each._replace(error=each.error + in_ms(configs)) if each.error else each for each in outcomes]


def grow(client: Client, names: Sequence[str], *, partitions: int, with_internal: bool) -> list[Outcome]:
    """Raise topics to this number of partitions; existing records stay in theirs.

    An internal topic is refused unless `with_internal`: groups and transactional ids would move to other
    partitions, away from their state.
    """
    allowed, refused = without_internal(client, names, "grow", with_internal=with_internal)
    if not allowed:
        return refused
    rows = [(name, partitions, None) for name in allowed]
    answer = client.at_controller(
        ApiKey.CREATE_PARTITIONS, topics=rows, timeout_ms=REQUEST_TIMEOUT_MS, validate_only=False
    )
    return in_order(names, (outcome(client, row, "grown") for row in answer.results)) + refused


def delete(client: Client, names: Sequence[str], *, may_be_absent: bool, with_internal: bool) -> list[Outcome]:
    """An internal topic is refused unless `with_internal`: the state of all groups or transactions goes with it."""
    allowed, refused = without_internal(client, names, "delete", with_internal=with_internal)
    if not allowed:
        return refused
    rows = [(name, ZERO_UUID) for name in allowed]
    answer = client.at_controller(ApiKey.DELETE_TOPICS, topics=rows, topic_names=allowed, timeout_ms=REQUEST_TIMEOUT_MS)
    harmless: dict[int, str] = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "absent"} if may_be_absent else {}
    return in_order(names, (outcome(client, row, "deleted", harmless) for row in answer.topics)) + refused


def outcome(client: Client, row: Any, done: str, harmless: Mapping[int, str] = NOTHING_HARMLESS) -> Outcome:
    """The outcome for a topic that may be missing."""
    outcome = outcome_of(row, done, harmless)
    if outcome.error is not None and row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return outcome._replace(error=missing_topic(client, outcome.name))
    return outcome


def without_internal(
    client: Client, names: Sequence[str], verb: str, *, with_internal: bool
) -> tuple[list[str], list[Outcome]]:
    """The names, each once, and the refusals of internal ones."""
    internal = set() if with_internal else internal_among(client, names)
    advice = f"--internal allows to {verb} it all the same"
    refused = [Outcome(name, "failed", internal_refusal(name, advice)) for name in sorted(internal)]
    return [name for name in dict.fromkeys(names) if name not in internal], refused


def delete_records(client: Client, name: str, numbers: Collection[int], position: Position) -> list[Deletion]:
    """Delete the records before a position, of all partitions without numbers. Raises CommandFailed."""
    plan = plan_deletion(client, name, numbers, position)
    earliest = delete_before(client, name, {each.partition: each.earliest for each in plan})
    return [each._replace(earliest=earliest[each.partition]) for each in plan]


def plan_deletion(client: Client, name: str, numbers: Collection[int], position: Position) -> list[Deletion]:
    """The new start of each partition if the records before a position are deleted. Raises CommandFailed."""
    ranges = ranges_of(client, chosen(partitions_of(client, [name]), numbers))
    offsets = offsets_at(client, position, ranges)
    return [
        Deletion(each.partition, inside.earliest, offsets[each], inside.latest)
        for each, inside in ranges.items()
        if each in offsets
    ]


def delete_before(client: Client, name: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """Delete the records before an offset of each partition; return where each begins now. Raises CommandFailed."""
    led = by_leader(client, (TopicPartition(name, partition) for partition in offsets))
    questions = {
        leader: Question(
            ApiKey.DELETE_RECORDS,
            {
                "topics": [(name, [(each.partition, offsets[each.partition]) for each in partitions])],
                "timeout_ms": REQUEST_TIMEOUT_MS,
            },
            leader,
        )
        for leader, partitions in led.items()
    }
    answers = of_each(client, questions, "what it leads").values()
    rows = [row for answer in answers for topic in answer.topics for row in topic.partitions]
    for row in rows:
        if row.error_code:
            raise CommandFailed(refusal_of_deletion(name, row.error_code))
    return {row.partition: row.low_watermark for row in rows}


def describe(client: Client, name: str) -> TopicDescription:
    """Raises CommandFailed if the topic does not exist."""
    (topic,) = topics_of(client, [name])
    # A topic without a leader still has partitions to show.
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandFailed(missing_topic(client, name))
    if topic.error_code not in (NO_ERROR, ErrorCode.LEADER_NOT_AVAILABLE):
        raise CommandFailed(refusal(name, topic.error_code))
    rows = sorted(topic.partitions, key=lambda row: int(row.partition))
    led = [TopicPartition(name, row.partition) for row in rows if row.leader_id >= 0]
    (earliest, latest), configs = both(lambda: ends_of(client, led), lambda: shown_configs(client, name))
    return TopicDescription(
        name,
        topic.is_internal,
        [
            Partition(
                row.partition,
                None if row.leader_id < 0 else row.leader_id,
                list(row.replica_nodes),
                list(row.isr_nodes),
                earliest.get(TopicPartition(name, row.partition)),
                latest.get(TopicPartition(name, row.partition)),
            )
            for row in rows
        ],
        {row.name: row.value for row in configs if source_of(row) == SET_ON_TOPIC},
        {row.name: row.value for row in configs if source_of(row) != SET_ON_TOPIC},
    )


def shown_configs(client: Client, name: str) -> list[Any]:
    """The rows of all configs; none where the broker does not answer in time, which is noted."""
    try:
        return configs_of(client, Subject("topic", name))
    except NoAnswer as error:
        lacks_answer(error, f"the configs of {name}", "are")
        return []


def internal_among(client: Client, names: Collection[str]) -> set[str]:
    """Return Kafka's internal topics among these."""
    return {row.name for row in topics_of(client, names) if row.is_internal}
