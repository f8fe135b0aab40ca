"""`minibroker cluster ...`: the brokers of a cluster of `minibroker serve --brokers`, and what is done to them.

`describe` is of any Kafka cluster.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from minibroker import patience
from minibroker.admin.outcomes import Outcome
from minibroker.any_cluster.acl_admin import hidden_unless
from minibroker.any_cluster.bootstrap import BOOTSTRAP_VARIABLE, Cluster
from minibroker.any_cluster.cluster import connected, described_cluster
from minibroker.any_cluster.cluster_description import ClusterDescription, described
from minibroker.any_cluster.cluster_status import ClusterStatus
from minibroker.cli.completion import topic_names
from minibroker.cli.options import noun
from minibroker.cli.parameters import (
    KEYWORD,
    BootstrapOption,
    Command,
    CommandConfigOption,
    PropertiesOption,
    cluster_of,
    on_cluster,
    showing,
    with_parameters,
)
from minibroker.cli.shown import Shown, results, table
from minibroker.cli.terminal import print_line, print_table
from minibroker.errors import BadValue, BrokerError, CallRefused, CommandFailed
from minibroker.protocol.text import counted
from minibroker.served_cluster import Process, ServedCluster
from minibroker.waiting import WaitError

Direction = Literal["both", "to", "from"]

DEFAULT_DATA_DIR = Path("minibroker-data")
LACKING_MAX = 20  # partitions without all of their replicas, as text

DataDirOption = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", help="The directory that `serve --brokers` was started with.")
]
BrokerArgument = Annotated[int, typer.Argument(metavar="BROKER", show_default=False, help="The id of a broker.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)]
PartitionOption = Annotated[int, typer.Option("--partition", "-p", metavar="N", min=0, help="The partition.")]
OnlyTopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", metavar="NAME", autocompletion=topic_names, help="Only of this topic.")
]
OnlyPartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition of the topic.")
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False)]

app = noun(
    help="Describe any Kafka cluster; see and change one of `serve --brokers`: leaders, followers, the network.",
    epilog="Example: minibroker cluster status; minibroker cluster kill 1; minibroker cluster status orders",
)

Done = tuple[str, str]  # what was done, and to what


@contextmanager
def served(data_dir: Path) -> Iterator[ServedCluster]:
    """The cluster that is served there. Raises CommandFailed and BadValue, also for later failures."""
    try:
        yield ServedCluster(data_dir)
    except CallRefused as error:
        raise CommandFailed(error.reason) from error
    except (BrokerError, WaitError) as error:
        raise CommandFailed(str(error)) from error
    except ValueError as error:
        raise BadValue(str(error)) from error


def on_served(command: Command) -> Command:
    """Give a command `--data-dir` and `--output`, and the cluster there as its parameter `cluster`.

    It returns what it did, and to what.
    """
    given = dict(inspect.signature(command, eval_str=True).parameters)
    del given["cluster"]
    given["data_dir"] = inspect.Parameter("data_dir", KEYWORD, annotation=DataDirOption, default=DEFAULT_DATA_DIR)

    @functools.wraps(command)
    def run(*, data_dir: Path, **arguments: Any) -> Shown:
        patience.lift()  # a broker may take long to start or to end
        with served(data_dir) as cluster:
            done, to = command(cluster=cluster, **arguments)
        return results([Outcome(to, done)])

    return showing(with_parameters(run, given))


# -- what is ----------------------------------------------------------------------------------------------------


@app.command("describe", epilog="Example: minibroker cluster describe -b 127.0.0.1:9092")
@on_cluster
def describe(cluster: Cluster) -> Shown:
    """Show the brokers of any Kafka cluster with what they lead, and the partitions that lack replicas."""
    with connected(cluster) as client:
        facts = described_cluster(client)
        found = described(facts, hidden_unless(facts.topics, client, "topics"))
    brokers, lacking = ([each._asdict() for each in rows] for rows in found[1:])
    document = {"cluster_id": found.cluster_id, "brokers": brokers, "under_replicated": lacking}
    return Shown(document, lambda: print_cluster(found))


def print_cluster(found: ClusterDescription) -> None:
    columns = ("BROKER", "ADDRESS", "RACK", "CONTROLLER", "LEADS", "REPLICAS", "OUT OF SYNC")
    rows = [
        (each.broker, each.address or "not alive", each.rack or "", "yes" if each.is_controller else "", *each[4:])
        for each in found.brokers
    ]
    print_table(columns, rows, left=columns[1:4])
    for each in found.under_replicated[:LACKING_MAX]:
        in_sync, replicas = (",".join(map(str, brokers)) for brokers in (each.isr, each.replicas))
        what = f"{each.topic}-{each.partition}: in sync are {in_sync or 'none'} of {replicas}"
        print_line(what if each.leader is not None else f"{what}; it has no leader", "yellow")
    if more := found.under_replicated[LACKING_MAX:]:
        print_line(f"and {counted(len(more), 'partition')} more; -o json has all", "yellow")


@app.command("status", epilog="Example: minibroker cluster status orders -b 127.0.0.1:9092")
@showing
def status(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="TOPIC", show_default=False, help="Show the replicas of this topic, by broker."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            metavar="DIR",
            show_default=False,
            help=f"The directory that `serve --brokers` was started with; {DEFAULT_DATA_DIR} without an address.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    properties: PropertiesOption = None,
    command_config: CommandConfigOption = None,
) -> Shown:
    """Show the brokers; or of a topic each replica, as its own broker knows it.

    By an address any Kafka cluster is shown, as far as Kafka's protocol has it.
    """
    if data_dir is not None and bootstrap is not None:
        raise BadValue("--data-dir and --bootstrap-server name two clusters; give one of them")
    if bootstrap is None and (data_dir is not None or BOOTSTRAP_VARIABLE not in os.environ):
        with served(data_dir or DEFAULT_DATA_DIR) as cluster:
            return brokers_of(cluster) if topic is None else replicas_of(cluster, topic)
    with connected(cluster_of(bootstrap, properties, command_config)) as client:
        return brokers_of(ClusterStatus(client)) if topic is None else replicas_of(ClusterStatus(client), topic)


def brokers_of(cluster: ServedCluster | ClusterStatus) -> Shown:
    found = cluster.status()
    seen = {row["broker_id"]: row for row in found["brokers"]}
    documents = [
        {
            **row,
            "rack": seen.get(row["broker_id"], {}).get("rack"),
            "is_alive": row["broker_id"] in seen,
            "is_controller": row["broker_id"] == found["controller_id"],
        }
        for row in cluster.brokers()
    ]
    rows = [
        (row["broker_id"], row["address"], row["rack"] or "", state_text(row), "yes" if row["is_controller"] else "")
        for row in documents
    ]
    return table(documents, ("BROKER", "<ADDRESS", "<RACK", "<STATE", "CONTROLLER"), rows)


def state_text(row: dict[str, Any]) -> str:
    """The state of a broker's process, and whether the others take it for what it is."""
    if row["state"] == "ended" or row["is_alive"]:
        return str(row["state"])
    return f"{row['state']}, expired"


def replicas_of(cluster: ServedCluster | ClusterStatus, topic: str) -> Shown:
    replicas = cluster.all_replicas(topic)
    if not replicas:
        raise CommandFailed(f"topic {topic} does not exist; `minibroker topics list` shows them all")
    found = [(number, each) for number in sorted(replicas) for each in replicas[number].values()]
    documents = [
        {"partition": number, **each._asdict(), "in_sync_replicas": sorted(each.in_sync_replicas)}
        for number, each in found
    ]
    rows = [
        (
            *(number, each.broker_id, each.role, each.leader_epoch),
            *(each.log_start_offset, each.high_watermark, each.log_end_offset),
            *(",".join(map(str, sorted(each.in_sync_replicas))), each.hold),
        )
        for number, each in found
    ]
    columns = ("PARTITION", "BROKER", "<ROLE", "EPOCH", "START", "HIGH WATERMARK", "END", "<ISR", "<HOLD")
    return table(documents, columns, rows, unknown="")


# -- processes --------------------------------------------------------------------------------------------------


def process_command(name: Process, does: str, past: str) -> None:
    def change(cluster: Any, broker: BrokerArgument) -> Done:
        cluster.change(name, broker)
        return f"{past}", f"broker {broker}"

    change.__doc__ = does
    app.command(name, epilog=f"Example: minibroker cluster {name} 1")(on_served(change))


process_command("kill", "Kill a broker without warning, as a crash would (SIGKILL).", "killed")
process_command("stop", "Stop a broker in order: others lead its partitions before it ends.", "stopped")
process_command("start", "Start a broker that has ended, with its port and files.", "started")
process_command("pause", "Stop the process of a broker: it accepts connections, and answers nothing.", "paused")
process_command("resume", "Let a paused broker go on.", "resumed")


# -- roles ------------------------------------------------------------------------------------------------------


@app.command("move-leader", epilog="Example: minibroker cluster move-leader orders 2 -p 0")
@on_served
def move_leader(cluster: Any, topic: TopicArgument, broker: BrokerArgument, partition: PartitionOption = 0) -> Done:
    """Have an in-sync replica lead a partition."""
    cluster.move_leader(topic, partition, broker)
    return f"leads {topic}-{partition}", f"broker {broker}"


@app.command("elect-unclean", epilog="Example: minibroker cluster elect-unclean orders -p 0")
@on_served
def elect_unclean(
    cluster: Any,
    topic: TopicArgument,
    broker: Annotated[
        int | None, typer.Argument(metavar="BROKER", show_default=False, help="Without it the first live replica.")
    ] = None,
    partition: PartitionOption = 0,
) -> Done:
    """Have a replica lead that is not in sync: what it lacks is lost."""
    return f"leads {topic}-{partition}", f"broker {cluster.unclean_election(topic, partition, broker)}"


@app.command("shrink-isr", epilog="Example: minibroker cluster shrink-isr orders 2 -p 0")
@on_served
def shrink_isr(cluster: Any, topic: TopicArgument, broker: BrokerArgument, partition: PartitionOption = 0) -> Done:
    """Remove a follower from the in-sync replicas, and hold it, until it is released."""
    cluster.shrink_isr(topic, partition, broker)
    return f"out of sync in {topic}-{partition}", f"broker {broker}"


@app.command("move-controller", epilog="Example: minibroker cluster move-controller")
@on_served
def move_controller(cluster: Any) -> Done:
    """Have another broker elected as the controller."""
    return "controls", f"broker {cluster.move_controller()}"


@app.command("move-coordinator", epilog="Example: minibroker cluster move-coordinator billing 2")
@on_served
def move_coordinator(cluster: Any, group: GroupArgument, broker: BrokerArgument) -> Done:
    """Have another broker coordinate a group."""
    cluster.move_coordinator(group, broker)
    return f"coordinates {group}", f"broker {broker}"


# -- followers and the network ----------------------------------------------------------------------------------


@app.command("hold", epilog="Example: minibroker cluster hold 2 --topic orders")
@on_served
def hold(
    cluster: Any, broker: BrokerArgument, topic: OnlyTopicOption = None, partition: OnlyPartitionOption = None
) -> Done:
    """Have a broker fetch nothing from leaders, until it is released."""
    cluster.hold_follower(broker, topic, partition)
    return "held", f"broker {broker}"


@app.command("lag", epilog="Example: minibroker cluster lag 2 --topic orders --records 100")
@on_served
def lag(
    cluster: Any,
    broker: BrokerArgument,
    records: Annotated[int | None, typer.Option("--records", metavar="N", min=1, help="Behind by N records.")] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", metavar="S", help="Behind by S seconds.")] = None,
    topic: OnlyTopicOption = None,
    partition: OnlyPartitionOption = None,
) -> Done:
    """Have a follower stay behind its leaders by records or by seconds, until it is released."""
    if (records is None) == (seconds is None):
        raise BadValue("a follower lags by --records or by --seconds; `minibroker cluster hold` stops it")
    cluster.lag(broker, topic, partition, records=records, seconds=seconds)
    return "lags", f"broker {broker}"


@app.command("release", epilog="Example: minibroker cluster release 2")
@on_served
def release(
    cluster: Any,
    broker: Annotated[
        int | None, typer.Argument(metavar="BROKER", show_default=False, help="Without it all brokers.")
    ] = None,
    topic: OnlyTopicOption = None,
    partition: OnlyPartitionOption = None,
) -> Done:
    """End what `hold`, `lag` and `shrink-isr` have begun."""
    cluster.release_follower(broker, topic, partition)
    return "released", "all brokers" if broker is None else f"broker {broker}"


@app.command("isolate", epilog="Example: minibroker cluster isolate 1 2 --direction to")
@on_served
def isolate(
    cluster: Any,
    broker: BrokerArgument,
    other: Annotated[int, typer.Argument(metavar="OTHER", show_default=False, help="The id of the other broker.")],
    direction: Annotated[
        Direction,
        typer.Option(help="`to`: BROKER does not reach OTHER; `from`: OTHER does not reach BROKER."),
    ] = "both",
) -> Done:
    """Cut the network between two brokers, until `heal`; clients reach both."""
    cluster.isolate(broker, other, direction)
    return "isolated", f"broker {broker} and broker {other}"


@app.command("heal", epilog="Example: minibroker cluster heal")
@on_served
def heal(cluster: Any) -> Done:
    """Have all brokers reach each other again."""
    cluster.heal()
    return "healed", "all brokers reach each other"


@app.command("advance", epilog="Example: minibroker cluster advance 30")
@on_served
def advance(
    cluster: Any, seconds: Annotated[float, typer.Argument(metavar="SECONDS", min=0, show_default=False)]
) -> Done:
    """Let time pass for all brokers at once."""
    cluster.clock.advance(seconds)
    return "advanced", f"{seconds:g} s"
