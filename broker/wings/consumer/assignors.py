"""The assignors of the coordinator: who of a group's members gets which partitions. Pure.

range     per topic, members in the order of their ids get equal ranges of partitions
uniform   members get equal numbers of partitions, and keep what they have as far as that allows

As kafka 4.4 RangeAssignor and UniformAssignor, which do not look at racks. They choose among equals in the order of
Java's hash tables (`java_order`), and so do these: the same group has the same assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minibroker.broker.wings.consumer.member import Assignment
from minibroker.broker.wings.consumer.uniform_mixed import UniformMixed
from minibroker.protocol.java_hash import java_hash, java_order, uuid_hash

Assignments = dict[str, dict[bytes, set[int]]]


class AssignedMember(NamedTuple):
    """A member for an assignor: the ids of the existing topics that it subscribes to, and its target until now."""

    topic_ids: frozenset[bytes]
    target: Assignment
    instance_id: str | None = None


class Subscriptions(NamedTuple):
    """All members by id, and the number of partitions of each topic that one subscribes to.

    `is_homogeneous`: they all subscribe to the same.
    """

    members: Mapping[str, AssignedMember]
    partition_counts: Mapping[bytes, int]
    is_homogeneous: bool


def assign_ranges(group: Subscriptions) -> Assignments:
    """Give each member a range of each topic; the first members get one partition more."""
    ordered = sorted(group.members.items(), key=range_order)
    subscribers: dict[bytes, int] = {}
    for member in group.members.values():
        for topic_id in member.topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    next_of = dict.fromkeys(subscribers, 0)
    places = dict.fromkeys(subscribers, 0)
    found: Assignments = {}
    for member_id, member in ordered:
        found[member_id] = {}
        for topic_id in member.topic_ids:
            least, extra = divmod(group.partition_counts[topic_id], subscribers[topic_id])
            start = next_of[topic_id]
            end = next_of[topic_id] = start + least + (places[topic_id] < extra)
            places[topic_id] += 1
            if start < end:
                found[member_id][topic_id] = set(range(start, end))
    return found


def range_order(named: tuple[str, AssignedMember]) -> tuple[bool, bytes]:
    """Static members come first, by their instance ids; the others by their member ids."""
    member_id, member = named
    is_static = member.instance_id is not None
    return not is_static, (member.instance_id or member_id).encode("utf-16-be", "surrogatepass")


def assign_uniformly(group: Subscriptions) -> Assignments:
    """Give each member as many partitions as any other, or one less, moving as few as possible."""
    member_ids = java_order(group.members, java_hash)
    if group.is_homogeneous:
        return uniform_same(group, member_ids) if group.partition_counts else {}
    topic_ids = java_order(group.partition_counts, uuid_hash)
    return UniformMixed(group.members, group.partition_counts, member_ids, topic_ids).assign() if topic_ids else {}


def uniform_same(group: Subscriptions, member_ids: Sequence[str]) -> Assignments:
    """Assign partitions of members that all subscribe to the same topics (as kafka 4.4
    UniformHomogeneousAssignmentBuilder): each keeps what it has up to its share, the others fill theirs in order.
    """
    counts = group.partition_counts
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in counts}
    for member in group.members.values():
        for topic_id in member.target.keys() & counts.keys():
            taken[topic_id] |= member.target[topic_id]
    free = [
        (topic_id, partition)
        for topic_id in java_order(counts, uuid_hash, copied=True)
        for partition in range(counts[topic_id])
        if partition not in taken[topic_id]
    ]
    least, extra = divmod(sum(counts.values()), len(member_ids))
    found: Assignments = {}
    unfilled: list[tuple[str, int]] = []
    for place, member_id in enumerate(member_ids):
        kept: dict[bytes, set[int]] = {}
        may_have_extra = extra > 0
        share = least + may_have_extra
        old = group.members[member_id].target
        for topic_id in java_order(old, uuid_hash):
            if topic_id not in counts:
                continue
            partitions = java_order(old[topic_id], int, copied=True)
            free += [(topic_id, partition) for partition in partitions[share:]]
            if partitions[:share]:
                kept[topic_id] = set(partitions[:share])
            share -= min(share, len(partitions))
        if share > 0 and may_have_extra and len(member_ids) - place > extra:
            share -= 1
            may_have_extra = False
        if share > 0:
            unfilled.append((member_id, share))
        extra -= may_have_extra
        found[member_id] = kept
    remaining = iter(free)
    for member_id, share in unfilled:
        for _, (topic_id, partition) in zip(range(share), remaining, strict=False):
            found[member_id].setdefault(topic_id, set()).add(partition)
    return found


ASSIGNORS: dict[str, Callable[[Subscriptions], Assignments]] = {"uniform": assign_uniformly, "range": assign_ranges}
