"""`minibroker transactions ...` and `minibroker producers`: what exactly-once producers have open, and how to end it.

This module reads arguments and prints; `transaction_admin` asks the broker, and is imported once there is something to
ask.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.cli.completion import topic_names, transactional_ids
from minibroker.cli.options import numbers_of, show_help_if_alone
from minibroker.cli.outcomes import report, report_rows
from minibroker.cli.parameters import (
    OutputOption,
    PartitionOption,
    PartitionsOption,
    TopicArgument,
    changing_cluster,
    on_cluster,
)
from minibroker.errors import EXIT_OK, BadValue

if TYPE_CHECKING:
    from minibroker.any_cluster.transaction_admin import Described

IdArgument = Annotated[str, typer.Argument(metavar="ID", show_default=False, autocompletion=transactional_ids)]

app = typer.Typer(help="List, describe and abort transactions.")
app.callback(invoke_without_command=True)(show_help_if_alone)


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
    output: OutputOption = "text",
) -> int:
    """List transactional ids and their states."""
    from minibroker.any_cluster.transaction_admin import transaction_admin

    with transaction_admin(cluster) as admin:
        listed = admin.transactions(states or ())
    documents = [row._asdict() for row in listed]
    columns = ("ID", "STATE", "PRODUCER", "COORDINATOR")
    none = "no transactions" + (f" in state {', '.join(states)}" if states else "")
    return report_rows(documents, columns, listed, output, left=("ID", "STATE"), without=none)


@app.command("describe", epilog="Example: minibroker transactions describe payments-1")
@on_cluster
def describe_transaction(transactional_id: IdArgument, cluster: Cluster, output: OutputOption = "text") -> int:
    """Show a transactional id's state, producer, and the partitions of its transaction."""
    from minibroker.any_cluster.transaction_admin import transaction_admin

    with transaction_admin(cluster) as admin:
        described = admin.describe(transactional_id)
    if output == "json":
        print(json.dumps({**described._asdict(), "partitions": [at._asdict() for at in described.partitions]}))
    else:
        print_description(described)
    return EXIT_OK


def print_description(described: Described) -> None:
    from minibroker.cli.terminal import print_line, print_table
    from minibroker.protocol.text import as_utc

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
    output: OutputOption = "text",
) -> int:
    """Abort an open transaction; its producer is fenced, and fails at its next request."""
    in_partition = (topic, partition, producer_id)
    if (transactional_id is None) == (None in in_partition) or (transactional_id and any(map(is_given, in_partition))):
        raise BadValue("name either ID, or all of --topic, --partition and --producer-id")
    from minibroker.any_cluster.cluster import TopicPartition
    from minibroker.any_cluster.outcomes import Outcome
    from minibroker.any_cluster.transaction_admin import transaction_admin

    with transaction_admin(cluster) as admin:
        if transactional_id is not None:
            admin.fence(transactional_id)
            return report([Outcome(transactional_id, "aborted")], output)
        assert topic is not None and partition is not None and producer_id is not None
        admin.abort_in(TopicPartition(topic, partition), producer_id)
    return report([Outcome(f"producer {producer_id} in {topic} {partition}", "aborted")], output)


def is_given(value: object) -> bool:
    return value is not None


@on_cluster
def producers(
    topic: TopicArgument, cluster: Cluster, partitions: PartitionsOption = None, output: OutputOption = "text"
) -> int:
    """Show the idempotent and transactional producers of a topic's partitions."""
    from minibroker.any_cluster.transaction_admin import transaction_admin
    from minibroker.protocol.text import as_utc

    with transaction_admin(cluster) as admin:
        active = admin.producers(topic, numbers_of(partitions))
    rows = [
        (
            row.partition,
            row.producer_id,
            row.producer_epoch,
            row.last_sequence,
            "-" if row.last_timestamp is None else as_utc(row.last_timestamp),
            "-" if row.transaction_start is None else row.transaction_start,
        )
        for row in active
    ]
    columns = ("PARTITION", "PRODUCER", "EPOCH", "LAST SEQUENCE", "LAST WRITE", "OPEN FROM")
    none = f"topic {topic} has no idempotent producers now"
    return report_rows([row._asdict() for row in active], columns, rows, output, without=none)
