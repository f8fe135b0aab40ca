"""The uniform assignor for members that subscribe to different topics. Pure.

Each topic's free partitions go to those of its subscribers that have the fewest. Then partitions move from the
subscribers with most to those with fewest, topic by topic, until no topic's subscribers differ by more than one, as
far as that can be: at most 16 times over all topics. As kafka 4.4 UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from minibroker.broker.wings.consumer.member import Assignment

MOST_ROUNDS = 16
NOBODY = -1


class Subscriber(Protocol):
    @property
    def topic_ids(self) -> frozenset[bytes]: ...
    @property
    def target(self) -> Assignment: ...


class UniformMixed:
    """One assignment. Members are numbered by their place in `member_ids`."""

    def __init__(
        self,
        members: Mapping[str, Subscriber],
        partition_counts: Mapping[bytes, int],
        member_ids: Sequence[str],
        topic_ids: Sequence[bytes],
    ) -> None:
        self._member_ids = member_ids
        self._owners = {topic_id: [NOBODY] * partition_counts[topic_id] for topic_id in topic_ids}
        self._subscribers: dict[bytes, list[int]] = {topic_id: [] for topic_id in topic_ids}
        self._sizes = [0] * len(member_ids)
        for number, member_id in enumerate(member_ids):
            member = members[member_id]
            for topic_id in member.topic_ids:
                self._subscribers[topic_id].append(number)
            for topic_id, partitions in member.target.items():
                if topic_id in member.topic_ids:
                    self._sizes[number] += len(partitions)
                    for partition in partitions:
                        if partition < len(self._owners[topic_id]):
                            self._owners[topic_id][partition] = number

    def assign(self) -> dict[str, dict[bytes, set[int]]]:
        free = {topic_id: [p for p, owner in enumerate(owners) if owner == NOBODY] for topic_id, owners in self._topics}
        for topic_id in self._sorted([topic_id for topic_id, partitions in free.items() if partitions]):
            balancer = Balancer(self._sizes, self._subscribers[topic_id])
            for partition in free[topic_id]:
                self._move(topic_id, partition, balancer.next_least_loaded())
        self._balance()
        found: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in self._member_ids}
        for topic_id, owners in self._topics:
            for partition, owner in enumerate(owners):
                found[self._member_ids[owner]].setdefault(topic_id, set()).add(partition)
        return found

    @property
    def _topics(self) -> list[tuple[bytes, list[int]]]:
        return list(self._owners.items())

    def _sorted(self, topic_ids: Sequence[bytes]) -> list[bytes]:
        """Sort topics: the one with most partitions for each subscriber comes first."""

        def order(topic_id: bytes) -> tuple[float, int, int, int]:
            count, subscribers = len(self._owners[topic_id]), len(self._subscribers[topic_id])
            most = int.from_bytes(topic_id[:8], "big", signed=True), int.from_bytes(topic_id[8:], "big", signed=True)
            return (-count / subscribers, subscribers, *most)

        return sorted(topic_ids, key=order)

    def _move(self, topic_id: bytes, partition: int, number: int) -> None:
        owners = self._owners[topic_id]
        if owners[partition] != NOBODY:
            self._sizes[owners[partition]] -= 1
        owners[partition] = number
        self._sizes[number] += 1

    def _balance(self) -> None:
        topic_ids = self._sorted([each for each, subscribers in self._subscribers.items() if len(subscribers) >= 2])
        last_moved = None
        for _ in range(MOST_ROUNDS):
            for place, topic_id in enumerate(topic_ids):
                if place == last_moved:
                    return
                if self._balance_topic(topic_id) > 0 or last_moved is None:
                    last_moved = place

    def _balance_topic(self, topic_id: bytes) -> int:
        """Move partitions among a topic's subscribers; return how many."""
        subscribers, owners = self._subscribers[topic_id], self._owners[topic_id]
        sizes = [self._sizes[number] for number in subscribers]
        if max(sizes) - min(sizes) <= 1:
            return 0
        balancer = Balancer(self._sizes, subscribers)
        movable: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            movable.setdefault(owner, []).append(partition)
        moved = 0
        while not balancer.is_balanced:
            most = balancer.next_most_loaded()
            while most is not None and not movable.get(most):
                balancer.exclude_most_loaded()
                most = balancer.next_most_loaded()
            if most is None:
                break
            partition = movable[most].pop()
            least = balancer.next_least_loaded()
            if balancer.is_balanced:
                break
            self._move(topic_id, partition, least)
            moved += 1
        return moved


class Balancer:
    """The subscribers of a topic by their number of partitions, which `sizes` has as it changes.

    The least loaded are a range at the front, each of which gets a partition in turn, until the next ones join it; the
    most loaded are one at the back, each of which gives one.
    """

    def __init__(self, sizes: Sequence[int], subscribers: Sequence[int]) -> None:
        self._sizes = sizes
        self._sorted = sorted(subscribers, key=lambda number: (sizes[number], number))
        self._least_end = 0
        self._least_size = sizes[self._sorted[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._sorted)
        self._most_size = sizes[self._sorted[-1]] + 1
        self._next_most = len(self._sorted) - 1

    @property
    def is_balanced(self) -> bool:
        return self._most_size - self._least_size <= 1

    def next_least_loaded(self) -> int:
        """Return a subscriber with the fewest, which gets one more."""
        if self._next_least >= self._least_end:
            self._least_size += 1
            while self._least_end < len(self._sorted) and self._size_at(self._least_end) == self._least_size:
                self._least_end += 1
            self._next_least = 0
        number = self._sorted[self._next_least]
        self._next_least += 1
        return number

    def next_most_loaded(self) -> int | None:
        """Return a subscriber with most, which gives one; None if all are excluded."""
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_size = self._size_at(self._most_start - 1)
            else:
                self._most_size -= 1
            while self._most_start > 0 and self._size_at(self._most_start - 1) == self._most_size:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        number = self._sorted[self._next_most]
        self._next_most -= 1
        return number

    def exclude_most_loaded(self) -> None:
        """Leave out the subscriber that was returned last: it has no partition of the topic to give."""
        place, last = self._next_most + 1, self._most_end - 1
        self._sorted[place], self._sorted[last] = self._sorted[last], self._sorted[place]
        self._most_end -= 1

    def _size_at(self, place: int) -> int:
        return self._sizes[self._sorted[place]]
