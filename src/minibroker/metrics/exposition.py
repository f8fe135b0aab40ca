"""Metrics as Prometheus reads them, made of the families of a broker and the facts of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from minibroker.metrics.catalogue import BY_NAME, COUNTER, GAUGE, HISTOGRAM, RESOURCES, Entry, entries_of
from minibroker.metrics.facts import ClusterFacts, Family

QUANTILES = {
    "50thPercentile": "0.50",
    "75thPercentile": "0.75",
    "95thPercentile": "0.95",
    "98thPercentile": "0.98",
    "99thPercentile": "0.99",
    "999thPercentile": "0.999",
}
KINDS = {COUNTER: "counter", GAUGE: "gauge", HISTOGRAM: "summary"}  # in Prometheus
LagSeconds = Callable[[tuple[str, int], int], float | None]


class Collected:
    """Metrics by name, in the order in which they were found. A registry for prometheus-client's encoders."""

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def add(self, entry: Entry, labels: dict[str, str], value: float, suffix: str = "") -> None:
        """Add a sample; `suffix` is `_count` for the number of a summary."""
        name = entry.prometheus.removesuffix("_total") if entry.kind == COUNTER else entry.prometheus
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = Metric(name, help_of(entry), KINDS[entry.kind])
        metric.add_sample(entry.prometheus + suffix, labels, value)

    def collect(self) -> Iterable[Metric]:
        return self._metrics.values()


def help_of(entry: Entry) -> str:
    """The unit and the meaning; of Kafka's metrics also the MBean."""
    where = f" ({entry.type},name={entry.name})" if entry.type.startswith("kafka.") else ""
    return f"{entry.unit} {entry.text}{where}"


def collected(families: Iterable[Family], facts: ClusterFacts, lag_seconds: LagSeconds) -> Collected:
    found = Collected()
    for family in families:
        add_family(found, family)
    add_cluster(found, facts, lag_seconds)
    return found


def exposition(found: Collected, accept: str = "") -> tuple[bytes, str]:
    """The text, in the newest format that a scraper accepts, and its content type."""
    encode, content_type = choose_encoder(accept)
    registry: Any = found
    return encode(registry), content_type


def add_family(found: Collected, family: Family) -> None:
    keys, resource = len(family["keys"]), RESOURCES.get(family["type"])
    for place, entry in enumerate(entries_of(family), start=keys):
        if not entry.kind:
            continue  # what `add_cluster` has by other names
        for row in family["rows"]:
            values = map(str, row[:keys] if resource is None else [resource, *row[:keys]])
            labels = dict(zip(entry.labels, values, strict=True))
            if entry.kind == HISTOGRAM:
                add_histogram(found, entry, labels, row[place])
            else:
                found.add(entry, labels, row[place])


def add_histogram(found: Collected, entry: Entry, labels: dict[str, str], value: Mapping[str, float]) -> None:
    for attribute, quantile in QUANTILES.items():
        found.add(entry, {**labels, "quantile": quantile}, value[attribute])
    found.add(entry, labels, value["Count"], "_count")


def add_cluster(found: Collected, facts: ClusterFacts, lag_seconds: LagSeconds) -> None:
    for name, labels, value in cluster_samples(facts, lag_seconds):
        entry = BY_NAME[name]
        found.add(entry, dict(zip(entry.labels, map(str, labels), strict=True)), value)


Sample = tuple[str, Sequence[Any], float]


def cluster_samples(facts: ClusterFacts, lag_seconds: LagSeconds) -> Iterator[Sample]:
    yield "kafka_brokers", (), len(facts.brokers)
    for broker_id, address in facts.brokers.items():
        yield "kafka_broker_info", (broker_id, address), 1
    topics: dict[str, int] = {}
    for (topic, _), _ in facts.partitions.items():
        topics[topic] = topics.get(topic, 0) + 1
    for topic, partitions in topics.items():
        yield "kafka_topic_partitions", (topic,), partitions
    yield from partition_samples(facts)
    yield from group_samples(facts, lag_seconds)


def partition_samples(facts: ClusterFacts) -> Iterator[Sample]:
    prefix = "kafka_topic_partition_"
    for key, each in facts.partitions.items():
        known = {
            "current_offset": each.current_offset,
            "oldest_offset": each.oldest_offset,
            "leader": each.leader,
            "in_sync_replica": each.in_sync_replicas,
            "replicas": each.replicas,
            "leader_is_preferred": int(each.leader == each.preferred_leader),
            "under_replicated_partition": int(each.in_sync_replicas < each.replicas),
        }
        for name, value in known.items():
            if value is not None:
                yield prefix + name, key, value


def group_samples(facts: ClusterFacts, lag_seconds: LagSeconds) -> Iterator[Sample]:
    for group, members in facts.members.items():
        yield "kafka_consumergroup_members", (group,), members
    for group, committed in facts.committed.items():
        offset_sums: dict[str, int] = {}
        lag_sums: dict[str, int] = {}
        for key, offset in committed.items():
            partition = facts.partitions.get(key)
            end = None if partition is None else partition.current_offset
            offset_sums[key[0]] = offset_sums.get(key[0], 0) + offset
            yield "kafka_consumergroup_current_offset", (group, *key), offset
            if end is None:
                continue  # of a deleted topic
            lag = max(0, end - offset)
            lag_sums[key[0]] = lag_sums.get(key[0], 0) + lag
            yield "kafka_consumergroup_lag", (group, *key), lag
            seconds = lag_seconds(key, offset)
            if seconds is not None:
                yield "kafka_consumergroup_group_lag_seconds", (group, *key), round(seconds, 3)
        for topic, total in offset_sums.items():
            yield "kafka_consumergroup_current_offset_sum", (group, topic), total
        for topic, total in lag_sums.items():
            yield "kafka_consumergroup_lag_sum", (group, topic), total
