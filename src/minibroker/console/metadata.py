"""The topics and brokers of the cluster, asked for at most as often as it is cheap, and shared by all pages."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import trio

from minibroker.any_cluster import config_admin
from minibroker.any_cluster.acl_admin import hidden_unless
from minibroker.any_cluster.cluster import controller_of, release_of
from minibroker.any_cluster.shortfalls import lacks, noting
from minibroker.console.kafka_clients import KafkaClients
from minibroker.errors import CommandFailed

SHORTEST_SECONDS = 1.0
YOUNG_SECONDS = 60.0
# A snapshot of 10,000 topics takes a quarter of a second: it is kept this much longer than it took. One that has waited
# for a broker to come back took longer than it costs.
KEPT_FACTOR = 25
LONGEST_SECONDS = 10.0


class BrokerRow(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionRow(NamedTuple):
    """`leader` is None for a partition without one, `epoch` where brokers do not give it (before Kafka 2.1)."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    epoch: int | None = None


def offline(partitions: Iterable[PartitionRow]) -> int:
    return sum(each.leader is None for each in partitions)


def under_replicated(partitions: Iterable[PartitionRow]) -> int:
    return sum(len(each.isr) < len(each.replicas) for each in partitions)


class TopicRow(NamedTuple):
    name: str
    is_internal: bool
    partitions: tuple[PartitionRow, ...]

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)


class Snapshot(NamedTuple):
    """`topics` are in the order of their names; `version` is the newest release of Kafka that has a broker's APIs.

    `lacks` has what the user may not see.
    """

    brokers: tuple[BrokerRow, ...]
    controller: int | None
    cluster_id: str | None
    version: str
    topics: dict[str, TopicRow]
    lacks: tuple[str, ...] = ()

    @property
    def gone(self) -> list[int]:
        """The brokers that have replicas, and do not run."""
        known = {each.id for each in self.brokers}
        return sorted(
            {broker for topic in self.topics.values() for each in topic.partitions for broker in each.replicas} - known
        )


class Metadata:
    """The newest snapshot of a cluster."""

    def __init__(self, kafka: KafkaClients) -> None:
        self._kafka = kafka
        self._snapshot: Snapshot | None = None
        self._begun = -math.inf
        self._good_until = 0.0
        self._failure = ""
        self._failed_at = -math.inf
        self._asking = trio.Lock()

    async def snapshot(self, *, fresh: bool = False) -> Snapshot:
        """A `fresh` one is not older than the call; calls that wait share it, or its failure. Raises CommandFailed."""
        called = time.monotonic()
        async with self._asking:
            now = time.monotonic()
            if called < self._failed_at:
                raise CommandFailed(self._failure)
            is_good = now < self._good_until and not (fresh and self._begun < called)
            if self._snapshot is None or not is_good:
                try:
                    self._snapshot = await self._kafka.ask(snapshot_of)
                except CommandFailed as error:
                    self._failure, self._failed_at = str(error), time.monotonic()
                    raise
                self._begun = now
                ended = time.monotonic()
                kept_seconds = (ended - now) * KEPT_FACTOR
                self._good_until = ended + min(max(SHORTEST_SECONDS, kept_seconds), LONGEST_SECONDS)
            for line in self._snapshot.lacks:
                lacks(line)
            return self._snapshot

    async def kept(self) -> Snapshot:
        """The one there is, if it is not too old to begin with; else as `snapshot`."""
        is_young = time.monotonic() - self._begun < YOUNG_SECONDS
        return self._snapshot if self._snapshot is not None and is_young else await self.snapshot()

    @property
    def last(self) -> Snapshot | None:
        """The newest one there is, for a thread that cannot wait."""
        return self._snapshot

    def forget(self) -> None:
        """Ask again at the next request: something has changed."""
        self._good_until = 0.0
        self._begun = -math.inf


class Release:
    """As which release of Kafka the brokers act, asked of one of them once a minute at most."""

    def __init__(self, kafka: KafkaClients) -> None:
        self._kafka = kafka
        self._known: str | None = None
        self._good_until = -math.inf

    async def of(self, snapshot: Snapshot) -> str:
        """The release that the settings of a broker name; else the one that has the same APIs."""
        if time.monotonic() >= self._good_until and snapshot.brokers:
            broker = snapshot.brokers[0].id
            try:
                self._known = await self._kafka.ask(lambda client: config_admin.release_of(client, broker))
            except CommandFailed:  # without the right to describe a broker, its APIs are all there is to go by
                self._known = None
            self._good_until = time.monotonic() + YOUNG_SECONDS
        return self._known or snapshot.version


def snapshot_of(client: Any) -> Snapshot:
    found = client.metadata()
    controller = controller_of(client, found)
    with noting() as lines:
        hidden_unless(found.topics, client, "topics")
    return Snapshot(
        tuple(
            sorted(
                (BrokerRow(row.node_id, row.host, row.port, row.rack) for row in found.brokers),
                key=lambda each: each.id,
            )
        ),
        controller if controller >= 0 else None,
        found.cluster_id,
        ".".join(map(str, release_of(client))),
        {row.name: topic_row(row) for row in sorted(found.topics, key=lambda row: str(row.name))},
        tuple(lines),
    )


def topic_row(row: Any) -> TopicRow:
    partitions = sorted(
        PartitionRow(
            each.partition,
            each.leader_id if each.leader_id >= 0 else None,
            tuple(each.replica_nodes),
            tuple(each.isr_nodes),
            None if (each.leader_epoch or 0) < 0 else each.leader_epoch,
        )
        for each in row.partitions
    )
    return TopicRow(row.name, row.is_internal, tuple(partitions))
