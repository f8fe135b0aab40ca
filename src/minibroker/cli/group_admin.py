"""What the `groups` commands ask of a cluster, and what its answers mean.

A group is what its coordinator says of it together with the offsets it has committed; its lag is what the leaders of
the partitions have beyond these. A refusal becomes one line with what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from minibroker.cli.address import Address
from minibroker.cli.cluster import OffsetAndMetadata, TopicPartition, connected, error_name, errors
from minibroker.cli.failures import CommandFailed
from minibroker.cli.outcomes import Outcome
from minibroker.cli.partition_offsets import latest_of, offsets_at, partitions_of, ranges_of
from minibroker.cli.positions import Position

STOP_IT = "stop its consumers first (`minibroker groups describe {group}` shows them), then try again"
ADVICE: dict[int, str] = {
    errors.NonEmptyGroupError.errno: STOP_IT,
    errors.UnknownMemberIdError.errno: STOP_IT,
    errors.RebalanceInProgressError.errno: STOP_IT,
    errors.IllegalGenerationError.errno: STOP_IT,
    errors.GroupIdNotFoundError.errno: "`minibroker groups list` shows what there is",
    errors.InvalidGroupIdError.errno: "a group needs a name",
    errors.CoordinatorLoadInProgressError.errno: "the broker has just started: try again",
    errors.CoordinatorNotAvailableError.errno: "the broker has just started: try again",
    errors.GroupAuthorizationFailedError.errno: "the cluster's ACLs do not let this client: ask who keeps it",
    errors.TopicAuthorizationFailedError.errno: "the cluster's ACLs do not let this client: ask who keeps it",
    errors.UnknownTopicOrPartitionError.errno: "`minibroker topics list` shows what there is",
}
NO_SUCH_GROUP = "Dead"  # as DescribeGroups says it


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
    """None: nothing is committed, or the topic is gone."""

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


@contextmanager
def group_admin(bootstrap: Sequence[Address]) -> Iterator[GroupAdmin]:
    """Connect to the first that answers. Raises CommandFailed, for what goes wrong later too."""
    with connected(bootstrap) as client:
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
        """Raises CommandFailed if there is no such group."""
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

    def plan_reset(self, group: str, topics: Sequence[str], position: Position) -> list[Move]:
        """What a reset would do: to those topics, or to all that the group has committed. Raises CommandFailed."""
        _, committed = self._group(group)
        if not topics and not committed:
            raise CommandFailed(f"group {group} has no committed offsets; name the topics with --topic NAME")
        partitions = partitions_of(self._client, topics) if topics else self._existing(committed)
        after = offsets_at(self._client, position, ranges_of(self._client, partitions))
        return [Move(each.topic, each.partition, committed.get(each), after[each]) for each in partitions]

    def members(self, group: str) -> int:
        return len(self._group(group)[0]["members"])

    def reset(self, group: str, moves: Sequence[Move]) -> list[Move]:
        """Commit the offsets of a plan; the moves, those that were refused with an error."""
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
            raise CommandFailed(f"group {group}: {row['error']}; the broker's log may say why")
        committed = self._client.list_group_offsets(group)[group]
        return row, {partition: entry.offset for partition, entry in committed.items() if entry.offset >= 0}

    def _existing(self, partitions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Those whose topic has not been deleted."""
        there = {row["name"] for row in self._client.describe_topics() if row["error_code"] == 0}
        return sorted(partition for partition in partitions if partition.topic in there)

    def _ends(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        existing = self._existing(dict.fromkeys(partitions, 0))
        try:
            return latest_of(self._client, existing)
        except errors.KafkaError:
            return {}  # shown as unknown: what else there is to know about the group is still worth showing


def member_of(row: Mapping[str, Any]) -> Member:
    assignment = row["member_assignment"]
    topics = assignment["assigned_partitions"] if isinstance(assignment, Mapping) else []
    partitions = [TopicPartition(topic["topic"], number) for topic in topics for number in topic["partitions"]]
    return Member(row["member_id"], row["client_id"], row["client_host"].removeprefix("/"), sorted(partitions))


def lag_of(committed: int | None, end: int | None) -> int | None:
    """How many offsets are to be read; none are if the partition was emptied below what was committed."""
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
    """A group's error in one line, with what to do about it."""
    advice = ADVICE.get(code, "the broker's log may say why").format(group=group)
    if code == errors.GroupIdNotFoundError.errno:
        return f"there is no group {group}; {advice}"
    if STOP_IT.format(group=group) == advice:
        return f"group {group} is in use; {advice}"
    return f"group {group}: {error_name(code)}; {advice}"
