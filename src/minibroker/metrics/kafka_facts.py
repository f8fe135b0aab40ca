"""The facts of any Kafka cluster, asked by Kafka's protocol; of `GROUPS_PER_REQUEST` groups in one request."""

from __future__ import annotations

from minibroker.any_cluster.acl_admin import hidden_unless
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import both, connected, lacks_answer, topics_of
from minibroker.any_cluster.described_groups import described, group_ids
from minibroker.any_cluster.group_admin import committed_of
from minibroker.any_cluster.partition_offsets import ends_of
from minibroker.client.client import Client
from minibroker.client.errors import NoAnswer
from minibroker.client.topic_partition import TopicPartition
from minibroker.metrics.facts import ClusterFacts, PartitionFacts
from minibroker.protocol.errors import KafkaError

GROUPS_PER_REQUEST = 100


def facts_of_cluster(cluster: Cluster) -> ClusterFacts:
    """Raises CommandFailed."""
    with connected(cluster) as client:
        facts = ClusterFacts({each.id: f"{each.address.host}:{each.address.port}" for each in client.brokers.values()})
        both(lambda: add_partitions(client, facts), lambda: add_groups(client, facts))
    return facts


def add_partitions(client: Client, facts: ClusterFacts) -> None:
    topics = hidden_unless(topics_of(client), client, "topics")
    rows = {(topic.name, row.partition): row for topic in topics for row in topic.partitions}
    led = [TopicPartition(*key) for key, row in sorted(rows.items()) if row.leader_id >= 0]
    oldest, current = ends_of(client, led)
    for key, row in sorted(rows.items()):
        facts.partitions[key] = PartitionFacts(
            row.leader_id if row.leader_id >= 0 else None,
            row.replica_nodes[0] if row.replica_nodes else -1,
            len(row.replica_nodes),
            len(row.isr_nodes),
            oldest.get(TopicPartition(*key)),
            current.get(TopicPartition(*key)),
        )


def add_groups(client: Client, facts: ClusterFacts) -> None:
    names = group_ids(client)
    for first in range(0, len(names), GROUPS_PER_REQUEST):
        try:
            found = described(client, names[first : first + GROUPS_PER_REQUEST])
            facts.members |= {name: len(group.members) for name, group in found.items() if group.members is not None}
            committed = committed_of(client, [name for name, group in found.items() if group.error is None])
        except (NoAnswer, KafkaError) as error:
            lacks_answer(error, "what it coordinates")
            continue
        for name, offsets in committed.items():
            facts.committed[name] = {(key.topic, key.partition): offset for key, offset in offsets.items()}
