"""The requests of the `groups` commands; `admin/` has what the answers mean.

Its coordinator describes a group and returns its committed offsets; its lag is the distance from these to the ends of
the partitions, or what the coordinator of a share group counts. A refusal becomes one line with the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minibroker.admin.group_offsets import (
    GroupDescription,
    GroupPartition,
    GroupSummary,
    Move,
    Scope,
    Start,
    lag_of,
    move_to,
)
from minibroker.admin.groups import SHARE, Group, refusal
from minibroker.admin.outcomes import Outcome, in_order
from minibroker.admin.positions import Position
from minibroker.any_cluster.cluster import at_coordinators, both, lacks_answer, of_each, topics_of
from minibroker.any_cluster.described_groups import described, group_ids, groups_listed
from minibroker.any_cluster.partition_offsets import latest_of, partitions_of, ranges_of
from minibroker.any_cluster.record_distances import offsets_at
from minibroker.client.client import Client, Question
from minibroker.client.coordinators import by_coordinator, committed_offsets, when_there
from minibroker.client.topic_partition import TopicPartition, by_topic
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.guesses import next_step

NO_OFFSETS = "has no committed offsets"
GROUPS_ARE_LISTED = "`minibroker groups list` shows the groups"
MISSING_SHOWN = 5  # partitions


def groups(client: Client) -> list[GroupSummary]:
    """All groups by name."""
    listed = groups_listed(client)
    return [
        GroupSummary(
            each.group,
            each.state,
            None if each.members is None else len(each.members),
            each.type,
            each.protocol_type,
        )
        for each in described(client, list(listed), listed).values()
    ]


def describe(client: Client, group: str) -> GroupDescription:
    """Raises CommandFailed if the group does not exist."""
    found = description_of(client, group)
    if found is None:
        raise CommandFailed(missing_group(client, group))
    return found


def description_of(client: Client, group: str) -> GroupDescription | None:
    """None if the group does not exist."""
    found, committed = group_and_offsets(client, group)
    if not found.exists and not committed:
        return None
    readers: dict[TopicPartition, set[str]] = {}
    for member in found.members or ():
        for at in member.partitions:
            readers.setdefault(at, set()).add(member.client_id)
    ends = ends_of(client, {*committed, *readers})
    return GroupDescription(
        found,
        [
            GroupPartition(
                at.topic,
                at.partition,
                committed.get(at),
                ends.get(at),
                lag_of(committed.get(at), ends.get(at)),
                ", ".join(sorted(readers[at])) if at in readers else None,
            )
            for at in sorted({*committed, *readers})
        ],
    )


def plan_reset(client: Client, group: str, scope: Scope, position: Position) -> list[Move]:
    """The moves to a position: of the topics named, or of all with committed offsets. Raises CommandFailed."""
    _, committed = group_and_offsets(client, group)
    if not scope.topics and not committed:
        raise CommandFailed(f"{missing_group(client, group, NO_OFFSETS)}; to reset it all the same, name its topics")
    there = partitions_of(client, scope.topics) if scope.topics else existing(client, committed)
    partitions = scope.of(there, f"group {group}")
    after = offsets_at(client, position, ranges_of(client, partitions))
    return [Move(each.topic, each.partition, committed.get(each), after[each]) for each in partitions if each in after]


def plan_as(client: Client, group: str, scope: Scope, offsets: Mapping[TopicPartition, int], source: str) -> list[Move]:
    """The moves to these offsets, or the nearest in each partition.

    Raises CommandFailed if there are none, or if a partition does not exist.
    """
    _, committed = group_and_offsets(client, group)
    if not offsets:
        raise CommandFailed(f"{source} has no offsets to take over; nothing was changed")
    partitions = scope.of(sorted(offsets), source)
    missing = sorted(set(partitions) - set(existing(client, offsets)))
    if missing:
        names = ", ".join(f"{each.topic} {each.partition}" for each in missing[:MISSING_SHOWN])
        more = f" and {len(missing) - MISSING_SHOWN} more" if len(missing) > MISSING_SHOWN else ""
        raise CommandFailed(
            f"{source} has offsets of partitions that do not exist: {names}{more}; leave them out, or choose "
            "other topics or partitions; nothing was changed"
        )
    ranges = ranges_of(client, partitions)
    return [move_to(each, committed.get(each), offsets[each], ranges[each]) for each in partitions if each in ranges]


def committed(client: Client, group: str) -> dict[TopicPartition, int]:
    """The committed offsets. Raises CommandFailed if there are none."""
    committed = committed_of(client, [group])[group]
    if not committed:
        raise CommandFailed(missing_group(client, group, NO_OFFSETS))
    return committed


def members(client: Client, group: str) -> int:
    """How many the broker describes."""
    return len(group_and_offsets(client, group)[0].members or ())


def reset(client: Client, group: str, moves: Sequence[Move]) -> list[Move]:
    """Commit the offsets of a plan; return the moves; a refused one has its error."""
    found, _ = group_and_offsets(client, group)
    offsets = {TopicPartition(move.topic, move.partition): move.after for move in moves}
    alter = altered_starts if found.type == SHARE else altered_offsets
    codes = at_coordinators(client, [group], lambda by: alter(client, next(iter(by)), group, offsets))
    return [
        move._replace(error=refusal(group, code))
        if (code := codes[TopicPartition(move.topic, move.partition)])
        else move
        for move in moves
    ]


def delete(client: Client, groups: Sequence[str], *, may_be_absent: bool) -> list[Outcome]:
    names = list(dict.fromkeys(groups))

    def ask(by: dict[int, list[str]]) -> list[Any]:
        questions = {each: Question(ApiKey.DELETE_GROUPS, {"group_names": by[each]}, each) for each in by}
        answers = client.answers(questions).values()
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return [row for answer in answers for row in when_there(answer.results)]

    rows = at_coordinators(client, names, ask)
    return in_order(
        names, (deletion(client, row.group_id, row.error_code, may_be_absent=may_be_absent) for row in rows)
    )


def deletion(client: Client, group: str, code: int, *, may_be_absent: bool) -> Outcome:
    if not code:
        return Outcome(group, "deleted")
    if code != ErrorCode.GROUP_ID_NOT_FOUND:
        return Outcome(group, "failed", refusal(group, code))
    return Outcome(group, "absent") if may_be_absent else Outcome(group, "failed", missing_group(client, group))


def missing_group(client: Client, group: str, what: str = "does not exist") -> str:
    """The message that a group does not exist, or what else it lacks, with the next step."""
    others = [name for name in group_ids(client) if name != group]
    return f"group {group} {what}; {next_step(group, others, GROUPS_ARE_LISTED)}"


def group_and_offsets(client: Client, group: str) -> tuple[Group, dict[TopicPartition, int]]:
    groups, committed = both(lambda: described(client, [group]), lambda: committed_of(client, [group]))
    found = groups[group]
    if found.error is not None:
        raise CommandFailed(found.error)
    return found, committed[group]


def existing(client: Client, partitions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
    """Keep those of the partitions that exist."""
    there = {
        TopicPartition(row.name, partition.partition)
        for row in topics_of(client)
        if row.error_code == 0
        for partition in row.partitions
    }
    return sorted(there & partitions.keys())


def ends_of(client: Client, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    return latest_of(client, existing(client, dict.fromkeys(partitions, 0)))


def committed_of(client: Client, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of each of these groups; of share groups where their partitions start."""
    if not groups:
        return {}

    def ask(by: dict[int, list[str]]) -> dict[str, dict[TopicPartition, int]]:
        found, lost = committed_offsets(client, by)
        for error in lost.values():
            if len(lost) == len(by):
                raise error
            lacks_answer(error, "what it coordinates")
        return {group: found[group] for broker, names in by.items() if broker not in lost for group in names}

    committed = at_coordinators(client, groups, ask)
    without = [group for group, offsets in committed.items() if not offsets]
    if without and ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS in client.versions:
        committed |= starts_of(client, without)
    return committed


def starts_of(client: Client, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """Ask where the partitions of share groups start; none of a group of another type."""
    questions = {
        broker: Question(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [(group, None) for group in names]}, broker)
        for broker, names in by_coordinator(client, groups).items()
    }
    answers = of_each(client, questions, "what it coordinates")
    return {
        row.group_id: {
            TopicPartition(topic.topic_name, each.partition_index): Start.of(each.start_offset, each.lag)
            for topic in row.topics
            for each in topic.partitions
            if each.start_offset >= 0
        }
        for answer in answers.values()
        for row in answer.groups
    }


def altered_offsets(
    client: Client, coordinator: int, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Commit these offsets; return the error code of each partition."""
    row = ASKED_TABLE[ApiKey.OFFSET_COMMIT].request.row
    topics = [
        (
            topic,
            [
                row("topics.partitions")(number, offsets[TopicPartition(topic, number)], committed_metadata="")
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(offsets).items()
    ]
    answer = client.ask(ApiKey.OFFSET_COMMIT, broker=coordinator, group_id=group, topics=topics)
    rows = [(topic.name, each) for topic in answer.topics for each in when_there(topic.partitions)]
    return {TopicPartition(topic, each.partition): each.error_code for topic, each in rows}


def altered_starts(
    client: Client, coordinator: int, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Have the partitions of a share group start at these offsets; return the error code of each."""
    topics = [
        (topic, [(number, offsets[TopicPartition(topic, number)]) for number in numbers])
        for topic, numbers in by_topic(offsets).items()
    ]
    answer = client.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, broker=coordinator, group_id=group, topics=topics)
    codes = {
        TopicPartition(topic.topic_name, each.partition_index): each.error_code
        for topic in answer.responses
        for each in topic.partitions
    }
    return {at: answer.error_code or codes.get(at, 0) for at in offsets}
