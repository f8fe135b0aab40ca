"""The arguments and options that commands share, each declared once.

A command that asks a cluster is decorated with `on_cluster`, one that changes it with `changing_cluster`: it gets
`--bootstrap-server`, `-X` and `--command-config`, and receives what they name as its parameter `cluster`. A parameter
whose type is a NamedTuple stands for an option of each field. These and `showing` print the Shown that a command
returns, as --output wants it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from minibroker import patience
from minibroker.admin.positions import HOW, Position, parse_position
from minibroker.any_cluster.bootstrap import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_CLUSTER,
    DEFAULT_PORT,
    Cluster,
    Setting,
    cluster_of,
    parse_bootstrap,
    parse_setting,
)
from minibroker.cli.completion import api_names, group_names, topic_names
from minibroker.cli.options import Output, Partitions, parse_partitions
from minibroker.cli.shown import Shown

CONTROL_VARIABLE = "MINIBROKER_CONTROL"

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Text for people, or JSON for programs.")]
TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)]
TopicsArgument = Annotated[list[str], typer.Argument(metavar="TOPIC", show_default=False, autocompletion=topic_names)]
OptionalTopicsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC]...", show_default=False, autocompletion=topic_names)
]
NewTopicsArgument = Annotated[list[str], typer.Argument(metavar="NAME", show_default=False)]
TopicsOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="NAME", autocompletion=topic_names, help="Only this topic; may be repeated."),
]
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=group_names)]
GroupsArgument = Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False, autocompletion=group_names)]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition.")
]
PartitionsOption = Annotated[
    list[Partitions] | None,
    typer.Option(
        "--partition",
        "-p",
        metavar="N[,N...]",
        parser=parse_partitions,
        help="Only these partitions, such as 0,2-4; may be repeated.",
    ),
]
ApiOption = Annotated[
    list[str] | None,
    typer.Option(
        "--api", "-a", metavar="NAME", help="Only requests of this API; may be repeated.", autocompletion=api_names
    ),
]
ClientIdOption = Annotated[
    str | None, typer.Option("--client-id", metavar="ID", help="Only requests with this client id.")
]
ConnectionOption = Annotated[
    int | None, typer.Option("--connection", "-c", metavar="N", min=1, help="Only this connection.")
]
FetchingControlOption = Annotated[
    Path | None,
    typer.Option(
        "--control",
        metavar="PATH",
        envvar=CONTROL_VARIABLE,
        help="The control socket of a minibroker: also what only fetches, such as Spark's source, and its lag; of a "
        "share group the records in flight.",
        show_default=False,
    ),
]
ReadCommittedOption = Annotated[bool, typer.Option("--read-committed", help="Skip open and aborted transactions.")]
IfExistsOption = Annotated[bool, typer.Option("--if-exists", help="Ignore those that do not exist.")]

InternalOption = Annotated[
    bool, typer.Option("--internal", help="Also Kafka's internal topics, which hold the state of groups.")
]


def position_option(*names: str, does: str, default: str | bool = False) -> Any:
    """An option whose value is a position; `does` begins its help."""
    return typer.Option(*names, metavar="POSITION", parser=parse_position, help=f"{does}: {HOW}.", show_default=default)


BootstrapOption = Annotated[
    Cluster | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        parser=parse_bootstrap,
        help=f"A broker of the cluster, or several separated by commas, port {DEFAULT_PORT} unless given; "
        f"else the variable {BOOTSTRAP_VARIABLE}, else {DEFAULT_CLUSTER}.",
        show_default=False,
    ),
]
PropertiesOption = Annotated[
    list[Setting] | None,
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        parser=parse_setting,
        help="A client property under Kafka's name, such as security.protocol=SSL; may be repeated.",
    ),
]
CommandConfigOption = Annotated[
    Path | None, typer.Option("--command-config", metavar="FILE", help="Read client properties from this file.")
]
ON_CLUSTER = {"bootstrap": BootstrapOption, "properties": PropertiesOption, "command_config": CommandConfigOption}


Command = Callable[..., Any]
KEYWORD = inspect.Parameter.KEYWORD_ONLY


def showing(command: Command) -> Command:
    """Give a command --output, behind its own options, and print what it returns in that form.

    A command that returns its exit status prints by itself, and may have a parameter `output`.
    """
    own = inspect.signature(command, eval_str=True).parameters
    added = {"output": inspect.Parameter("output", KEYWORD, annotation=OutputOption, default="text")}

    @functools.wraps(command)
    def run(output: Output, **arguments: Any) -> int:
        done = command(**arguments, output=output) if "output" in own else command(**arguments)
        return done.print(output) if isinstance(done, Shown) else int(done)

    return with_parameters(run, {name: each for name, each in own.items() if name != "output"} | added)


def on_cluster(command: Command) -> Command:
    """Give a command the options that name a cluster, and --output, as `showing`."""
    given = inspect.signature(command, eval_str=True).parameters
    types = {name: each.annotation for name, each in given.items() if isinstance(each.annotation, type)}
    groups: dict[str, Any] = {name: kind for name, kind in types.items() if issubclass(kind, tuple)}
    own = {
        option.name: option
        for name, each in given.items()
        if name != "cluster"
        for option in (options_of(groups[name]) if name in groups else [each])
    }
    added = {name: inspect.Parameter(name, KEYWORD, default=None, annotation=kind) for name, kind in ON_CLUSTER.items()}

    @functools.wraps(command)
    def run(
        bootstrap: Cluster | None, properties: list[Setting] | None, command_config: Path | None, **arguments: Any
    ) -> Any:
        for name, group in groups.items():
            arguments[name] = group(**{field: arguments.pop(field) for field in group._fields})
        return command(cluster=cluster_of(bootstrap, properties, command_config), **arguments)

    return showing(with_parameters(run, own | added))


def changing_cluster(command: Command) -> Command:
    """As `on_cluster`, for a command that changes something or runs on: it waits for a broker that is slow."""

    @functools.wraps(command)
    def without_deadline(**arguments: Any) -> Any:
        patience.lift()
        return command(**arguments)

    return on_cluster(without_deadline)


def options_of(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    given = inspect.signature(group).parameters.values()
    return [each.replace(annotation=hints[each.name]) for each in given]


def with_parameters(run: Command, parameters: Mapping[str, inspect.Parameter]) -> Command:
    """The function with these parameters in place of its own, as typer reads them."""
    run.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    run.__signature__ = inspect.Signature([each.replace(kind=KEYWORD) for each in parameters.values()])  # type: ignore[attr-defined]
    return run


__all__ = ["Position", "changing_cluster", "cluster_of", "on_cluster", "position_option", "showing"]
