"""The metrics of a cluster, and the names for Prometheus of the metrics that a broker describes.

Kafka's metrics get the names that the JMX exporter gives them by its rules for Kafka 2.0: in lower case, a rate as the
counter `_total`, a histogram as gauges with the label `quantile` and a counter `_count`. Metrics of a cluster have the
names of kafka_exporter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from minibroker.metrics.facts import Family

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
RATE = "PerSec"
LABELS = {"client-id": "clientId"}  # for Prometheus, where they differ from Kafka's keys
RESOURCES = {f"kafka.server:type={name}": name for name in ("Produce", "Fetch", "Request")}  # what quotas are of


class Entry(NamedTuple):
    """`mbean` is the type and the name of Kafka's MBean, with the keys of its labels; empty for those of a cluster."""

    type: str
    name: str
    labels: tuple[str, ...]
    kind: str
    unit: str
    text: str
    prometheus: str


# Of any cluster: the names and labels of kafka_exporter; lag in seconds has the name that lag exporters give it.
CLUSTER = """
kafka_brokers () gauge brokers | in the cluster
kafka_broker_info (id, address) gauge 1 | for each broker
kafka_topic_partitions (topic) gauge partitions | of the topic
kafka_topic_partition_current_offset (topic, partition) gauge offset | of the next record that consumers read
kafka_topic_partition_oldest_offset (topic, partition) gauge offset | of the first record
kafka_topic_partition_in_sync_replica (topic, partition) gauge replicas | in sync
kafka_topic_partition_leader (topic, partition) gauge broker id | of the leader
kafka_topic_partition_leader_is_preferred (topic, partition) gauge 1 or 0 | whether the leader is the first replica
kafka_topic_partition_replicas (topic, partition) gauge replicas | assigned
kafka_topic_partition_under_replicated_partition (topic, partition) gauge 1 or 0 | whether a replica is out of sync
kafka_consumergroup_current_offset (consumergroup, topic, partition) gauge offset | committed by the group
kafka_consumergroup_current_offset_sum (consumergroup, topic) gauge offset | committed, the sum over the partitions
kafka_consumergroup_lag (consumergroup, topic, partition) gauge records | from the committed offset to the end
kafka_consumergroup_lag_sum (consumergroup, topic) gauge records | of lag, the sum over the partitions
kafka_consumergroup_members (consumergroup) gauge members | of the group
kafka_consumergroup_group_lag_seconds (group, topic, partition) gauge s | since the end was at the committed offset
"""


def entries_of(family: Family) -> list[Entry]:
    """The metrics of a family that a broker describes, in the order of their names; earlier minibrokers describe none.

    Those without a kind are not for Prometheus.
    """
    mbean_type, labels = family["type"], labels_of(family["type"], family["keys"])
    return [
        Entry(mbean_type, name, labels, kind, unit, text, own or name_for_prometheus(mbean_type, name, kind))
        for name, (kind, unit, text, own) in zip(family["names"], family.get("about", ()), strict=False)
    ]


def labels_of(mbean_type: str, keys: Sequence[str]) -> tuple[str, ...]:
    """The labels of a type of MBean for Prometheus; those of quotas have the type among them."""
    labels = tuple(LABELS.get(key, key) for key in keys)
    return ("resource", *labels) if mbean_type in RESOURCES else labels


def entries_of_cluster() -> list[Entry]:
    entries = []
    for name, labels, kind, unit, text in re.findall(r"^(\w+) \((.*?)\) (\w+) (.+?) \| (.+)$", CLUSTER, re.MULTILINE):
        entries.append(Entry("", name, tuple(re.findall(r"\w+", labels)), kind, unit, text, name))
    return entries


def name_for_prometheus(mbean_type: str, name: str, kind: str) -> str:
    """The name that the JMX exporter's rules for Kafka 2.0 give an MBean."""
    domain, _, kept = mbean_type.partition(":type=")
    base = "_".join((domain, kept, name.removesuffix(RATE))).lower()
    base = re.sub(r"[^a-z0-9_]", "_", base)
    return f"{base}_total" if kind == COUNTER and not base.endswith("_total") else base


BY_NAME = {entry.prometheus: entry for entry in entries_of_cluster()}
