"""A member of a group of the consumer protocol, as a value: a change makes another one.

It is kept in two records: what it is and subscribes to, and the partitions that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from minibroker.protocol.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupRecord,
    RecordType,
)
from minibroker.protocol.message_values import NEW_EPOCH
from minibroker.protocol.primitives import topic_id_text
from minibroker.storage import chance

# By topic id, partitions with the member epoch in which each was assigned. Never changed in place.
Owned = Mapping[bytes, Mapping[int, int]]
# By topic id, the partitions of an assignment.
Assignment = Mapping[bytes, frozenset[int]]

NOTHING: Any = {}


class MemberState(IntEnum):
    """A member's place on the way to its target assignment (`reconciliation`)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127  # of a record that a later Kafka wrote

    @classmethod
    def of(cls, number: int) -> MemberState:
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class ClassicMetadata(NamedTuple):
    """The terms on which a member of the classic protocol has joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, in the member's order of preference


class ConsumerMember(NamedTuple):
    """A member; an empty regular expression is none. `classic` is None for one of the consumer protocol."""

    member_id: str
    member_epoch: int = NEW_EPOCH
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Owned = NOTHING
    pending_revocation: Owned = NOTHING
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has its target assignment of this epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def has(self, topic_id: bytes, partition: int) -> bool:
        """Whether it owns the partition, or has yet to revoke it."""
        return partition in self.assigned.get(topic_id, ()) or partition in self.pending_revocation.get(topic_id, ())

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it was assigned a partition that it has; None if it has not."""
        for owned in (self.assigned, self.pending_revocation):
            if partition in owned.get(topic_id, ()):
                return owned[topic_id][partition]
        return None

    # -- its records ------------------------------------------------------------------------------------------

    def record(self, group_id: str) -> ConsumerGroupRecord:
        """The record of the member itself and its subscription."""
        return ConsumerGroupRecord(
            RecordType.MEMBER,
            group_id,
            self.member_id,
            ConsumerGroupMemberMetadataValue(
                instance_id=self.instance_id,
                rack_id=self.rack_id,
                client_id=self.client_id,
                client_host=self.client_host,
                subscribed_topic_names=sorted(self.topic_names),
                subscribed_topic_regex=self.topic_regex,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                server_assignor=self.server_assignor,
                classic_member_metadata=self.classic,
            ),
        )

    def with_record(self, value: Any) -> ConsumerMember:
        classic = value.classic_member_metadata
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None if classic is None else ClassicMetadata(classic[0], tuple((n, m) for n, m in classic[1])),
        )

    def assignment_record(self, group_id: str) -> ConsumerGroupRecord:
        """The record of the partitions that it has."""
        return ConsumerGroupRecord(
            RecordType.ASSIGNMENT,
            group_id,
            self.member_id,
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.member_epoch,
                previous_member_epoch=self.previous_member_epoch,
                state=self.state,
                assigned_partitions=rows_with_epochs(self.assigned),
                partitions_pending_revocation=rows_with_epochs(self.pending_revocation),
            ),
        )

    def with_assignment_record(self, value: Any) -> ConsumerMember:
        epoch = value.member_epoch
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=owned_of(value.assigned_partitions, epoch),
            pending_revocation=owned_of(value.partitions_pending_revocation, epoch),
        )

    def without_assignment(self) -> ConsumerMember:
        """The member after its assignment's record was deleted."""
        return self._replace(member_epoch=-1, previous_member_epoch=-1, assigned={}, pending_revocation={})


def new_member_id() -> str:
    """A random id, in the form of Kafka's Uuid: without a dash in front."""
    while True:
        member_id = topic_id_text(chance.new_uuid().bytes)
        if not member_id.startswith("-"):
            return member_id


def rows_with_epochs(owned: Owned) -> list[tuple[bytes, list[int], list[int]]]:
    return [
        (topic_id, sorted(partitions), [partitions[each] for each in sorted(partitions)])
        for topic_id, partitions in owned.items()
    ]


def owned_of(rows: Iterable[Any], member_epoch: int) -> Owned:
    """Partitions of a record. Before kafka 4.4 there were no epochs of partitions: they have the member's then."""
    owned = {}
    for topic_id, partitions, epochs in rows:
        if epochs is None or len(epochs) != len(partitions):
            epochs = [max(member_epoch, 0)] * len(partitions)
        owned[topic_id] = dict(zip(partitions, epochs, strict=True))
    return owned


def rows_of(assignment: Mapping[bytes, Iterable[int]]) -> list[tuple[bytes, list[int]]]:
    """An assignment as rows of topic id and partitions, in order."""
    return [(topic_id, sorted(partitions)) for topic_id, partitions in assignment.items()]


def assignment_of(rows: Sequence[Any]) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in rows}
