"""`minibroker acls ...`: list, add and remove access rules, on any Kafka broker with an authorizer.

The options have the meanings of Kafka's `kafka-acls`: `--producer` and `--consumer` stand for what these need. This
module reads arguments and prints; `acl_admin` asks the broker.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.cli.completion import group_names, topic_names
from minibroker.cli.options import show_help_if_alone
from minibroker.cli.parameters import OutputOption, on_cluster
from minibroker.errors import EXIT_OK, BadValue

if TYPE_CHECKING:
    from minibroker.any_cluster.acl_admin import Request

OPERATIONS = (
    "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs",
    "IdempotentWrite",
)  # fmt: skip
ADD_EPILOG = """Examples:

minibroker acls add --allow alice --consumer --topic orders --group reports

minibroker acls add --allow alice --producer --topic orders- --prefixed

minibroker acls add --deny '*' --operation Delete --topic orders"""
REMOVE_EPILOG = """Examples:

minibroker acls remove --allow alice --operation Read --topic orders

minibroker acls remove --topic orders  (all rules of this name)

minibroker acls remove --allow alice  (all rules that allow this user anything)"""

app = typer.Typer(help="List, add and remove access rules (ACLs).")
app.callback(invoke_without_command=True)(show_help_if_alone)


def parse_operation(text: str) -> str:
    """Kafka's name of an operation, in any case. Raises BadValue."""
    known = {name.lower(): name for name in OPERATIONS}
    try:
        return known[text.strip().lower().replace("_", "").replace("-", "")]
    except KeyError:
        raise BadValue(f"{text!r} is not one of {', '.join(OPERATIONS)}") from None


TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="NAME", autocompletion=topic_names, help="Of this topic; * is every topic."),
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", "-g", metavar="NAME", autocompletion=group_names, help="Of this consumer group."),
]
TransactionalIdOption = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="Of this transactional id.")
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="Of the cluster itself.")]
PrefixedOption = Annotated[bool, typer.Option("--prefixed", help="Of all resources whose names begin so.")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow", "--allow-principal", metavar="USER", help="Allow NAME, or User:NAME; * is every user."),
]
DenyOption = Annotated[
    list[str] | None,
    typer.Option("--deny", "--deny-principal", metavar="USER", help="Deny this user, whatever else allows it."),
]
HostOption = Annotated[
    list[str] | None, typer.Option("--host", metavar="IP", help="Only from this address; may be repeated.")
]
OperationOption = Annotated[
    list[str] | None,
    typer.Option(
        "--operation",
        "-O",
        metavar="NAME",
        parser=parse_operation,
        help="Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs, ClusterAction, "
        "IdempotentWrite or All, the default; may be repeated.",
    ),
]
ProducerOption = Annotated[bool, typer.Option("--producer", help="All that a producer needs, a transactional one too.")]
IdempotentOption = Annotated[bool, typer.Option("--idempotent", help="With --producer: an idempotent one.")]
ConsumerOption = Annotated[bool, typer.Option("--consumer", help="All that a consumer in a group needs.")]


@app.command("list", epilog="Example: minibroker acls list --topic orders --applying")
@on_cluster
def list_acls(
    cluster: Cluster,
    topics: TopicOption = None,
    groups: GroupOption = None,
    transactional_ids: TransactionalIdOption = None,
    of_cluster: ClusterOption = False,
    users: Annotated[
        list[str] | None, typer.Option("--user", "--principal", metavar="USER", help="For this user alone.")
    ] = None,
    applying: Annotated[
        bool, typer.Option("--applying", help="All rules that apply to these names: by prefixes and * too.")
    ] = False,
    output: OutputOption = "text",
) -> int:
    """List access rules: all of them, or those of some names or users."""
    from minibroker.any_cluster.acl_admin import Names, acl_admin, wanted_of

    names = Names(topics or (), groups or (), transactional_ids or (), of_cluster)
    with acl_admin(cluster) as admin:
        rules = admin.rules(wanted_of(names, users or (), applying=applying))
    if output == "json":
        print(json.dumps([rule.as_document() for rule in rules]))
        return EXIT_OK

    from minibroker.cli.terminal import complain, print_table

    if rules:
        columns = ("RESOURCE", "NAME", "PATTERN", "USER", "HOST", "RULE", "OPERATION")
        print_table(columns, (list(rule.as_document().values()) for rule in rules), left=columns)
    else:
        complain("no such rules; `minibroker acls add` adds one")
    return EXIT_OK


@app.command("add", epilog=ADD_EPILOG)
@on_cluster
def add_acls(
    cluster: Cluster,
    allowed: AllowOption = None,
    denied: DenyOption = None,
    operations: OperationOption = None,
    producer: ProducerOption = False,
    idempotent: IdempotentOption = False,
    consumer: ConsumerOption = False,
    topics: TopicOption = None,
    groups: GroupOption = None,
    transactional_ids: TransactionalIdOption = None,
    of_cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    hosts: HostOption = None,
    output: OutputOption = "text",
) -> int:
    """Add access rules."""
    from minibroker.any_cluster.acl_admin import Names, Request, Roles, acl_admin
    from minibroker.cli.outcomes import report

    names = Names(topics or (), groups or (), transactional_ids or (), of_cluster)
    roles = Roles(producer, idempotent, consumer)
    request = Request(names, roles, operations or (), allowed or (), denied or (), hosts or (), prefixed)
    check(request)
    if not (allowed or denied):
        raise BadValue("name the users with --allow or --deny")
    if not any(names) and not idempotent:
        raise BadValue("name the resources with --topic, --group, --transactional-id or --cluster")
    with acl_admin(cluster) as admin:
        outcomes = admin.add(list(request.rules()))
    return report(outcomes, output)


@app.command("remove", epilog=REMOVE_EPILOG)
@on_cluster
def remove_acls(
    cluster: Cluster,
    allowed: AllowOption = None,
    denied: DenyOption = None,
    operations: OperationOption = None,
    producer: ProducerOption = False,
    idempotent: IdempotentOption = False,
    consumer: ConsumerOption = False,
    topics: TopicOption = None,
    groups: GroupOption = None,
    transactional_ids: TransactionalIdOption = None,
    of_cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    hosts: HostOption = None,
    output: OutputOption = "text",
) -> int:
    """Remove the access rules that are equal in all that is named; what is not named may be anything."""
    from minibroker.any_cluster.acl_admin import Names, Request, Roles, acl_admin
    from minibroker.cli.outcomes import report

    names = Names(topics or (), groups or (), transactional_ids or (), of_cluster)
    roles = Roles(producer, idempotent, consumer)
    request = Request(names, roles, operations or (), allowed or (), denied or (), hosts or (), prefixed)
    check(request)
    if not (any(names) or allowed or denied or idempotent):
        raise BadValue("name the resources or the users whose rules to remove")
    with acl_admin(cluster) as admin:
        outcomes = admin.remove(list(request.wanted()))
    if not outcomes and output != "json":
        from minibroker.cli.terminal import complain

        complain("no such rules; `minibroker acls list` shows them all")
    return report(outcomes, output)


def check(request: Request) -> None:
    """Raises BadValue for roles without what they need."""
    names, roles = request.names, request.roles
    if any(roles) and request.operations:
        raise BadValue("--producer and --consumer bring their operations; leave --operation out")
    if roles.idempotent and not roles.producer:
        raise BadValue("--idempotent goes with --producer")
    if roles.producer and not names.topics:
        raise BadValue("--producer needs --topic")
    if roles.consumer and not (names.topics and names.groups):
        raise BadValue("--consumer needs --topic and --group")
