"""The requests of the `groups` commands, and what a cluster's answers mean.

Its coordinator describes a group and returns its committed offsets; its lag is the distance from these to the ends of
the partitions. A refusal becomes one line with the next step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from minibroker.cli.cluster import OffsetAndMetadata, TopicPartition, connected, error_name, errors
from minibroker.cli.failures import CommandFailed
from minibroker.cli.options import Cluster
from minibroker.cli.outcomes import Outcome
from minibroker.cli.partition_offsets import clamped, latest_of, offsets_at, partitions_of, ranges_of
from minibroker.cli.positions import Position

STOP_IT = "stop its consumers first (`minibroker groups describe {group}` shows them), then try again"
ADVICE: dict[int, str] = {
    errors.NonEmptyGroupError.errno: STOP_IT,
    errors.UnknownMemberIdError.errno: STOP_IT,
    errors.RebalanceInProgressError.errno: STOP_IT,
    errors.IllegalGenerationError.errno: STOP_IT,
    errors.GroupIdNotFoundError.errno: "`minibroker groups list` shows the groups",
    errors.InvalidGroupIdError.errno: "a group needs a name",
    errors.CoordinatorLoadInProgressError.errno: "the broker has just started; try again",
    errors.CoordinatorNotAvailableError.errno: "the broker has just started; try again",
    errors.GroupAuthorizationFailedError.errno: "the cluster's ACLs deny this client; ask its administrator",
    errors.TopicAuthorizationFailedError.errno: "the cluster's ACLs deny this client; ask its administrator",
    errors.UnknownTopicOrPartitionError.errno: "`minibroker topics list` shows the topics",
}
NO_SUCH_GROUP = "Dead"  # in DescribeGroups


class GroupSummary(NamedTuple):
    group: str
    state: str
    members: int
    protocol_type: str


class Member(NamedTuple):
    member_id: str
    client_id: str
    host: str
    partitions: list[TopicPartition]


class GroupPartition(NamedTuple):
    """`committed` and what depends on it is None without a commit; so is `end` of a deleted topic."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    client_id: str | None  # of the member that reads it


class GroupDescription(NamedTuple):
    group: str
    state: str
    protocol: str
    members: list[Member]
    partitions: list[GroupPartition]


class Move(NamedTuple):
    """A partition's committed offset, before and after a reset."""

    topic: str
    partition: int
    before: int | None
    after: int
    error: str | None = None


class Scope(NamedTuple):
    """Which partitions a reset moves: empty for all."""

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()

    def of(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        return [
            each
            for each in partitions
            if (not self.topics or each.topic in self.topics)
            and (not self.partitions or each.partition in self.partitions)
        ]


@contextmanager
def group_admin(cluster: Cluster) -> Iterator[GroupAdmin]:
    """Connect to the first broker that answers. Raises CommandFailed, also for later failures."""
    with connected(cluster) as client:
        yield GroupAdmin(client)


class GroupAdmin:
    """Consumer groups of one cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def groups(self) -> list[GroupSummary]:
        """All groups by name."""
        names = sorted(row["group_id"] for row in self._client.list_groups())
        described = self._client.describe_groups(names) if names else {}
        return [
            GroupSummary(name, row["group_state"], len(row["members"]), row["protocol_type"])
            for name, row in sorted(described.items())
        ]

    def describe(self, group: str) -> GroupDescription:
        """Raises CommandFailed if the group does not exist."""
        row, committed = self._group(group)
        if row["group_state"] == NO_SUCH_GROUP and not committed:
            raise CommandFailed(refusal(group, errors.GroupIdNotFoundError.errno))
        members = [member_of(member) for member in row["members"]]
        readers = {partition: member.client_id for member in members for partition in member.partitions}
        ends = self._ends({*committed, *readers})
        return GroupDescription(
            group,
            row["group_state"],
            row["protocol_data"],
            members,
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
            raise CommandFailed(f"group {group} has no committed offsets; name the topics with --topic NAME")
        there = partitions_of(self._client, scope.topics) if scope.topics else self._existing(committed)
        partitions = scope.of(there)
        if not partitions:
            numbers = " or ".join(map(str, scope.partitions))
            raise CommandFailed(f"group {group} has no partition {numbers} in these topics; correct --partition")
        after = offsets_at(self._client, position, ranges_of(self._client, partitions))
        return [Move(each.topic, each.partition, committed.get(each), after[each]) for each in partitions]

    def plan_as(self, group: str, scope: Scope, offsets: Mapping[TopicPartition, int], source: str) -> list[Move]:
        """The moves to these offsets, or the nearest in each partition. Raises CommandFailed if there are none."""
        _, committed = self._group(group)
        partitions = scope.of(self._existing(offsets))
        if not partitions:
            raise CommandFailed(f"{source} has no offsets of existing partitions to take over; nothing was changed")
        ranges = ranges_of(self._client, partitions)
        return [
            Move(each.topic, each.partition, committed.get(each), clamped(offsets[each], ranges[each]))
            for each in partitions
        ]

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """The committed offsets. Raises CommandFailed if there are none."""
        _, committed = self._group(group)
        if not committed:
            raise CommandFailed(f"group {group} has no committed offsets; `minibroker groups list` shows the groups")
        return committed

    def members(self, group: str) -> int:
        return len(self._group(group)[0]["members"])

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
        return [deletion_of(group, result, may_be_absent=may_be_absent) for group, result in answer.items()]

    def _group(self, group: str) -> tuple[Mapping[str, Any], dict[TopicPartition, int]]:
        row = self._client.describe_groups([group])[group]
        if row["error"] is not None:
            raise CommandFailed(f"group {group}: {row['error']}; see the broker's log")
        committed = self._client.list_group_offsets(group)[group]
        return row, {partition: entry.offset for partition, entry in committed.items() if entry.offset >= 0}

    def _existing(self, partitions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those of the partitions that exist."""
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


def member_of(row: Mapping[str, Any]) -> Member:
    assignment = row["member_assignment"]
    topics = assignment["assigned_partitions"] if isinstance(assignment, Mapping) else []
    partitions = [TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"]]
    return Member(row["member_id"], row["client_id"], row["client_host"].removeprefix("/"), sorted(partitions))


def lag_of(committed: int | None, end: int | None) -> int | None:
    """How many offsets are left to read; 0 if the partition now ends below the committed offset."""
    return None if committed is None or end is None else max(0, end - committed)


def deletion_of(group: str, result: str, *, may_be_absent: bool) -> Outcome:
    """`result` is OK or the name of kafka-python's exception."""
    if result == "OK":
        return Outcome(group, "deleted")
    code = getattr(errors, result, errors.UnknownError).errno
    if code == errors.GroupIdNotFoundError.errno and may_be_absent:
        return Outcome(group, "absent")
    return Outcome(group, "failed", refusal(group, code))


def refusal(group: str, code: int) -> str:
    """A group's error in one line, with the next step."""
    advice = ADVICE.get(code, "see the broker's log").format(group=group)
    if code == errors.GroupIdNotFoundError.errno:
        return f"group {group} does not exist; {advice}"
    if STOP_IT.format(group=group) == advice:
        return f"group {group} is in use; {advice}"
    return f"group {group}: {error_name(code)}; {advice}"
