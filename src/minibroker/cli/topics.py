"""`minibroker topics ...`: list, create, grow, describe, delete, on minibroker or any Apache Kafka from 0.11 on; elect
and move from 2.2 and 2.4 on.

This module reads arguments and prints; `topic_admin` and `topic_moves` ask the broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from minibroker.admin.positions import Position
from minibroker.admin.topics import Partition, TopicDescription
from minibroker.any_cluster import topic_admin, topic_moves
from minibroker.any_cluster.bootstrap import Cluster, Setting, parse_setting
from minibroker.any_cluster.cluster import connected
from minibroker.cli.options import BrokerIds, noun, numbers_of, parse_broker_ids
from minibroker.cli.parameters import (
    IfExistsOption,
    InternalOption,
    NewTopicsArgument,
    OptionalTopicsArgument,
    PartitionsOption,
    TopicArgument,
    TopicsArgument,
    changing_cluster,
    on_cluster,
    position_option,
)
from minibroker.cli.shown import Shown, results, table
from minibroker.cli.terminal import print_line, print_table
from minibroker.errors import BadValue
from minibroker.protocol.text import counted, ranges

app = noun(help="List, create, grow, describe, move and delete topics, elect leaders, and delete records.")


@app.command("list", epilog="Example: minibroker topics list -o json")
@on_cluster
def list_topics(
    cluster: Cluster,
    with_sizes: Annotated[
        bool,
        typer.Option("--sizes", "-s", help="Also the messages and bytes of each, for which all brokers are asked."),
    ] = False,
) -> Shown:
    """List all topics."""
    with connected(cluster) as client:
        topics = topic_admin.topics(client)
        sizes = topic_admin.sizes(client, topics) if with_sizes else {}
    documents = [topic._asdict() | (sizes[topic.name]._asdict() if with_sizes else {}) for topic in topics]
    rows = [(*topic[:3], *sizes.get(topic.name, ())) for topic in topics]
    columns = ("<TOPIC", "PARTITIONS", "REPLICAS") + (("MESSAGES", "BYTES") if with_sizes else ())
    none = "no topics yet; create one with `minibroker topics create NAME`"
    return table(documents, columns, rows, without=none)


@app.command("create", epilog="Example: minibroker topics create flights --partitions 3 --config retention.ms=86400000")
@changing_cluster
def create_topics(
    names: NewTopicsArgument,
    cluster: Cluster,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", metavar="N", min=1, help="Partitions of each topic.")
    ] = 1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", metavar="N", min=1, help="Replicas of each partition.")
    ] = 1,
    configs: Annotated[
        list[Setting] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            parser=parse_setting,
            help="A topic config by Kafka's name; may be repeated.",
        ),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Accept topics that exist.")] = False,
) -> Shown:
    """Create topics."""
    with connected(cluster) as client:
        outcomes = topic_admin.create(
            client,
            names,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or ()),
            may_exist=if_not_exists,
        )
    return results(outcomes)


@app.command("grow", epilog="Example: minibroker topics grow flights --partitions 6")
@changing_cluster
def grow_topics(
    names: TopicsArgument,
    cluster: Cluster,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="New number of partitions of each topic.", show_default=False
        ),
    ],
    internal: InternalOption = False,
) -> Shown:
    """Add partitions to topics; existing records stay in theirs."""
    with connected(cluster) as client:
        outcomes = topic_admin.grow(client, names, partitions=partitions, with_internal=internal)
    return results(outcomes)


@app.command("delete", epilog="Example: minibroker topics delete flights")
@changing_cluster
def delete_topics(
    names: TopicsArgument,
    cluster: Cluster,
    if_exists: IfExistsOption = False,
    internal: InternalOption = False,
) -> Shown:
    """Delete topics and their records."""
    with connected(cluster) as client:
        outcomes = topic_admin.delete(client, names, may_be_absent=if_exists, with_internal=internal)
    return results(outcomes)


@app.command("delete-records", epilog="Example: minibroker topics delete-records flights --before @2013-06-01")
@changing_cluster
def delete_records(
    topic: TopicArgument,
    cluster: Cluster,
    position: Annotated[Position, position_option("--before", does="Delete what is before")],
    partitions: PartitionsOption = None,
) -> Shown:
    """Delete the records before a position; each partition begins there from then on."""
    with connected(cluster) as client:
        deleted = topic_admin.delete_records(client, topic, numbers_of(partitions), position)
    return table(deleted, ("PARTITION", "BEGAN AT", "BEGINS AT", "ENDS AT"))


@app.command("describe", epilog="Example: minibroker topics describe flights --all-configs")
@on_cluster
def describe_topic(
    name: TopicArgument,
    cluster: Cluster,
    all_configs: Annotated[
        bool, typer.Option("--all-configs", "--all", "-a", help="Show default configs too.")
    ] = False,
) -> Shown:
    """Show a topic's partitions, offsets and configs."""
    with connected(cluster) as client:
        topic = topic_admin.describe(client, name)
    return Shown(as_document(topic), lambda: print_description(topic, with_defaults=all_configs))


@app.command("elect", epilog="Example: minibroker topics elect flights")
@changing_cluster
def elect_leaders(
    cluster: Cluster,
    names: OptionalTopicsArgument = None,
    partitions: PartitionsOption = None,
    unclean: Annotated[
        bool,
        typer.Option(
            "--unclean", help="Have a replica lead that is not in sync, where no other is alive; what it lacks is lost."
        ),
    ] = False,
) -> Shown:
    """Have preferred replicas, the first of each partition, lead again; of all topics without a name."""
    if not names and (unclean or partitions):
        raise BadValue(f"{'--unclean' if unclean else '--partition'} is for named topics; add their names")
    with connected(cluster) as client:
        outcomes = topic_moves.elect(client, names or (), numbers_of(partitions), is_unclean=unclean)
    return results(outcomes, without="the preferred replica leads every partition; nothing was changed")


@app.command("move", epilog="Example: minibroker topics move flights --partition 0 --to 2,3,1 --wait")
@changing_cluster
def move_topic(
    name: TopicArgument,
    cluster: Cluster,
    replicas: Annotated[
        BrokerIds | None,
        typer.Option(
            "--to",
            metavar="ID[,ID...]",
            parser=parse_broker_ids,
            help="The brokers that have the replicas afterwards; the first one is preferred as the leader.",
        ),
    ] = None,
    partitions: PartitionsOption = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Move back those that are on their way.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return once all have moved.")] = False,
) -> Shown:
    """Move replicas to other brokers, of all partitions or of some; the records are copied by and by."""
    if cancel == (replicas is not None):
        raise BadValue("a move has either --to with the ids of brokers, or --cancel")
    with connected(cluster) as client:
        outcomes = topic_moves.move(client, name, numbers_of(partitions), None if replicas is None else replicas.ids)
        if wait:
            outcomes = topic_moves.until_moved(client, outcomes, name)
    return results(outcomes)


@app.command("moves", epilog="Example: minibroker topics moves -o json")
@on_cluster
def list_moves(cluster: Cluster, names: OptionalTopicsArgument = None) -> Shown:
    """List the partitions whose replicas move, of all topics without a name."""
    with connected(cluster) as client:
        found = topic_moves.moves(client, names or ())
    rows = [(*move[:2], *(",".join(map(str, brokers)) for brokers in move[2:])) for move in found]
    columns = ("<TOPIC", "PARTITION", "<REPLICAS", "<ADDING", "<REMOVING")
    without = "no replicas move; `minibroker topics move TOPIC --to ID,ID` begins it"
    return table(found, columns, rows, without=without)


def as_document(topic: TopicDescription) -> dict[str, Any]:
    return {**topic._asdict(), "partitions": [partition._asdict() for partition in topic.partitions]}


def print_description(topic: TopicDescription, *, with_defaults: bool) -> None:
    rows = [partition_row(partition) for partition in topic.partitions]
    print_table(("PARTITION", "LEADER", "REPLICAS", "IN SYNC", "EARLIEST", "LATEST"), rows)
    for line in complaints(topic):
        print_line(line, "yellow")
    print()
    for name, value in sorted(topic.configs.items()):
        print_line(f"{name}={'(hidden)' if value is None else value}")
    if topic.defaults and not topic.configs:  # without either the broker did not answer
        print("no configs of its own")
    if with_defaults:
        for name, value in sorted(topic.defaults.items()):
            print_line(f"{name}={'(hidden)' if value is None else value}  (default)", "dim")
    elif topic.defaults:
        print_line(f"{counted(len(topic.defaults), 'config')} at the default; --all-configs shows all", "dim")


def complaints(topic: TopicDescription) -> Iterator[str]:
    """Yield the faults of partitions, each in a line."""
    min_isr = int((topic.configs | topic.defaults).get("min.insync.replicas") or 0)
    led = [each for each in topic.partitions if each.leader is not None]
    found = (
        ("no leader now", [each for each in topic.partitions if each.leader is None]),
        ("replicas out of sync", [each for each in led if len(each.isr) < len(each.replicas)]),
        (
            f"fewer in-sync replicas than min.insync.replicas={min_isr}: producers with acks=all are refused",
            [each for each in led if len(each.isr) < min_isr],
        ),
    )
    for what, partitions in found:
        numbers = ranges([each.partition for each in partitions])
        if partitions:
            yield f"partitions {numbers} have {what}" if len(partitions) > 1 else f"partition {numbers} has {what}"


def partition_row(row: Partition) -> tuple[object, ...]:
    replicas, isr = (",".join(map(str, brokers)) for brokers in (row.replicas, row.isr))
    leader = "none" if row.leader is None else row.leader
    return (row.partition, leader, replicas, isr, *("?" if each is None else each for each in row[4:]))
