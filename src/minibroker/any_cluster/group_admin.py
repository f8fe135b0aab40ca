"""The requests of the `groups` commands, and what a cluster's answers mean.

Its coordinator describes a group and returns its committed offsets; its lag is the distance from these to the ends of
the partitions. A refusal becomes one line with the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minibroker.any_cluster.cluster import (
    OffsetAndMetadata,
    TopicPartition,
    administering,
    error_name,
    errors,
    group_rows,
)
from minibroker.any_cluster.guesses import next_step
from minibroker.any_cluster.outcomes import Outcome
from minibroker.any_cluster.partition_offsets import (
    OffsetRange,
    clamped,
    latest_of,
    offsets_at,
    partitions_of,
    ranges_of,
)
from minibroker.any_cluster.positions import Position
from minibroker.errors import CommandFailed
from minibroker.protocol.consumer_protocol import read_assignment
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.text import counted

STOP_IT = "stop its consumers first (`minibroker groups describe {group}` shows them), then try again"
ADVICE: dict[int, str] = {
    errors.NonEmptyGroupError.errno: STOP_IT,
    errors.UnknownMemberIdError.errno: STOP_IT,
    errors.RebalanceInProgressError.errno: STOP_IT,
    errors.IllegalGenerationError.errno: STOP_IT,
    errors.InvalidGroupIdError.errno: "a group needs a name",
    errors.CoordinatorLoadInProgressError.errno: "the broker has just started; try again",
    errors.CoordinatorNotAvailableError.errno: "the broker has just started; try again",
    errors.GroupAuthorizationFailedError.errno: "the cluster's ACLs deny this client; ask its administrator",
    errors.TopicAuthorizationFailedError.errno: "the cluster's ACLs deny this client; ask its administrator",
    errors.UnknownTopicOrPartitionError.errno: "`minibroker topics list` shows the topics",
}
NO_SUCH_GROUP = "Dead"  # in DescribeGroups
NO_OFFSETS = "has no committed offsets"
GROUPS_ARE_LISTED = "`minibroker groups list` shows the groups"
UNKNOWN_STATE = "?"
MISSING_SHOWN = 5  # partitions
CONSUMER = "consumer"  # the protocol type of consumer groups


class GroupSummary(NamedTuple):
    """`members` is None where the broker does not describe them."""

    group: str
    state: str
    members: int | None
    protocol_type: str


class Member(NamedTuple):
    """`unread_bytes` is the size of an assignment that is not a consumer's, or is damaged: it has no partitions."""

    member_id: str
    client_id: str
    host: str
    partitions: list[TopicPartition]
    unread_bytes: int = 0

    def unread(self, protocol_type: str) -> str | None:
        """The size of an assignment whose partitions cannot be read, and the reason; None if there is none."""
        if not self.unread_bytes:
            return None
        size = counted(self.unread_bytes, "byte")
        return f"{size}, damaged" if protocol_type == CONSUMER else f"{size} of protocol type {protocol_type}"


class Group(NamedTuple):
    """A group as its coordinator describes it, or the error of that in one line.

    `members` is None for a group of the protocols of Kafka 4, which has another request for each of them.
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[Member] | None
    error: str | None = None

    @property
    def exists(self) -> bool:
        return self.state != NO_SUCH_GROUP


class GroupPartition(NamedTuple):
    """`committed` and what depends on it is None without a commit; so is `end` of a deleted topic."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    client_id: str | None  # of the member that reads it


class GroupDescription(NamedTuple):
    """`members` is None where the broker does not describe them."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[Member] | None
    partitions: list[GroupPartition]


class Move(NamedTuple):
    """A partition's committed offset, before and after a reset; `asked` is the plan's, if the partition lacks it."""

    topic: str
    partition: int
    before: int | None
    after: int
    error: str | None = None
    asked: int | None = None


class Scope(NamedTuple):
    """Which partitions a reset moves: empty for all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()

    def of(self, partitions: Sequence[TopicPartition], source: str) -> list[TopicPartition]:
        """Choose among partitions. Raises CommandFailed for a topic, or a number, that none of them has."""
        for topic in self.topics:
            if all(each.topic != topic for each in partitions):
                raise CommandFailed(f"{source} has no offsets of topic {topic}; choose another topic")
        chosen = [each for each in partitions if not self.topics or each.topic in self.topics]
        for number in self.partitions:
            if all(each.partition != number for each in chosen):
                raise CommandFailed(f"{source} has no partition {number} in these topics; choose another")
        return [each for each in chosen if not self.partitions or each.partition in self.partitions]


class GroupAdmin:
    """Consumer groups of one cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def groups(self) -> list[GroupSummary]:
        """All groups by name."""
        return [
            GroupSummary(
                each.group, each.state, None if each.members is None else len(each.members), each.protocol_type
            )
            for each in described(self._client, group_ids(self._client)).values()
        ]

    def describe(self, group: str) -> GroupDescription:
        """Raises CommandFailed if the group does not exist."""
        found, committed = self._group(group)
        if not found.exists and not committed:
            raise CommandFailed(self._missing(group))
        readers = {partition: member.client_id for member in found.members or () for partition in member.partitions}
        ends = self._ends({*committed, *readers})
        return GroupDescription(
            group,
            found.state,
            found.protocol_type,
            found.protocol,
            found.members,
            [
                GroupPartition(
                    partition.topic,
                    partition.partition,
                    committed.get(partition),
                    ends.get(partition),
                    lag_of(committed.get(partition), ends.get(partition)),
                    readers.get(partition),
                )
                for partition in sorted({*committed, *readers})
            ],
        )

    def plan_reset(self, group: str, scope: Scope, position: Position) -> list[Move]:
        """The moves to a position: of the topics named, or of all with committed offsets. Raises CommandFailed."""
        _, committed = self._group(group)
        if not scope.topics and not committed:
            raise CommandFailed(f"{self._missing(group, NO_OFFSETS)}; to reset it all the same, name its topics")
        there = partitions_of(self._client, scope.topics) if scope.topics else self._existing(committed)
        partitions = scope.of(there, f"group {group}")
        after = offsets_at(self._client, position, ranges_of(self._client, partitions))
        return [Move(each.topic, each.partition, committed.get(each), after[each]) for each in partitions]

    def plan_as(self, group: str, scope: Scope, offsets: Mapping[TopicPartition, int], source: str) -> list[Move]:
        """The moves to these offsets, or the nearest in each partition.

        Raises CommandFailed if there are none, or if a partition does not exist.
        """
        _, committed = self._group(group)
        if not offsets:
            raise CommandFailed(f"{source} has no offsets to take over; nothing was changed")
        partitions = scope.of(sorted(offsets), source)
        missing = sorted(set(partitions) - set(self._existing(offsets)))
        if missing:
            names = ", ".join(f"{each.topic} {each.partition}" for each in missing[:MISSING_SHOWN])
            more = f" and {len(missing) - MISSING_SHOWN} more" if len(missing) > MISSING_SHOWN else ""
            raise CommandFailed(
                f"{source} has offsets of partitions that do not exist: {names}{more}; leave them out, or choose "
                "other topics or partitions; nothing was changed"
            )
        ranges = ranges_of(self._client, partitions)
        return [move_to(each, committed.get(each), offsets[each], ranges[each]) for each in partitions]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets. Raises CommandFailed if there are none."""
        _, committed = self._group(group)
        if not committed:
            raise CommandFailed(self._missing(group, NO_OFFSETS))
        return committed

    def members(self, group: str) -> int:
        """How many the broker describes."""
        return len(self._group(group)[0].members or ())

    def reset(self, group: str, moves: Sequence[Move]) -> list[Move]:
        """Commit the offsets of a plan; return the moves, with an error in those that were refused."""
        offsets = {TopicPartition(move.topic, move.partition): OffsetAndMetadata(move.after, "", -1) for move in moves}
        results = self._client.alter_group_offsets(group, offsets)
        codes = {partition: error.errno for partition, error in results.items()}
        return [
            move._replace(error=refusal(group, code))
            if (code := codes[TopicPartition(move.topic, move.partition)])
            else move
            for move in moves
        ]

    def delete(self, groups: Sequence[str], *, may_be_absent: bool) -> list[Outcome]:
        answer = self._client.delete_groups(list(dict.fromkeys(groups)))
        return [self._deletion(group, result, may_be_absent=may_be_absent) for group, result in answer.items()]

    def _deletion(self, group: str, result: str, *, may_be_absent: bool) -> Outcome:
        """`result` is OK or the name of kafka-python's exception."""
        if result == "OK":
            return Outcome(group, "deleted")
        code = getattr(errors, result, errors.UnknownError).errno
        if code != errors.GroupIdNotFoundError.errno:
            return Outcome(group, "failed", refusal(group, code))
        return Outcome(group, "absent") if may_be_absent else Outcome(group, "failed", self._missing(group))

    def _missing(self, group: str, what: str = "does not exist") -> str:
        """The message that a group does not exist, or what else it lacks, with the next step."""
        others = [name for name in group_ids(self._client) if name != group]
        return f"group {group} {what}; {next_step(group, others, GROUPS_ARE_LISTED)}"

    def _group(self, group: str) -> tuple[Group, dict[TopicPartition, int]]:
        found = described(self._client, [group])[group]
        if found.error is not None:
            raise CommandFailed(found.error)
        return found, committed_of(self._client, [group])[group]

    def _existing(self, partitions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Keep those of the partitions that exist."""
        there = {
            TopicPartition(row["name"], partition["partition_index"])
            for row in self._client.describe_topics()
            if row["error_code"] == 0
            for partition in row["partitions"]
        }
        return sorted(there & partitions.keys())

    def _ends(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        existing = self._existing(dict.fromkeys(partitions, 0))
        try:
            return latest_of(self._client, existing)
        except errors.KafkaError:
            return {}  # the ends are shown as unknown; the rest of the description is still useful


group_admin = administering(GroupAdmin)


def move_to(at: TopicPartition, before: int | None, asked: int, inside: OffsetRange) -> Move:
    """The move to that offset, or to the nearest in the partition."""
    after = clamped(asked, inside)
    return Move(at.topic, at.partition, before, after, asked=None if after == asked else asked)


def group_ids(client: Any) -> list[str]:
    """Every group of the cluster, by name."""
    return sorted(row["group_id"] for row in client.list_groups())


def committed_of(client: Any, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """The committed offsets of each of these groups."""
    found = client.list_group_offsets(list(groups)) if groups else {}
    return {
        group: {at: entry.offset for at, entry in offsets.items() if entry.offset >= 0}
        for group, offsets in found.items()
    }


def described(client: Any, groups: Sequence[str]) -> dict[str, Group]:
    """Each of those groups, of whatever protocol type, by name in order."""
    found = {row["group_id"]: group_of(row) for row in group_rows(client, groups)} if groups else {}
    missing = [name for name, group in found.items() if not group.exists]
    if missing:  # Kafka 4 does not describe a group of its new protocols in this request; it lists all
        there = {row["group_id"]: row for row in client.list_groups()}
        found |= {name: listed_only(there[name]) for name in missing if name in there}
    return dict(sorted(found.items()))


def group_of(row: Mapping[str, Any]) -> Group:
    """The group of a row of DescribeGroups."""
    name, code, protocol_type = row["group_id"], row["error_code"], row["protocol_type"]
    if code == errors.GroupIdNotFoundError.errno:  # from version 6; before it, as a dead group
        return Group(name, NO_SUCH_GROUP, "", "", [])
    members = [member_of(member, protocol_type) for member in row["members"]]
    error = refusal(name, code) if code else None
    return Group(name, row["group_state"] or UNKNOWN_STATE, protocol_type, row["protocol_data"], members, error)


def listed_only(row: Mapping[str, Any]) -> Group:
    """The group of a row of ListGroups, in which old brokers have no state."""
    return Group(row["group_id"], row.get("group_state") or NO_SUCH_GROUP, row["protocol_type"], "", None)


def member_of(row: Mapping[str, Any], protocol_type: str) -> Member:
    """The member of a row of DescribeGroups. Only a consumer's assignment has partitions."""
    assignment = row["member_assignment"] or b""
    partitions = partitions_in(assignment) if protocol_type == CONSUMER and assignment else None
    return Member(
        row["member_id"],
        row["client_id"],
        row["client_host"].removeprefix("/"),
        partitions or [],
        len(assignment) if partitions is None else 0,
    )


def partitions_in(assignment: bytes) -> list[TopicPartition] | None:
    """The partitions of a consumer's assignment in order; None if it is damaged."""
    try:
        topics = read_assignment(assignment).assigned_partitions
    except KafkaProtocolError:
        return None
    return sorted(TopicPartition(each.topic, number) for each in topics for number in each.partitions)


def lag_of(committed: int | None, end: int | None) -> int | None:
    """How many offsets are left to read; 0 if the partition now ends below the committed offset."""
    return None if committed is None or end is None else max(0, end - committed)


def refusal(group: str, code: int) -> str:
    """A group's error in one line, with the next step."""
    advice = ADVICE.get(code, "see the broker's log").format(group=group)
    if STOP_IT.format(group=group) == advice:
        return f"group {group} is in use; {advice}"
    return f"group {group}: {error_name(code)}; {advice}"
