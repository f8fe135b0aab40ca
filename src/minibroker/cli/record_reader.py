"""Reads topics from a position to their end, or follows them: by partitions, or as a member of a group.

The end is where each partition ended when reading started, so that a topic under writes has an end too. A member
commits only what has been printed, within a second of it and at the end.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from minibroker import patience
from minibroker.admin.partitions import chosen, named
from minibroker.admin.positions import Position
from minibroker.any_cluster.batch_reader import BatchReader
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import brokers_of, check_group_protocol, connected, lacks_answer
from minibroker.any_cluster.partition_offsets import by_leader, partitions_of, ranges_of
from minibroker.any_cluster.record_clients import RecordConsumer, consuming
from minibroker.any_cluster.record_distances import offsets_at
from minibroker.any_cluster.record_text import ATTRIBUTES, Access
from minibroker.cli.terminal import complain
from minibroker.client.address import Address
from minibroker.client.client import Client
from minibroker.client.errors import CannotReadOn, ClientError, TooSlow
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed
from minibroker.protocol.errors import ErrorCode, KafkaError

POLL_SECONDS = 0.2
IDLE_SECONDS = 3.0  # until we look ourselves whether there is a batch that the client library cannot read
IDLE_MAX_SECONDS = 60.0
SLOW_SECONDS = 1.0  # of a leader to tell the offsets; its records may then come after the command's deadline
COMMIT_SECONDS = 0.5
JOIN_SECONDS = 60.0


class Selection(NamedTuple):
    """The records to read: their topics, and the positions between which they are; without numbers, all partitions."""

    topics: Sequence[str]
    are_patterns: bool
    numbers: Collection[int]
    start: Position
    end: Position | None
    committed_only: bool

    @property
    def isolation(self) -> dict[str, str]:
        return {"isolation.level": "read_committed" if self.committed_only else "read_uncommitted"}


class Read(NamedTuple):
    """Records, and how to get their fields."""

    records: list[Any]
    access: Access


class Reader:
    """Partitions of topics, from a position."""

    consumer: RecordConsumer

    def __init__(self, cluster: Cluster, wanted: Selection) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._starts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._reached: set[TopicPartition] = set()
        self._of_slow: dict[int, list[TopicPartition]] = {}  # partitions by their leader, if one of them is slow
        self._until = math.inf  # for the first record of each of them
        self.brokers: list[Address] = []
        self._own = BatchReader(cluster, committed_only=wanted.committed_only)
        self._idle_seconds = IDLE_SECONDS
        self._read_at = time.monotonic()
        self.unreadable = 0  # batches

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Raises CommandFailed, also for failures inside."""
        wanted = self._wanted
        with connected(self._cluster) as admin:
            self.brokers = brokers_of(admin)
            partitions = chosen(partitions_of(admin, topics_of(admin, wanted)), wanted.numbers)
            asked_at = time.monotonic()
            ranges = ranges_of(admin, partitions, committed_only=wanted.committed_only)
            if len(ranges) == len(partitions) and time.monotonic() - asked_at > SLOW_SECONDS:
                self._of_slow = by_leader(admin, ranges)
                self._until = patience.until()
            self._starts = offsets_at(admin, wanted.start, ranges, committed_only=wanted.committed_only)
            ends = {at: inside.latest for at, inside in ranges.items()}
            if wanted.end is not None:
                ends = offsets_at(admin, wanted.end, ranges, committed_only=wanted.committed_only)
            self._ends = {at: end for at, end in ends.items() if at in self._starts}
        with self._consuming(**{"auto.offset.reset": "earliest"}):
            self.consumer.assign({at: self._starts[at] for at in self._ends})
            yield

    @contextmanager
    def _consuming(self, **settings: str) -> Iterator[None]:
        settings |= self._wanted.isolation
        with closing(self._own), consuming(self._cluster, self._own.headers, **settings) as self.consumer:
            yield

    def expected(self, count: int | None) -> int | None:
        """The most records there can be to read."""
        there = sum(max(0, end - self._starts[partition]) for partition, end in self._ends.items())
        return there if count is None else min(count, there)

    def batches(self, count: int | None, *, follow: bool) -> Iterator[Read]:
        """Records as they come, `count` at most; none for each poll that found none."""
        left = count
        while follow or not (self._is_at_end() or self._is_too_late()):
            records, access = self._polled(left)
            if self._wanted.end is not None:
                records = self._before_the_end(records, access)
            yield Read(records, access)
            if left is not None:
                left -= len(records)
                if left <= 0:
                    return

    def _polled(self, at_most: int | None) -> Read:
        """Poll the client library; where it cannot go on, read ourselves."""
        try:
            records = self.consumer.poll(POLL_SECONDS, at_most=at_most)
        except CannotReadOn as stopped:
            own = self._own_records(at_most)
            if own is None:
                raise stopped.__cause__ or stopped from None
            return Read(own, ATTRIBUTES)
        now = time.monotonic()
        if records:
            self._read_at, self._idle_seconds = now, IDLE_SECONDS
        elif now - self._read_at > self._idle_seconds:  # librdkafka has no error for some of what it cannot read
            self._read_at, self._idle_seconds = now, min(2 * self._idle_seconds, IDLE_MAX_SECONDS)
            return Read(self._own_records(at_most) or [], ATTRIBUTES)
        return Read(records, self.consumer.access)

    def _own_records(self, at_most: int | None) -> list[Any] | None:
        """Read behind the positions of all partitions, and go on behind that; None if there is nothing, or no broker.

        What cannot be read here either is reported.
        """
        found: list[Any] | None = None
        try:
            positions = {at: self.consumer.next_offset(at) for at in self.consumer.assignment() - self._reached}
            known = {at: offset for at, offset in positions.items() if offset is not None}
            unread = [at for at, offset in known.items() if offset < self._ends.get(at, 0)]
            for at in unread or self._own.unread(known):
                left = None if at_most is None else at_most - len(found or ())
                if left == 0:
                    break
                passed = self._own.passed(at, known[at])
                records = passed.records[:left]
                behind = passed.next if len(records) == len(passed.records) else records[-1].offset + 1
                if behind <= known[at]:
                    continue
                found = (found or []) + records
                self.consumer.seek(at, behind)
                for each in passed.unreadable:
                    if each.next <= behind:
                        self.unreadable += 1
                        complain(f"topic {at.topic}: {each}")
        except (CommandFailed, ClientError, KafkaError):  # what is found is printed; the next poll has the error
            return found
        return found

    def printed(self) -> None:
        """Called after every poll, when its records are printed; only a group commits them."""

    def _before_the_end(self, records: list[Any], access: Access) -> list[Any]:
        topic, partition, offset = access[:3]
        return [
            record
            for record in records
            if offset(record) < self._ends[TopicPartition(topic(record), partition(record))]
        ]

    def _is_too_late(self) -> bool:
        """Whether the deadline of the command has passed, and only slow leaders have not sent a record: it is noted."""
        now = time.monotonic()
        if now < self._until or now - self._read_at < SLOW_SECONDS:
            return False
        left = self._ends.keys() - self._reached
        if any(self.consumer.next_offset(at) not in (None, self._starts[at]) for at in left):
            return False
        for leader, led in self._of_slow.items():
            if late := left.intersection(led):
                lacks_answer(TooSlow(leader), named(late))
        return True

    def _is_at_end(self) -> bool:
        new = self.consumer.reached(self._ends) | {at for at, end in self._ends.items() if self._starts[at] >= end}
        new -= self._reached
        if new:
            self.consumer.pause(new)
            self._reached |= new
        return len(self._reached) == len(self._ends)


class GroupReader(Reader):
    """Topics as a member of a group: from the committed offsets, else from the position."""

    def __init__(self, cluster: Cluster, wanted: Selection, group: str) -> None:
        super().__init__(cluster, wanted)
        self._group = group
        self._printed: dict[TopicPartition, int] = {}
        self._sent: dict[TopicPartition, int] = {}  # in commits that have not failed
        self._committed_at = time.monotonic()
        self._join_deadline = time.monotonic() + JOIN_SECONDS

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Raises CommandFailed, also for failures inside."""
        with connected(self._cluster) as admin:
            self.brokers = brokers_of(admin)
            topics = topics_of(admin, self._wanted)
            partitions_of(admin, topics)  # fails for a missing topic; subscribing might create it
            check_group_protocol(admin, self._cluster.properties)
        settings = {
            "group.id": self._group,
            "auto.offset.reset": "earliest" if self._wanted.start.kind == "beginning" else "latest",
        }
        with self._consuming(**settings):
            self.consumer.subscribe(topics, on_revoked=self._on_revoked)
            try:
                yield
            finally:
                self._commit()

    def expected(self, count: int | None) -> int | None:
        """Unknown until the group has assigned its partitions."""
        return count

    def printed(self) -> None:
        self._printed = self.consumer.positions()
        now = time.monotonic()
        if now - self._committed_at >= COMMIT_SECONDS:
            self._committed_at = now
            self._commit_soon()

    def _commit_soon(self) -> None:
        """Commit without waiting: the command goes on when a coordinator that is gone is back."""
        if self.consumer.failed_commits:
            self.consumer.failed_commits = 0
            self._sent.clear()
        new = dict(self._printed.items() - self._sent.items())
        if new:
            self._sent |= new
            self.consumer.commit_soon(new)

    def _on_revoked(self) -> None:
        """Commit what is printed of partitions that go to another member, as far as the client can here."""
        printed, self._printed, self._sent = self._printed, {}, {}
        with rebalances_suppressed():
            if printed:
                self.consumer.commit_revoked(printed)

    def _commit(self) -> None:
        """Commit all that is printed, and wait for the answer."""
        printed, self._printed = self._printed, {}
        with rebalances_suppressed():
            if printed:
                self.consumer.commit(printed)

    def _is_at_end(self) -> bool:
        mine = self.consumer.assignment()
        if not mine:
            if time.monotonic() > self._join_deadline:
                raise CommandFailed(
                    f"group {self._group} assigned no partition to this member within {JOIN_SECONDS:.0f} s; it may "
                    f"have more members than partitions, see `minibroker groups describe {self._group}`"
                )
            return False
        if mine != self._ends.keys():
            self._ends = self._ends_of(mine)
        return len(self.consumer.reached(self._ends)) == len(self._ends)

    def _ends_of(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of these partitions; of newly assigned ones, where they end now."""
        new: Mapping[TopicPartition, int] = self.consumer.end_offsets(partitions - self._ends.keys())
        return {partition: self._ends.get(partition, new.get(partition, 0)) for partition in partitions}


@contextmanager
def rebalances_suppressed() -> Iterator[None]:
    """For a commit that comes too late: another member has the partitions, and reads these records again."""
    try:
        yield
    except KafkaError as error:
        if error.code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            raise


def topics_of(admin: Client, wanted: Selection) -> list[str]:
    """The topics by name, or all but Kafka's own that match a whole pattern. Raises CommandFailed."""
    if not wanted.are_patterns:
        return list(dict.fromkeys(wanted.topics))
    patterns = [re.compile(pattern) for pattern in wanted.topics]
    found = [
        row.name
        for row in admin.metadata().topics
        if not row.is_internal and any(pattern.fullmatch(row.name) for pattern in patterns)
    ]
    if not found:
        raise CommandFailed(f"no topic matches {' or '.join(wanted.topics)}; `minibroker topics list` shows the topics")
    return sorted(found)
