"""`minibroker topics ...`: list, create, describe, delete, on any Kafka broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minibroker.cli.failures import CommandFailed

if TYPE_CHECKING:
    from kafka.admin import KafkaAdminClient

CONNECT_TIMEOUT_MS = 5000

app = typer.Typer(help="Topics: list, create, describe, delete.", no_args_is_help=True)


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


BootstrapServers = Annotated[
    str,
    typer.Option("--bootstrap-server", "-b", envvar="MINIBROKER_BOOTSTRAP", help="HOST:PORT of a broker."),
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table, or one JSON document.")]
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@contextmanager
def admin_client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    """A connected admin client; Kafka's errors become CommandFailed."""
    import logging

    from kafka.admin import KafkaAdminClient
    from kafka.errors import KafkaError, NoBrokersAvailable

    # The one line below says what kafka-python's own log lines say in ten.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    try:
        client = KafkaAdminClient(
            bootstrap_servers=bootstrap, client_id="minibroker-cli", bootstrap_timeout_ms=CONNECT_TIMEOUT_MS
        )
    except (NoBrokersAvailable, KafkaError) as error:
        raise CommandFailed(
            f"no broker answers at {bootstrap}; start one with `minibroker serve`, "
            "or name another with --bootstrap-server"
        ) from error
    try:
        yield client
    except KafkaError as error:
        raise CommandFailed(explain(error)) from error
    finally:
        client.close()


def explain(error: Exception) -> str:
    """A Kafka error in one line, with what to do about the common ones."""
    name = type(error).__name__.removesuffix("Error")
    advice = {
        "TopicAlreadyExists": "choose another name, or delete it first with `minibroker topics delete NAME`",
        "UnknownTopicOrPartition": "`minibroker topics list` shows what there is",
        "InvalidReplicationFactor": "a single broker holds one replica: --replication-factor 1",
    }.get(name)
    return f"{error}; {advice}" if advice else str(error)


@app.command("list")
def list_topics(
    bootstrap: BootstrapServers = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the names of all topics."""
    with admin_client(bootstrap) as admin:
        topics = sorted(admin.describe_topics(), key=lambda topic: str(topic["name"]))
    if output is Output.JSON:
        print(json.dumps([{"name": topic["name"], "partitions": len(topic["partitions"])} for topic in topics]))
        return
    for topic in topics:
        print(topic["name"])


@app.command("create")
def create(
    name: str,
    bootstrap: BootstrapServers = DEFAULT_BOOTSTRAP,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="Number of partitions.", min=1)] = 1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", help="Copies of each.", min=1)] = 1,
    config: Annotated[list[str] | None, typer.Option("--config", "-c", help="KEY=VALUE, by Kafka's names.")] = None,
) -> None:
    """Create a topic."""
    configs = dict(parse_setting(setting) for setting in config or ())
    options = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": configs}
    with admin_client(bootstrap) as admin:
        admin.create_topics({name: options})
    print(f"created {name} with {partitions} partition{'s' if partitions > 1 else ''}")


@app.command("describe")
def describe(
    name: str,
    bootstrap: BootstrapServers = DEFAULT_BOOTSTRAP,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a topic's partitions, offsets and the configs set on it."""
    from kafka.admin import ConfigResource, ConfigResourceType

    with admin_client(bootstrap) as admin:
        known = [topic for topic in admin.describe_topics([name]) if topic.get("error_code", 0) == 0]
        if not known:
            raise CommandFailed(f"there is no topic {name!r}; `minibroker topics list` shows what there is")
        described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        offsets = offsets_of(bootstrap, name, [row["partition_index"] for row in known[0]["partitions"]])
    configs = {key: value["value"] for key, value in described["topic"][name].items()}
    rows = [
        {
            "partition": row["partition_index"],
            "leader": row["leader_id"],
            "replicas": list(row["replica_nodes"]),
            "isr": list(row["isr_nodes"]),
            "earliest": offsets[row["partition_index"]][0],
            "latest": offsets[row["partition_index"]][1],
        }
        for row in sorted(known[0]["partitions"], key=lambda row: row["partition_index"])
    ]
    if output is Output.JSON:
        print(json.dumps({"name": name, "configs": configs, "partitions": rows}))
    else:
        print_table(name, configs, rows)


@app.command("delete")
def delete(name: str, bootstrap: BootstrapServers = DEFAULT_BOOTSTRAP) -> None:
    """Delete a topic and its records."""
    with admin_client(bootstrap) as admin:
        admin.delete_topics([name])
    print(f"deleted {name}")


def offsets_of(bootstrap: str, name: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """Earliest and latest offset of each partition."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, client_id="minibroker-cli", enable_auto_commit=False)
    try:
        keys = [TopicPartition(name, partition) for partition in partitions]
        earliest, latest = consumer.beginning_offsets(keys), consumer.end_offsets(keys)
        return {key.partition: (earliest[key], latest[key]) for key in keys}
    finally:
        consumer.close()


def parse_setting(setting: str) -> tuple[str, str]:
    """KEY=VALUE in two parts. Raises CommandFailed."""
    key, separator, value = setting.partition("=")
    if not separator or not key:
        raise CommandFailed(f"--config {setting!r} is not KEY=VALUE; for example --config retention.ms=60000")
    return key.strip(), value.strip()


def print_table(name: str, configs: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=name, title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(",".join(map(str, cell)) if isinstance(cell, list) else str(cell) for cell in row.values()))
    console = Console()
    console.print(table)
    for key, value in sorted(configs.items()):
        console.print(f"{key}={value}", highlight=False)
