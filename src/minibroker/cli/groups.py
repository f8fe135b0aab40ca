"""`minibroker groups ...`: list, describe with lag, reset offsets, delete, on any Kafka broker.

This module reads arguments and prints; `group_admin` asks the broker, and is imported once there is something to ask.
`reset` only shows a plan unless --execute is given, as kafka-consumer-groups does: it overwrites committed offsets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from minibroker.cli.completion import group_names, topic_names
from minibroker.cli.failures import EXIT_FAILED, EXIT_OK, CommandFailed
from minibroker.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, OutputOption, show_help_if_alone
from minibroker.cli.positions import HOW, Position, parse_position

if TYPE_CHECKING:
    from minibroker.cli.group_admin import GroupAdmin, GroupDescription, Move

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", show_default=False, autocompletion=group_names)]

app = typer.Typer(help="List, describe, reset and delete consumer groups.")
app.callback(invoke_without_command=True)(show_help_if_alone)


@app.command("list", epilog="Example: minibroker groups list -o json")
def list_groups(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = "text") -> int:
    """List all groups."""
    from minibroker.cli.group_admin import group_admin

    with group_admin(bootstrap.addresses) as admin:
        groups = admin.groups()
    if output == "json":
        print(json.dumps([group._asdict() for group in groups]))
        return EXIT_OK

    from minibroker.cli.terminal import complain, print_table

    if groups:
        rows = [(group.group, group.state, group.members) for group in groups]
        print_table(("GROUP", "STATE", "MEMBERS"), rows, left=("GROUP", "STATE"))
    else:
        complain("no groups yet; `minibroker consume TOPIC --group NAME` creates one")
    return EXIT_OK


@app.command("describe", epilog="Example: minibroker groups describe reports")
def describe_group(
    group: GroupArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, output: OutputOption = "text"
) -> int:
    """Show a group's members, committed offsets and lag."""
    from minibroker.cli.group_admin import group_admin

    with group_admin(bootstrap.addresses) as admin:
        described = admin.describe(group)
    if output == "json":
        print(json.dumps(as_document(described)))
    else:
        print_description(described)
    return EXIT_OK


def as_document(group: GroupDescription) -> dict[str, object]:
    return {
        **group._asdict(),
        "lag": total_lag(group),
        "members": [
            {**member._asdict(), "partitions": [partition._asdict() for partition in member.partitions]}
            for member in group.members
        ],
        "partitions": [partition._asdict() for partition in group.partitions],
    }


def total_lag(group: GroupDescription) -> int:
    return sum(partition.lag or 0 for partition in group.partitions)


def print_description(group: GroupDescription) -> None:
    from minibroker.cli.terminal import print_line, print_table
    from minibroker.protocol.text import counted

    members = counted(len(group.members), "member")
    print_line(f"{group.group}: {group.state}, {members}, lag {total_lag(group)}", "bold")
    if not group.partitions:
        print("no offsets committed")
        return
    rows = [tuple("-" if cell is None else cell for cell in partition) for partition in group.partitions]
    print_table(("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT"), rows, left=("TOPIC", "CLIENT"))


@app.command("reset", epilog="Example: minibroker groups reset reports --topic flights --to beginning --execute")
def reset_group(
    group: GroupArgument,
    position: Annotated[
        Position,
        typer.Option(
            "--to", metavar="POSITION", parser=parse_position, help=f"New position: {HOW}.", show_default=False
        ),
    ],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            autocompletion=topic_names,
            help="Only this topic; may be repeated. Default: all with committed offsets.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Commit the new offsets, or only show them.")
    ] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = "text",
) -> int:
    """Reset a group's committed offsets; only show the changes unless --execute is given."""
    from minibroker.cli.group_admin import group_admin
    from minibroker.cli.terminal import complain

    with group_admin(bootstrap.addresses) as admin:
        moves = admin.plan_reset(group, topics or (), position)
        if execute:
            refuse_if_in_use(admin, group)
            moves = admin.reset(group, moves)
    if output == "json":
        print(json.dumps({"group": group, "executed": execute, "partitions": [move._asdict() for move in moves]}))
    else:
        print_moves(moves)
    refused = [move for move in moves if move.error is not None]
    for move in refused:
        complain(f"{move.topic} {move.partition}: {move.error}")
    if not execute and output != "json":
        complain("nothing was changed; add --execute to commit these offsets")
    return EXIT_FAILED if refused else EXIT_OK


def refuse_if_in_use(admin: GroupAdmin, group: str) -> None:
    """A broker would refuse partition by partition, with a code that hides the reason. Raises CommandFailed."""
    from minibroker.protocol.text import counted

    members = admin.members(group)
    if members:
        raise CommandFailed(
            f"group {group} is in use by {counted(members, 'member')}; stop them first "
            f"(`minibroker groups describe {group}` shows them), then try again"
        )


def print_moves(moves: list[Move]) -> None:
    from minibroker.cli.terminal import print_table

    rows = [
        (
            move.topic,
            move.partition,
            "-" if move.before is None else move.before,
            move.after,
            "" if move.before is None else f"{move.after - move.before:+d}",
        )
        for move in moves
        if move.error is None
    ]
    print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER", "CHANGE"), rows, left=("TOPIC",))


@app.command("delete", epilog="Example: minibroker groups delete reports")
def delete_groups(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", show_default=False, autocompletion=group_names)],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore groups that do not exist.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    output: OutputOption = "text",
) -> int:
    """Delete groups and their committed offsets."""
    from minibroker.cli.group_admin import group_admin
    from minibroker.cli.outcomes import report

    with group_admin(bootstrap.addresses) as admin:
        outcomes = admin.delete(groups, may_be_absent=if_exists)
    return report(outcomes, output)
