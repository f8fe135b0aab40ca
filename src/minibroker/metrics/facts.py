"""The facts about a cluster, from Kafka's protocol or from minibroker itself: brokers, partitions, groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Family = Mapping[str, Any]  # as `inside.metrics` has it: type, keys, names, about, rows
PartitionKey = tuple[str, int]


class PartitionFacts(NamedTuple):
    """`leader` is None without one, and then the offsets may be unknown, too."""

    leader: int | None
    preferred_leader: int
    replicas: int
    in_sync_replicas: int
    oldest_offset: int | None
    current_offset: int | None


@dataclass
class ClusterFacts:
    brokers: dict[int, str] = field(default_factory=dict)  # addresses by id
    partitions: dict[PartitionKey, PartitionFacts] = field(default_factory=dict)
    members: dict[str, int] = field(default_factory=dict)  # by group
    committed: dict[str, dict[PartitionKey, int]] = field(default_factory=dict)  # offsets by group


def values_of(families: Iterable[Family], mbean_type: str) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The rows of a type: the values of the keys, and the others by name."""
    for family in families:
        if family["type"] == mbean_type:
            keys, names = len(family["keys"]), family["names"]
            for row in family["rows"]:
                yield tuple(row[:keys]), dict(zip(names, row[keys:], strict=True))


def facts_of(families: Iterable[Family]) -> ClusterFacts:
    """The facts about a cluster in a minibroker's own metrics."""
    families = list(families)
    facts = ClusterFacts()
    for (broker_id, address), _ in values_of(families, "minibroker:type=Broker"):
        facts.brokers[broker_id] = address
    in_cluster = dict(values_of(families, "kafka.cluster:type=Partition"))
    logs = dict(values_of(families, "kafka.log:type=Log"))
    for key, own in values_of(families, "minibroker:type=Partition"):
        if key in in_cluster and key in logs:  # else it was created or deleted during the scan
            facts.partitions[key[0], key[1]] = PartitionFacts(
                own["Leader"] if own["Leader"] >= 0 else None,
                own["PreferredLeader"],
                in_cluster[key]["ReplicasCount"],
                in_cluster[key]["InSyncReplicasCount"],
                logs[key]["LogStartOffset"],
                own["HighWatermark"],
            )
    for key, values in values_of(families, "minibroker:type=Group"):
        if "Members" in values:
            facts.members[key[0]] = values["Members"]
        else:
            facts.committed.setdefault(key[0], {})[key[1], key[2]] = values["CommittedOffset"]
    return facts
