"""`minibroker transactions ...`: what exactly-once producers have open, and how to end it.

This module reads arguments and prints; `transaction_admin` asks the broker.
"""

from __future__ import annotations

from typing import Annotated

import typer

from minibroker.admin.outcomes import Outcome
from minibroker.admin.transactions import Described
from minibroker.any_cluster import transaction_admin
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected
from minibroker.cli.completion import topic_names, transactional_ids
from minibroker.cli.options import noun
from minibroker.cli.parameters import PartitionOption, changing_cluster, on_cluster
from minibroker.cli.shown import Shown, results, table
from minibroker.cli.terminal import print_line, print_table
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import BadValue
from minibroker.protocol.text import as_utc

IdArgument = Annotated[str, typer.Argument(metavar="ID", show_default=False, autocompletion=transactional_ids)]

app = noun(help="List, describe and abort transactions.")


@app.command("list", epilog="Example: minibroker transactions list --state Ongoing")
@on_cluster
def list_transactions(
    cluster: Cluster,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help="Only in this state: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort; "
            "may be repeated.",
        ),
    ] = None,
) -> Shown:
    """List transactional ids and their states."""
    with connected(cluster) as client:
        listed = transaction_admin.transactions(client, states or ())
    none = "no transactions" + (f" in state {', '.join(states)}" if states else "")
    return table(listed, ("<ID", "<STATE", "PRODUCER", "COORDINATOR"), without=none)


@app.command("describe", epilog="Example: minibroker transactions describe payments-1")
@on_cluster
def describe_transaction(transactional_id: IdArgument, cluster: Cluster) -> Shown:
    """Show a transactional id's state, producer, and the partitions of its transaction."""
    with connected(cluster) as client:
        described = transaction_admin.describe(client, transactional_id)
    document = {**described._asdict(), "partitions": [at._asdict() for at in described.partitions]}
    return Shown(document, lambda: print_description(described))


def print_description(described: Described) -> None:
    since = "" if described.started is None else f" since {as_utc(described.started)}"
    print_line(f"{described.transactional_id}: {described.state}{since}", "bold")
    print(
        f"producer {described.producer_id} epoch {described.producer_epoch}, timeout {described.timeout_ms} ms, "
        f"coordinator {described.coordinator}"
    )
    if described.partitions:
        print_table(("TOPIC", "PARTITION"), described.partitions, left=("TOPIC",))


@app.command(
    "abort",
    epilog="""Examples:

minibroker transactions abort payments-1

minibroker transactions abort --topic payments --partition 0 --producer-id 1007""",
)
@changing_cluster
def abort_transaction(
    cluster: Cluster,
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="ID", show_default=False, autocompletion=transactional_ids)
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            autocompletion=topic_names,
            help="Instead of ID: write an abort marker into a partition of this topic.",
        ),
    ] = None,
    partition: PartitionOption = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="N", min=0, help="Whose transaction in that partition.")
    ] = None,
) -> Shown:
    """Abort an open transaction; its producer is fenced, and fails at its next request."""
    in_partition = (topic, partition, producer_id)
    if (transactional_id is None) == (None in in_partition) or (transactional_id and any(map(is_given, in_partition))):
        raise BadValue("name either ID, or all of --topic, --partition and --producer-id")
    with connected(cluster) as client:
        if transactional_id is not None:
            transaction_admin.fence(client, transactional_id)
            return results([Outcome(transactional_id, "aborted")])
        assert topic is not None and partition is not None and producer_id is not None
        transaction_admin.abort_in(client, TopicPartition(topic, partition), producer_id)
    return results([Outcome(f"producer {producer_id} in {topic} {partition}", "aborted")])


def is_given(value: object) -> bool:
    return value is not None
