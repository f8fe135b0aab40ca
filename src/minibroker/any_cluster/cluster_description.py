"""Describes a cluster: its brokers with their roles, and the partitions that lack replicas or a leader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, NamedTuple

from minibroker.any_cluster.cluster import ClusterFacts


class BrokerRow(NamedTuple):
    """A broker, with the partitions that it leads, has a replica of, and has one of that is not in sync.

    `address` is None of a broker that has replicas and is not alive.
    """

    broker: int
    address: str | None
    rack: str | None
    is_controller: bool
    leads: int
    replicas: int
    out_of_sync: int


class UnderReplicated(NamedTuple):
    topic: str
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]


class ClusterDescription(NamedTuple):
    cluster_id: str | None
    brokers: list[BrokerRow]
    under_replicated: list[UnderReplicated]


def described(cluster: ClusterFacts, topics: Collection[Any]) -> ClusterDescription:
    """Count the roles of each broker, by the rows of Metadata."""
    partitions = [(topic.name, row) for topic in topics for row in topic.partitions]
    leads = Counter(row.leader_id for _, row in partitions)
    replicas = Counter(each for _, row in partitions for each in row.replica_nodes)
    lacking = Counter(each for _, row in partitions for each in set(row.replica_nodes) - set(row.isr_nodes))
    alive = {each.id: each for each in cluster.brokers}
    rows = [
        BrokerRow(
            each,
            str(alive[each].address) if each in alive else None,
            alive[each].rack if each in alive else None,
            each == cluster.controller_id,
            leads[each],
            replicas[each],
            lacking[each],
        )
        for each in sorted({*alive, *replicas})
    ]
    under_replicated = [
        UnderReplicated(
            name,
            row.partition,
            None if row.leader_id < 0 else row.leader_id,
            list(row.replica_nodes),
            sorted(row.isr_nodes),
        )
        for name, row in partitions
        if row.leader_id < 0 or len(row.isr_nodes) < len(row.replica_nodes)
    ]
    return ClusterDescription(cluster.cluster_id, rows, sorted(under_replicated))
