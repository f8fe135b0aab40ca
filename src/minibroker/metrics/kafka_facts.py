"""The facts of any Kafka cluster, asked by Kafka's protocol; of `GROUPS_PER_REQUEST` groups in one request."""

from __future__ import annotations

from typing import Any

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import (
    TopicPartition,
    both,
    connected,
    errors,
    hidden_unless,
    lacks_answer,
    live_brokers,
)
from minibroker.any_cluster.described_groups import described, group_ids
from minibroker.any_cluster.group_admin import committed_of
from minibroker.any_cluster.partition_offsets import ends_of
from minibroker.metrics.facts import ClusterFacts, PartitionFacts

GROUPS_PER_REQUEST = 100


def facts_of_cluster(cluster: Cluster) -> ClusterFacts:
    """Raises CommandFailed."""
    with connected(cluster) as client:
        facts = ClusterFacts({row["broker_id"]: f"{row['host']}:{row['port']}" for row in live_brokers(client)})
        both(lambda: add_partitions(client, facts), lambda: add_groups(client, facts))
    return facts


def add_partitions(client: Any, facts: ClusterFacts) -> None:
    rows = {
        (topic["name"], row["partition_index"]): row
        for topic in hidden_unless(client.describe_topics(), client, "topics")
        for row in topic["partitions"]
    }
    led = [TopicPartition(*key) for key, row in sorted(rows.items()) if row["leader_id"] >= 0]
    oldest, current = ends_of(client, led)
    for key, row in sorted(rows.items()):
        facts.partitions[key] = PartitionFacts(
            row["leader_id"] if row["leader_id"] >= 0 else None,
            row["replica_nodes"][0] if row["replica_nodes"] else -1,
            len(row["replica_nodes"]),
            len(row["isr_nodes"]),
            oldest.get(TopicPartition(*key)),
            current.get(TopicPartition(*key)),
        )


def add_groups(client: Any, facts: ClusterFacts) -> None:
    names = group_ids(client)
    for first in range(0, len(names), GROUPS_PER_REQUEST):
        try:
            found = described(client, names[first : first + GROUPS_PER_REQUEST])
            facts.members |= {name: len(group.members) for name, group in found.items() if group.members is not None}
            committed = committed_of(client, [name for name, group in found.items() if group.error is None])
        except errors.KafkaError as error:
            lacks_answer(error, "what it coordinates")
            continue
        for name, offsets in committed.items():
            facts.committed[name] = {(key.topic, key.partition): offset for key, offset in offsets.items()}
