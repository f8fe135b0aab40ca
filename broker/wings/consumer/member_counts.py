"""Counts the partitions and subscriptions of a group's members as these change: no heartbeat looks at all. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TypeVar

from minibroker.broker.wings.consumer.member import ConsumerMember

K = TypeVar("K", bound=Hashable)

NO_MEMBER = ConsumerMember("")


class MemberCounts:
    """The counts are of members; a value that no member has is missing."""

    __slots__ = ("assignors", "owners", "regexes", "static_ids", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, int] = {}  # by the names in subscriptions
        self.regexes: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.owners: dict[tuple[bytes, int], int] = {}  # of partitions, which a member has or has yet to revoke
        self.static_ids: dict[str, str] = {}  # member ids by instance ids

    def copy(self) -> MemberCounts:
        copy = MemberCounts()
        copy.topics, copy.regexes, copy.assignors = dict(self.topics), dict(self.regexes), dict(self.assignors)
        copy.owners, copy.static_ids = dict(self.owners), dict(self.static_ids)
        return copy

    def change(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        """Count a member as it is now; None before it comes, and after it goes."""
        old, new = before or NO_MEMBER, after or NO_MEMBER
        if old.topic_names is not new.topic_names:
            recount(self.topics, old.topic_names - new.topic_names, new.topic_names - old.topic_names)
        recount(self.regexes, named(old.topic_regex), named(new.topic_regex))
        recount(self.assignors, named(old.server_assignor), named(new.server_assignor))
        recount(self.owners, partitions_of(old), partitions_of(new))
        if old.instance_id is not None and self.static_ids.get(old.instance_id) == old.member_id:
            del self.static_ids[old.instance_id]
        if new.instance_id is not None:
            self.static_ids[new.instance_id] = new.member_id


def recount(counts: dict[K, int], before: Collection[K], after: Collection[K]) -> None:
    if before == after:
        return
    for each in after:
        counts[each] = counts.get(each, 0) + 1
    for each in before:
        if counts[each] == 1:
            del counts[each]
        else:
            counts[each] -= 1


def named(name: str | None) -> tuple[str, ...]:
    return (name,) if name else ()


def partitions_of(member: ConsumerMember) -> list[tuple[bytes, int]]:
    return [
        (topic_id, partition)
        for owned in (member.assigned, member.pending_revocation)
        for topic_id, partitions in owned.items()
        for partition in partitions
    ]
