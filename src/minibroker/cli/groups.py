"""`minibroker groups ...`: list, describe with lag, reset offsets, delete, on any Kafka broker.

This module reads arguments and prints; `group_admin` asks the broker, and is imported once there is something to ask.
With a minibroker's control socket, `fetching_groups` has what clients only fetch.
`reset` only shows a plan unless --execute is given, as kafka-consumer-groups does: it overwrites committed offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from minibroker import patience
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.positions import Position
from minibroker.cli.completion import group_names
from minibroker.cli.options import Output, numbers_of, show_help_if_alone
from minibroker.cli.outcomes import report, report_rows
from minibroker.cli.parameters import (
    FetchingControlOption,
    GroupArgument,
    GroupsArgument,
    IfExistsOption,
    OutputOption,
    PartitionsOption,
    TopicsOption,
    changing_cluster,
    on_cluster,
    position_option,
)
from minibroker.errors import EXIT_FAILED, EXIT_OK, BadValue, CommandFailed

if TYPE_CHECKING:
    from minibroker.any_cluster.cluster import TopicPartition
    from minibroker.any_cluster.described_groups import Group, Member
    from minibroker.any_cluster.group_admin import GroupAdmin, GroupDescription, Move
    from minibroker.fetching_groups import FetchedPartition

app = typer.Typer(help="List, describe, reset, export and delete consumer groups.")
app.callback(invoke_without_command=True)(show_help_if_alone)


@app.command(
    "list",
    epilog="""Examples:

minibroker groups list -o json

minibroker groups list --control broker.control  (also clients that only fetch)""",
)
@on_cluster
def list_groups(cluster: Cluster, control: FetchingControlOption = None, output: OutputOption = "text") -> int:
    """List all groups."""
    from minibroker.any_cluster.cluster import connected
    from minibroker.any_cluster.group_admin import GroupAdmin, GroupSummary
    from minibroker.fetching_groups import ONLY_FETCHES

    with connected(cluster) as client:
        groups = GroupAdmin(client).groups()
        known = {each.group for each in groups}
        only = [each for each in fetched_by(client, control) if each not in known]
        groups += [GroupSummary(each, ONLY_FETCHES, 0, "", "") for each in only]
    documents = [group._asdict() for group in groups]
    columns = ("GROUP", "STATE", "MEMBERS", "TYPE", "PROTOCOL")
    rows = [
        (
            each.group,
            each.state,
            "?" if each.members is None else each.members,
            each.type or "-",
            each.protocol_type or "-",
        )
        for each in groups
    ]
    none = "no groups yet; `minibroker consume TOPIC --group NAME` creates one"
    return report_rows(documents, columns, rows, output, left=("GROUP", "STATE", "TYPE", "PROTOCOL"), without=none)


def fetched_by(client: Any, control: Path | None) -> dict[str, list[FetchedPartition]]:
    """Ask for what groups only fetch, if there is a control socket. Raises CommandFailed."""
    if control is None:
        return {}
    from minibroker.control import Control
    from minibroker.errors import BrokerError
    from minibroker.fetching_groups import fetching_groups

    try:
        return fetching_groups(client, Control(control))
    except BrokerError as error:
        raise CommandFailed(
            f"{error}; name the socket of a running broker, which `minibroker serve --control PATH` makes, or leave "
            "--control and MINIBROKER_CONTROL out"
        ) from error


@app.command(
    "describe",
    epilog="""Examples:

minibroker groups describe reports

minibroker groups describe spark-kafka-source-1f0c-executor --control broker.control  (it only fetches)""",
)
@on_cluster
def describe_group(
    group: GroupArgument, cluster: Cluster, control: FetchingControlOption = None, output: OutputOption = "text"
) -> int:
    """Show a group's members, committed offsets and lag; of one that only fetches, where its last fetches were."""
    from minibroker.any_cluster.cluster import connected
    from minibroker.any_cluster.described_groups import described
    from minibroker.any_cluster.group_admin import GroupAdmin
    from minibroker.fetching_groups import ONLY_FETCHES, only_fetching

    with connected(cluster) as client:
        fetched = fetched_by(client, control).get(group, [])
        if fetched and not described(client, [group])[group].exists:
            found = only_fetching(group)
        else:
            found = GroupAdmin(client).describe(group)
    if output == "json":
        document = as_document(found)
        if fetched:
            document["lag"] = lag_of(found, fetched)
            document["fetched"] = [each._asdict() for each in fetched]
        print(json.dumps(document))
        return EXIT_OK
    only_fetches = found.group.state == ONLY_FETCHES
    if not only_fetches:
        print_description(found)
        if fetched:
            print("\nfetched, without a commit:")
    if fetched:
        print_fetched(group, fetched, has_title=only_fetches)
    return EXIT_OK


def print_fetched(group: str, fetched: list[FetchedPartition], *, has_title: bool) -> None:
    from minibroker.cli.terminal import print_line, print_table
    from minibroker.protocol.text import as_utc, counted

    if has_title:
        clients = counted(len({(each.client_id, each.host) for each in fetched}), "client")
        lag = sum(each.lag for each in fetched)
        print_line(f"{group}: fetches only, commits nothing, {clients}, lag {lag}", "bold")
    print_table(
        ("TOPIC", "PARTITION", "FETCHED", "END", "LAG", "LAST FETCH", "HOST", "CLIENT"),
        [(*each[:5], as_utc(each.fetched_ms), each.host, each.client_id or "-") for each in fetched],
        left=("TOPIC", "LAST FETCH", "HOST", "CLIENT"),
    )


def as_document(found: GroupDescription) -> dict[str, object]:
    members = found.group.members
    return {
        **{name: getattr(found.group, name) for name in DESCRIBED},
        "lag": lag_of(found),
        "members": None if members is None else [member_document(member) for member in members],
        "partitions": [partition._asdict() for partition in found.partitions],
    }


def member_document(member: Member) -> dict[str, object]:
    partitions = {name: getattr(member, name) for name in ("partitions", "awaits", "revokes")}
    return member._asdict() | {name: [at._asdict() for at in each] for name, each in partitions.items()}


def lag_of(found: GroupDescription, fetched: Sequence[FetchedPartition] = ()) -> int | None:
    from minibroker.any_cluster.group_admin import whole_lag

    return whole_lag([*(each.lag for each in found.partitions), *(each.lag for each in fetched)])


def print_description(found: GroupDescription) -> None:
    from minibroker.cli.terminal import print_line, print_table
    from minibroker.protocol.text import counted

    group = found.group
    members = "members unknown" if group.members is None else counted(len(group.members), "member")
    lag = lag_of(found)
    about = [group.state, members, f"lag {'unknown' if lag is None else lag}", *nature(group)]
    print_line(f"{group.group}: {', '.join(about)}", "bold")
    if group.members:
        print_members(group, group.members)
        print()
    if not found.partitions:
        print("no offsets committed")
        return
    rows = [tuple("-" if cell is None else cell for cell in partition) for partition in found.partitions]
    print_table(("TOPIC", "PARTITION", started(group), "END", "LAG", "CLIENT"), rows, left=("TOPIC", "CLIENT"))


def started(group: Group) -> str:
    """The title of a partition's offset in a group: a share group commits none."""
    from minibroker.any_cluster.described_groups import SHARE

    return "START" if group.type == SHARE else "COMMITTED"


DESCRIBED = ("group", "state", "type", "protocol_type", "protocol", "epoch", "assignment_epoch")
NATURES = {"consumer": "consumer protocol", "share": "share group", "streams": "streams group"}


def nature(group: Group) -> Iterator[str]:
    """The type of a group, unless it is a classic one of consumers, and its epoch."""
    from minibroker.protocol.message_values import CLASSIC, CONSUMER_PROTOCOL_TYPE

    if group.type != CLASSIC:
        yield NATURES.get(group.type, group.type)
    elif group.protocol_type not in ("", CONSUMER_PROTOCOL_TYPE):
        yield f"protocol type {group.protocol_type}"
    if group.epoch is not None:
        yield f"epoch {group.epoch}"
    if group.assignment_epoch != group.epoch:
        yield f"assigned for epoch {group.assignment_epoch}"


def print_members(group: Group, members: list[Member]) -> None:
    """A line of each, with columns of those facts that at least one has."""
    from minibroker.cli.terminal import print_table

    columns: dict[str, Callable[[Member], object]] = {
        "CLIENT": lambda each: each.client_id,
        "INSTANCE": lambda each: each.instance_id,
        "HOST": lambda each: each.host,
        "PROTOCOL": lambda each: each.protocol,
        "EPOCH": lambda each: each.epoch,
        "SUBSCRIBES TO": lambda each: each.subscribed_topic_regex,
        "TASKS": lambda each: " ".join(each.tasks),
        "PARTITIONS": lambda each: by_topic(each.partitions) or each.unread(group.protocol_type) or "none",
        "REVOKES": lambda each: by_topic(each.revokes),
        "AWAITS": lambda each: by_topic(each.awaits),
    }
    if len({each.protocol for each in members}) == 1:
        del columns["PROTOCOL"]
    shown = {name: [of(each) for each in members] for name, of in columns.items()}
    shown = {name: cells for name, cells in shown.items() if any(cell not in (None, "") for cell in cells)}
    rows = [tuple("-" if cell in (None, "") else cell for cell in row) for row in zip(*shown.values(), strict=True)]
    print_table(tuple(shown), rows, left=tuple(name for name in shown if name != "EPOCH"))


def by_topic(partitions: Sequence[TopicPartition]) -> str:
    """Partitions by topic, such as `flights 0,2-4`."""
    from minibroker.protocol.text import ranges

    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return "  ".join(f"{topic} {ranges(of_topic)}" for topic, of_topic in numbers.items())


@app.command(
    "reset",
    epilog="""Examples:

minibroker groups reset reports --topic flights --partition 0 --to beginning --execute

minibroker groups reset reports --to-group nightly --execute

minibroker groups reset reports --from-file offsets.csv --execute  (from `minibroker groups export`)""",
)
@on_cluster
def reset_group(
    group: GroupArgument,
    cluster: Cluster,
    position: Annotated[Position | None, position_option("--to", does="New position")] = None,
    other_group: Annotated[
        str | None,
        typer.Option(
            "--to-group", metavar="GROUP", autocompletion=group_names, help="To the committed offsets of this group."
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", help="To the offsets in this file of `groups export` or of Kafka's tool."
        ),
    ] = None,
    topics: TopicsOption = None,
    partitions: PartitionsOption = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Commit the new offsets, or only show them.")
    ] = False,
    output: OutputOption = "text",
) -> int:
    """Reset a group's committed offsets; only show the changes unless --execute is given."""
    if sum(each is not None for each in (position, other_group, file)) != 1:
        raise BadValue("name the new offsets by one of --to, --to-group and --from-file")
    from minibroker.any_cluster.group_admin import Scope, group_admin

    scope = Scope(tuple(topics or ()), tuple(numbers_of(partitions)))
    if execute:
        patience.lift()
    with group_admin(cluster) as admin:
        if position is not None:
            moves = admin.plan_reset(group, scope, position)
        elif other_group is not None:
            moves = admin.plan_as(group, scope, admin.committed(other_group), f"group {other_group}")
        else:
            assert file is not None
            moves = admin.plan_as(group, scope, offsets_in(file, group), str(file))
        if execute:
            refuse_if_in_use(admin, group)
            moves = admin.reset(group, moves)
    return report_moves(group, moves, output, executed=execute)


def offsets_in(file: Path, group: str) -> dict[TopicPartition, int]:
    """The offsets of that group in a plan; a line on standard error counts those of others. Raises CommandFailed."""
    from minibroker.cli.reset_plan import plan_in

    plan = plan_in(file, group)
    if plan.of_other_groups:
        from minibroker.cli.terminal import complain
        from minibroker.protocol.text import counted

        complain(f"{file}: {counted(plan.of_other_groups, 'line')} of other groups left out")
    return plan.offsets


def report_moves(group: str, moves: list[Move], output: Output, *, executed: bool) -> int:
    from minibroker.cli.terminal import complain

    if output == "json":
        print(json.dumps({"group": group, "executed": executed, "partitions": [move._asdict() for move in moves]}))
    else:
        print_moves(moves)
    refused = [move for move in moves if move.error is not None]
    for move in moves:
        if move.asked is not None:
            complain(
                f"{move.topic} {move.partition}: it has no offset {move.asked}; the nearest that it has is {move.after}"
            )
    for move in refused:
        complain(f"{move.topic} {move.partition}: {move.error}")
    if not executed and output != "json":
        complain("nothing was changed; add --execute to commit these offsets")
    return EXIT_FAILED if refused else EXIT_OK


@app.command("export", epilog="Example: minibroker groups export reports > offsets.csv")
@on_cluster
def export_group(
    group: GroupArgument, cluster: Cluster, topics: TopicsOption = None, output: OutputOption = "text"
) -> int:
    """Print a group's committed offsets as TOPIC,PARTITION,OFFSET, for `groups reset --from-file`."""
    from minibroker.any_cluster.group_admin import Scope, group_admin

    with group_admin(cluster) as admin:
        committed = admin.committed(group)
    wanted = Scope(tuple(topics or ())).of(sorted(committed), f"group {group}")
    rows = [(*partition, committed[partition]) for partition in wanted]
    if output == "json":
        print(json.dumps([dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]))
    else:
        for row in rows:
            print(",".join(map(str, row)))
    return EXIT_OK


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
@changing_cluster
def delete_groups(
    groups: GroupsArgument, cluster: Cluster, if_exists: IfExistsOption = False, output: OutputOption = "text"
) -> int:
    """Delete groups and their committed offsets."""
    from minibroker.any_cluster.group_admin import group_admin

    with group_admin(cluster) as admin:
        outcomes = admin.delete(groups, may_be_absent=if_exists)
    return report(outcomes, output)
