"""Groups as their coordinators describe them: classic ones, and those of Kafka 4's protocols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from minibroker.admin.outcomes import DENIED
from minibroker.client.errors import error_name
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.consumer_protocol import read_assignment
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.message_values import CLASSIC, CONSUMER, CONSUMER_PROTOCOL_TYPE
from minibroker.protocol.text import counted

STOP_IT = "stop its consumers first (`minibroker groups describe {group}` shows them), then try again"
ADVICE: dict[int, str] = {
    ErrorCode.NON_EMPTY_GROUP: STOP_IT,
    ErrorCode.UNKNOWN_MEMBER_ID: STOP_IT,
    ErrorCode.REBALANCE_IN_PROGRESS: STOP_IT,
    ErrorCode.ILLEGAL_GENERATION: STOP_IT,
    ErrorCode.INVALID_GROUP_ID: "a group needs a name",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the broker has just started; try again",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the broker has just started; try again",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: DENIED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`minibroker topics list` shows the topics",
}
NO_SUCH_GROUP = "Dead"  # in DescribeGroups
UNKNOWN_STATE = "?"
SHARE, STREAMS = "share", "streams"  # types of groups that only Apache Kafka has


class Member(NamedTuple):
    """`unread_bytes` is the size of an assignment that is not a consumer's, or is damaged: it has no partitions.

    A member of a protocol of Kafka 4 has an `epoch`. `awaits` are partitions that the group's assignment gives it and
    that it lacks until another member has revoked them; `revokes` are those that it has and that the assignment takes
    from it. `tasks` are those of Kafka Streams. `protocol` is its own, in a consumer group of members of both. A static
    member has an `instance_id`, its group.instance.id. By a `subscribed_topic_regex` the coordinator finds
    its topics, in the consumer protocol.
    """

    member_id: str
    client_id: str
    host: str
    partitions: Sequence[TopicPartition]
    unread_bytes: int = 0
    epoch: int | None = None
    awaits: Sequence[TopicPartition] = ()
    revokes: Sequence[TopicPartition] = ()
    tasks: Sequence[str] = ()
    protocol: str | None = None
    instance_id: str | None = None
    subscribed_topic_regex: str | None = None

    def unread(self, protocol_type: str) -> str | None:
        """The size of an assignment whose partitions cannot be read, and the reason; None if there is none."""
        if not self.unread_bytes:
            return None
        size = counted(self.unread_bytes, "byte")
        return (
            f"{size}, damaged"
            if protocol_type == CONSUMER_PROTOCOL_TYPE
            else f"{size} of protocol type {protocol_type}"
        )


class Group(NamedTuple):
    """A group as its coordinator describes it, or the error of that in one line.

    `members` is None where the broker does not describe them. `protocol` is the name of the assignor. A group of a
    protocol of Kafka 4 has an `epoch`, and that for which its assignment is made.
    """

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[Member] | None
    error: str | None = None
    type: str = CLASSIC
    epoch: int | None = None
    assignment_epoch: int | None = None

    @property
    def exists(self) -> bool:
        return self.state != NO_SUCH_GROUP


def classic_group(row: Any) -> Group:
    """The group of a row of DescribeGroups."""
    code, protocol_type = row.error_code, row.protocol_type
    if code == ErrorCode.GROUP_ID_NOT_FOUND:  # from version 6; before it, as a dead group
        return Group(row.group_id, NO_SUCH_GROUP, "", "", [])
    members = [classic_member(member, protocol_type) for member in row.members]
    return Group(
        row.group_id, row.group_state or UNKNOWN_STATE, protocol_type, row.protocol_data, members, error_of(row)
    )


def classic_member(row: Any, protocol_type: str) -> Member:
    """The member of a row of DescribeGroups. Only a consumer's assignment has partitions."""
    assignment = bytes(row.member_assignment)
    partitions = partitions_in(assignment) if protocol_type == CONSUMER_PROTOCOL_TYPE and assignment else None
    unread_bytes = len(assignment) if partitions is None else 0
    return Member(
        row.member_id,
        row.client_id,
        host_of(row),
        partitions or [],
        unread_bytes,
        instance_id=row.group_instance_id,
    )


def partitions_in(assignment: bytes) -> list[TopicPartition] | None:
    """The partitions of a consumer's assignment in order; None if it is damaged."""
    try:
        topics = read_assignment(assignment).assigned_partitions
    except KafkaProtocolError:
        return None
    return sorted(TopicPartition(each.topic, number) for each in topics for number in each.partitions)


def type_of(row: Any) -> str:
    """The type of a row of ListGroups; before Kafka 3.7 every group was classic."""
    return str(row.group_type or CLASSIC).lower()


def listed_only(row: Any, state: str = NO_SUCH_GROUP) -> Group:
    """The group of a row of ListGroups, for a broker that does not describe it; `state` is for old brokers."""
    state = row.group_state or state
    return Group(row.group_id, state, row.protocol_type, "", None, type=type_of(row))


def newer_group(row: Any, type_: str, member_of: Callable[[Any], Member]) -> Group:
    """The group of a row of the describing requests of Kafka 4; a streams group has no assignor before version 1."""
    if row.error_code == ErrorCode.GROUP_ID_NOT_FOUND:  # it has ended since it was listed
        return Group(row.group_id, NO_SUCH_GROUP, "", "", [], type=type_)
    return Group(
        row.group_id,
        row.group_state or UNKNOWN_STATE,
        type_,
        getattr(row, "assignor_name", None) or "",
        [member_of(member) for member in row.members],
        error_of(row),
        type_,
        row.group_epoch,
        row.assignment_epoch,
    )


def consumer_group(row: Any) -> Group:
    return newer_group(row, CONSUMER, consumer_member)


def consumer_member(row: Any) -> Member:
    has, target = partitions_of(row.assignment), partitions_of(row.target_assignment)
    return Member(
        row.member_id,
        row.client_id,
        host_of(row),
        sorted(has),
        epoch=row.member_epoch,
        awaits=sorted(target - has),
        revokes=sorted(has - target),
        protocol=MEMBER_PROTOCOLS.get(row.member_type),
        instance_id=row.instance_id,
        subscribed_topic_regex=row.subscribed_topic_regex or None,
    )


def share_group(row: Any) -> Group:
    return newer_group(row, SHARE, share_member)


def share_member(row: Any) -> Member:
    partitions = sorted(partitions_of(row.assignment))
    return Member(row.member_id, row.client_id, host_of(row), partitions, epoch=row.member_epoch)


def partitions_of(assignment: Any) -> set[TopicPartition]:
    return {
        TopicPartition(each.topic_name, number) for each in assignment.topic_partitions for number in each.partitions
    }


def streams_group(row: Any) -> Group:
    subtopologies = (row.topology.subtopologies if row.topology is not None else None) or ()
    topics = {
        each.subtopology_id: [*each.source_topics, *(topic.name for topic in each.repartition_source_topics)]
        for each in subtopologies
    }
    return newer_group(row, STREAMS, partial(streams_member, topics=topics))


def streams_member(row: Any, topics: Mapping[str, Sequence[str]]) -> Member:
    """`topics` are the sources of each subtopology: a task reads its partition of each of them."""
    has = row.assignment
    return Member(
        row.member_id,
        row.client_id,
        host_of(row),
        sorted(
            TopicPartition(topic, number)
            for task in has.active_tasks
            for topic in topics.get(task.subtopology_id, ())
            for number in task.partitions
        ),
        epoch=row.member_epoch,
        tasks=[
            *tasks_of(has.active_tasks),
            *(f"standby {task}" for task in tasks_of(has.standby_tasks)),
            *(f"warm-up {task}" for task in tasks_of(has.warmup_tasks)),
        ],
        instance_id=row.instance_id,
    )


def tasks_of(rows: Sequence[Any]) -> Iterator[str]:
    """The tasks as Kafka Streams names them, such as 0_3: of subtopology 0, for partition 3."""
    return (f"{row.subtopology_id}_{number}" for row in rows for number in sorted(row.partitions))


def host_of(row: Any) -> str:
    return str(row.client_host).removeprefix("/")


def error_of(row: Any) -> str | None:
    return refusal(row.group_id, row.error_code) if row.error_code else None


def refusal(group: str, code: int) -> str:
    """A group's error in one line, with the next step."""
    advice = ADVICE.get(code, "see the broker's log").format(group=group)
    if STOP_IT.format(group=group) == advice:
        return f"group {group} is in use; {advice}"
    return f"group {group}: {error_name(code)}; {advice}"


MEMBER_PROTOCOLS = {0: CLASSIC, 1: CONSUMER}  # in ConsumerGroupDescribe, from version 1 on
