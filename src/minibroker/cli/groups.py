"""`minibroker groups ...`: list, describe with lag, reset offsets, delete, on any Kafka broker.

This module reads arguments and prints; `group_admin` asks the broker.
With a minibroker's control socket, `fetching_groups` has what clients only fetch.
`reset` only shows a plan unless --execute is given, as kafka-consumer-groups does: it overwrites committed offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from minibroker import patience
from minibroker.admin.group_offsets import GroupDescription, GroupSummary, Move, Scope, whole_lag
from minibroker.admin.groups import SHARE, Group, Member
from minibroker.admin.positions import Position
from minibroker.any_cluster import group_admin
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.described_groups import described
from minibroker.cli.completion import group_names
from minibroker.cli.options import noun, numbers_of
from minibroker.cli.parameters import (
    FetchingControlOption,
    GroupArgument,
    GroupsArgument,
    IfExistsOption,
    PartitionsOption,
    TopicsOption,
    changing_cluster,
    on_cluster,
    position_option,
)
from minibroker.cli.reset_plan import plan_in
from minibroker.cli.shown import Shown, results, table
from minibroker.cli.terminal import complain, print_line, print_table
from minibroker.client.client import Client
from minibroker.client.topic_partition import TopicPartition
from minibroker.control import Control
from minibroker.errors import BadValue, BrokerError, CommandFailed
from minibroker.fetching_groups import ONLY_FETCHES, FetchedPartition, fetching_groups, only_fetching
from minibroker.protocol.message_values import CLASSIC, CONSUMER_PROTOCOL_TYPE
from minibroker.protocol.text import as_utc, counted, ranges
from minibroker.shared_records import SharedRecords, shared_records

app = noun(help="List, describe, reset, export and delete consumer groups.")


@app.command(
    "list",
    epilog="""Examples:

minibroker groups list -o json

minibroker groups list --control broker.control  (also clients that only fetch)""",
)
@on_cluster
def list_groups(cluster: Cluster, control: FetchingControlOption = None) -> Shown:
    """List all groups."""
    with connected(cluster) as client:
        groups = group_admin.groups(client)
        known = {each.group for each in groups}
        only = [each for each in fetched_by(client, control) if each not in known]
        groups += [GroupSummary(each, ONLY_FETCHES, 0, "", "") for each in only]
    rows = [(*each[:3], *(cell or "-" for cell in each[3:])) for each in groups]
    none = "no groups yet; `minibroker consume TOPIC --group NAME` creates one"
    return table(groups, ("<GROUP", "<STATE", "MEMBERS", "<TYPE", "<PROTOCOL"), rows, without=none)


def fetched_by(client: Client, control: Path | None) -> dict[str, list[FetchedPartition]]:
    """Ask for what groups only fetch, if there is a control socket. Raises CommandFailed."""
    if control is None:
        return {}
    with at_a_socket():
        return fetching_groups(client, Control(control))


def in_flight(control: Path, group: str) -> list[SharedRecords]:
    """Ask for the records of a share group in flight. Raises CommandFailed."""
    with at_a_socket():
        return shared_records(Control(control), group)


@contextmanager
def at_a_socket() -> Iterator[None]:
    """Raises CommandFailed, with what to do, where a control socket does not answer."""
    try:
        yield
    except BrokerError as error:
        raise CommandFailed(
            f"{error}; name the socket of a running broker, which `minibroker serve --control PATH` makes, or leave "
            "--control and MINIBROKER_CONTROL out"
        ) from error


@app.command(
    "describe",
    epilog="""Examples:

minibroker groups describe reports

minibroker groups describe spark-kafka-source-1f0c-executor --control broker.control  (it only fetches)

minibroker groups describe billing --control broker.control  (a share group: who has which records since when)""",
)
@on_cluster
def describe_group(group: GroupArgument, cluster: Cluster, control: FetchingControlOption = None) -> Shown:
    """Show a group's members, committed offsets and lag; of one that only fetches, where its last fetches were.

    Of a share group, with --control, show the records in flight: who has them since when, and the deliveries.
    """
    with connected(cluster) as client:
        fetched = fetched_by(client, control).get(group, [])
        if fetched and not described(client, [group])[group].exists:
            found = only_fetching(group)
        else:
            found = group_admin.describe(client, group)
        is_shared = control is not None and found.group.type == SHARE
        records = in_flight(control, group) if control is not None and is_shared else []
    document = as_document(found)
    if fetched:
        document |= {"lag": lag_of(found, fetched), "fetched": [each._asdict() for each in fetched]}
    if is_shared:
        document["records"] = [each._asdict() for each in records]

    def print_text() -> None:
        only_fetches = found.group.state == ONLY_FETCHES
        if not only_fetches:
            print_description(found)
            if fetched:
                print("\nfetched, without a commit:")
        if fetched:
            print_fetched(group, fetched, has_title=only_fetches)
        if is_shared:
            print_in_flight(records)

    return Shown(document, print_text)


def print_fetched(group: str, fetched: list[FetchedPartition], *, has_title: bool) -> None:
    if has_title:
        clients = counted(len({(each.client_id, each.host) for each in fetched}), "client")
        lag = sum(each.lag for each in fetched)
        print_line(f"{group}: fetches only, commits nothing, {clients}, lag {lag}", "bold")
    print_table(
        ("TOPIC", "PARTITION", "FETCHED", "END", "LAG", "LAST FETCH", "HOST", "CLIENT"),
        [(*each[:5], as_utc(each.fetched_ms), each.host, each.client_id or "-") for each in fetched],
        left=("TOPIC", "LAST FETCH", "HOST", "CLIENT"),
    )


def print_in_flight(records: Sequence[SharedRecords]) -> None:
    print()
    if not records:
        print("no records in flight")
        return
    print_table(
        ("TOPIC", "PARTITION", "RECORDS", "STATE", "DELIVERIES", "HELD FOR", "LOCK LEFT", "MEMBER"),
        [
            (
                each.topic,
                each.partition,
                each.offsets,
                each.state,
                each.delivery_count,
                f"{each.held_ms / 1000:.1f} s" if each.member_id else "-",
                f"{each.left_ms / 1000:.1f} s" if each.member_id else "-",
                each.member_id or "-",
            )
            for each in records
        ],
        left=("TOPIC", "STATE", "MEMBER"),
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
    return whole_lag([*(each.lag for each in found.partitions), *(each.lag for each in fetched)])


def print_description(found: GroupDescription) -> None:
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
    return "START" if group.type == SHARE else "COMMITTED"


DESCRIBED = ("group", "state", "type", "protocol_type", "protocol", "epoch", "assignment_epoch")
NATURES = {"consumer": "consumer protocol", "share": "share group", "streams": "streams group"}


def nature(group: Group) -> Iterator[str]:
    """The type of a group, unless it is a classic one of consumers, and its epoch."""
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
) -> Shown:
    """Reset a group's committed offsets; only show the changes unless --execute is given."""
    if sum(each is not None for each in (position, other_group, file)) != 1:
        raise BadValue("name the new offsets by one of --to, --to-group and --from-file")
    scope = Scope(tuple(topics or ()), tuple(numbers_of(partitions)))
    if execute:
        patience.lift()
    with connected(cluster) as client:
        if position is not None:
            moves = group_admin.plan_reset(client, group, scope, position)
        elif other_group is not None:
            moves = group_admin.plan_as(
                client, group, scope, group_admin.committed(client, other_group), f"group {other_group}"
            )
        else:
            assert file is not None
            moves = group_admin.plan_as(client, group, scope, offsets_in(file, group), str(file))
        if execute:
            refuse_if_in_use(client, group)
            moves = group_admin.reset(client, group, moves)
    return moves_shown(group, moves, executed=execute)


def offsets_in(file: Path, group: str) -> dict[TopicPartition, int]:
    """The offsets of that group in a plan; a line on standard error counts those of others. Raises CommandFailed."""
    plan = plan_in(file, group)
    if plan.of_other_groups:
        complain(f"{file}: {counted(plan.of_other_groups, 'line')} of other groups left out")
    return plan.offsets


def moves_shown(group: str, moves: list[Move], *, executed: bool) -> Shown:
    for move in moves:
        if move.asked is not None:
            complain(
                f"{move.topic} {move.partition}: it has no offset {move.asked}; the nearest that it has is {move.after}"
            )

    def print_text() -> None:
        rows = [
            (*move[:2], *("-" if each is None else each for each in move[2:4]), change_of(move))
            for move in moves
            if move.error is None
        ]
        print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER", "CHANGE"), rows, left=("TOPIC",))
        if not executed:
            complain("nothing was changed; add --execute to commit these offsets")

    document = {"group": group, "executed": executed, "partitions": [move._asdict() for move in moves]}
    refused = [f"{move.topic} {move.partition}: {move.error}" for move in moves if move.error is not None]
    return Shown(document, print_text, refused)


def change_of(move: Move) -> str:
    return "" if move.before is None else f"{move.after - move.before:+d}"


@app.command("export", epilog="Example: minibroker groups export reports > offsets.csv")
@on_cluster
def export_group(group: GroupArgument, cluster: Cluster, topics: TopicsOption = None) -> Shown:
    """Print a group's committed offsets as TOPIC,PARTITION,OFFSET, for `groups reset --from-file`."""
    with connected(cluster) as client:
        committed = group_admin.committed(client, group)
    wanted = Scope(tuple(topics or ())).of(sorted(committed), f"group {group}")
    rows = [(*partition, committed[partition]) for partition in wanted]
    documents = [dict(zip(("topic", "partition", "offset"), row, strict=True)) for row in rows]
    return Shown(documents, lambda: print(*(",".join(map(str, row)) for row in rows), sep="\n"))


def refuse_if_in_use(client: Client, group: str) -> None:
    """A broker would refuse partition by partition, with a code that hides the reason. Raises CommandFailed."""
    members = group_admin.members(client, group)
    if members:
        raise CommandFailed(
            f"group {group} is in use by {counted(members, 'member')}; stop them first "
            f"(`minibroker groups describe {group}` shows them), then try again"
        )


@app.command("delete", epilog="Example: minibroker groups delete reports")
@changing_cluster
def delete_groups(groups: GroupsArgument, cluster: Cluster, if_exists: IfExistsOption = False) -> Shown:
    """Delete groups and their committed offsets."""
    with connected(cluster) as client:
        outcomes = group_admin.delete(client, groups, may_be_absent=if_exists)
    return results(outcomes)
