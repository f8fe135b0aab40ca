"""`minibroker health`, `apis`, `offsets` and `log-dirs`: any Kafka cluster at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from minibroker.admin.partitions import chosen, first_of
from minibroker.admin.positions import Position
from minibroker.any_cluster import transaction_admin
from minibroker.any_cluster.acl_admin import hidden_unless
from minibroker.any_cluster.api_names import api_name
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import (
    ClusterFacts,
    both,
    connected,
    described_cluster,
    of_each,
    topics_of,
)
from minibroker.any_cluster.partition_offsets import configs_of_topics, partitions_of, ranges_of
from minibroker.any_cluster.record_distances import offsets_at
from minibroker.cli.completion import topic_names
from minibroker.cli.options import numbers_of
from minibroker.cli.parameters import PartitionsOption, TopicArgument, on_cluster, position_option
from minibroker.cli.shown import Shown, table
from minibroker.cli.terminal import complain, print_line, print_table
from minibroker.client.client import Question
from minibroker.client.topic_partition import by_topic
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.text import as_utc, counted

app = typer.Typer()

HEALTH_EPILOG = """Exit status: 0 if the cluster has a controller and every partition a leader; 1 if not, or if no \
broker answers. Replicas that are out of sync are listed and do not change the status.

In a Dockerfile: HEALTHCHECK CMD minibroker health"""


@app.command("health", epilog=HEALTH_EPILOG)
@on_cluster
def health(cluster: Cluster) -> Shown:
    """Check that a cluster can serve; the exit status is 1 if not."""
    with connected(cluster) as client:
        cluster_facts = described_cluster(client)
        topics = hidden_unless(cluster_facts.topics, client, "topics")
        lacking = [topic.name for topic in topics if any(map(lacks_replicas, topic.partitions))]
        configs = configs_of_topics(client, lacking, "min.insync.replicas")
        min_isr = {topic: int(each["min.insync.replicas"]) for topic, each in configs.items() if each}
        found = health_of(cluster_facts, topics, min_isr)
    return Shown(found, lambda: print_health(found), is_failed=not found["healthy"])


def lacks_replicas(partition: Any) -> bool:
    return len(partition.isr_nodes) < len(partition.replica_nodes)


def health_of(cluster: ClusterFacts, topics: list[Any], min_isr: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Judge a cluster. `min_isr` has min.insync.replicas of the topics that lack replicas, as far as it is known."""
    partitions = [(topic.name, partition.partition, partition) for topic in topics for partition in topic.partitions]
    leaderless = [f"{name}-{number}" for name, number, row in partitions if row.leader_id < 0]
    behind = [f"{name}-{number}" for name, number, row in partitions if lacks_replicas(row)]
    too_few = [
        f"{name}-{number}"
        for name, number, row in partitions
        if row.leader_id >= 0 and len(row.isr_nodes) < (min_isr or {}).get(name, 0)
    ]
    return {
        "healthy": not leaderless and not too_few and cluster.controller_id >= 0,
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id if cluster.controller_id >= 0 else None,
        "brokers": [each.id for each in cluster.brokers],
        "topics": len(topics),
        "partitions": len(partitions),
        "without_leader": leaderless,
        "below_min_isr": too_few,
        "not_in_sync": behind,
    }


def print_health(found: dict[str, Any]) -> None:
    if found["healthy"]:
        brokers, topics = counted(len(found["brokers"]), "broker"), counted(found["topics"], "topic")
        print(f"healthy: {brokers}, {topics}, {counted(found['partitions'], 'partition')}, each with a leader")
    if found["controller"] is None:
        complain("the cluster has no controller; check that all brokers run, and see their logs")
    if found["without_leader"]:
        complain(f"without a leader: {first_of(found['without_leader'])}; check that the brokers of their replicas run")
    if found["below_min_isr"]:
        complain(
            f"fewer in-sync replicas than min.insync.replicas: {first_of(found['below_min_isr'])}; "
            "producers with acks=all are refused: check that the brokers of their replicas run"
        )
    if found["not_in_sync"]:
        print_line(f"replicas out of sync: {first_of(found['not_in_sync'])}", "yellow")


@app.command("apis", epilog="Example: minibroker apis -o json")
@on_cluster
def apis(cluster: Cluster) -> Shown:
    """List the requests a broker answers, with their versions."""
    with connected(cluster) as client:
        offered = sorted((key, api_name(key), *versions) for key, versions in client.versions.items())
    names = ("key", "name", "min_version", "max_version")
    documents = [dict(zip(names, row, strict=True)) for row in offered]
    return table(documents, ("KEY", "<NAME", "FROM", "TO"), offered)


@app.command("offsets", epilog="Example: minibroker offsets flights --at @2013-01-01T06:00:00Z")
@on_cluster
def offsets(
    topic: TopicArgument,
    cluster: Cluster,
    position: Annotated[Position | None, position_option("--at", does="Show the offset of a position")] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="End before the first open transaction.")
    ] = False,
    partitions: PartitionsOption = None,
) -> Shown:
    """Show where each partition begins and ends."""
    with connected(cluster) as client:
        wanted = chosen(partitions_of(client, [topic]), numbers_of(partitions))
        ranges = ranges_of(client, wanted, committed_only=read_committed)
        at = {} if position is None else offsets_at(client, position, ranges, committed_only=read_committed)
    unknown = {"earliest": None, "latest": None}
    rows = [
        {"partition": each.partition, **(ranges[each]._asdict() if each in ranges else unknown)}
        | ({} if position is None else {"offset": at.get(each)})
        for each in wanted
    ]
    columns = ("PARTITION", "EARLIEST", "LATEST") + (("OFFSET",) if position is not None else ())
    return table(rows, columns, [tuple(row.values()) for row in rows])


@app.command("log-dirs", epilog="Example: minibroker log-dirs flights -o json")
@on_cluster
def log_dirs(
    cluster: Cluster,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)
    ] = None,
) -> Shown:
    """Show how many bytes each partition takes, and on which broker."""
    with connected(cluster) as client:
        asked = list(by_topic(partitions_of(client, topics)).items()) if topics else None  # all
        questions = {each: Question(ApiKey.DESCRIBE_LOG_DIRS, {"topics": asked}, each) for each in client.brokers}
        answers, rows = both(lambda: of_each(client, questions, "what it has"), lambda: topics_of(client))
    brokers = {broker: answer.results for broker, answer in answers.items()}
    internal = set() if topics else {row.name for row in rows if row.is_internal}
    if brokers and not any(brokers.values()):
        raise CommandFailed(
            "the brokers did not return their directories: that needs Describe on the cluster; ask its administrator"
        )
    rows = [row for broker, directories in brokers.items() for row in log_dir_rows(broker, directories)]
    offline = [
        f"broker {broker}: {each.log_dir} is offline; see the broker's log"
        for broker, directories in brokers.items()
        for each in directories
        if each.error_code
    ]

    def print_text() -> None:
        columns = ("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "BYTES", "LAG")
        shown = without_empty(rows, internal)
        print_table(columns, [tuple(row.values())[: len(columns)] for row in shown], left=("DIRECTORY", "TOPIC"))
        for line in offline:
            complain(line)

    return Shown(rows, print_text)


def log_dir_rows(broker: int, directories: Sequence[Any]) -> list[dict[str, Any]]:
    """A row of each replica on this broker, by directory, topic and partition."""
    return [
        {
            "broker": broker,
            "directory": directory.log_dir,
            "topic": topic.name,
            "partition": partition.partition,
            "size_bytes": partition.size_bytes,
            "lag": partition.offset_lag,
            "is_future": partition.is_future_key,
        }
        for directory in sorted(directories, key=lambda row: str(row.log_dir))
        for topic in sorted(directory.topics, key=lambda row: str(row.name))
        for partition in sorted(topic.partitions, key=lambda row: int(row.partition))
    ]


def without_empty(rows: list[dict[str, Any]], topics: set[str]) -> list[dict[str, Any]]:
    """The rows with one for all empty partitions of each of those topics, in the place of the first."""
    shown = []
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["topic"] not in topics or row["size_bytes"] or row["lag"]:
            shown.append(row)
            continue
        key = (row["broker"], row["directory"], row["topic"])
        if key not in merged:
            merged[key] = {**row, "partition": 0}
            shown.append(merged[key])
        merged[key]["partition"] += 1
    for row in merged.values():
        row["partition"] = f"{row['partition']} empty"
    return shown


@app.command("producers", epilog="Example: minibroker producers payments --partition 0")
@on_cluster
def producers(topic: TopicArgument, cluster: Cluster, partitions: PartitionsOption = None) -> Shown:
    """Show the idempotent and transactional producers of a topic's partitions."""
    with connected(cluster) as client:
        active = transaction_admin.producers(client, topic, numbers_of(partitions))
    rows = [
        (*row[1:5], None if row.last_timestamp is None else as_utc(row.last_timestamp), row.transaction_start)
        for row in active
    ]
    columns = ("PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST WRITE", "OPEN FROM")
    none = f"topic {topic} has no idempotent producers now"
    return table(active, columns, rows, without=none, unknown="-")
