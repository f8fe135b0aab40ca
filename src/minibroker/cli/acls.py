"""`minibroker acls ...`: list, add and remove access rules, on any Kafka broker with an authorizer.

The options have the meanings of Kafka's `kafka-acls`: `--producer` and `--consumer` stand for what these need. This
module reads arguments and prints; `acl_admin` asks the broker.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from minibroker.admin.acls import Names, Request, Roles, wanted_of
from minibroker.any_cluster import acl_admin
from minibroker.any_cluster.acl_admin import refusals_explained
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected
from minibroker.cli.completion import group_names, topic_names
from minibroker.cli.options import noun
from minibroker.cli.parameters import changing_cluster, on_cluster
from minibroker.cli.shown import Shown, results, table
from minibroker.errors import BadValue

OPERATIONS = (
    "All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "ClusterAction", "DescribeConfigs", "AlterConfigs",
    "IdempotentWrite", "TwoPhaseCommit",
)  # fmt: skip
ADD_EPILOG = """Examples:

minibroker acls add --allow alice --consumer --topic orders --group reports

minibroker acls add --allow alice --producer --topic orders- --prefixed

minibroker acls add --deny '*' --operation Delete --topic orders"""
REMOVE_EPILOG = """Examples:

minibroker acls remove --allow alice --operation Read --topic orders

minibroker acls remove --topic orders  (all rules of this name)

minibroker acls remove --allow alice  (all rules that allow this user anything)"""

app = noun(help="List, add and remove access rules (ACLs).")


def parse_operation(text: str) -> str:
    """Kafka's name of an operation, in any case. Raises BadValue."""
    known = {name.lower(): name for name in OPERATIONS}
    try:
        return known[text.strip().lower().replace("_", "").replace("-", "")]
    except KeyError:
        raise BadValue(f"{text!r} is not one of {', '.join(OPERATIONS)}") from None


class Named(NamedTuple):
    """The options that name resources."""

    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", "-t", metavar="NAME", autocompletion=topic_names, help="Of this topic; * is every topic."
        ),
    ] = None
    groups: Annotated[
        list[str] | None,
        typer.Option("--group", "-g", metavar="NAME", autocompletion=group_names, help="Of this consumer group."),
    ] = None
    transactional_ids: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="Of this transactional id.")
    ] = None
    of_cluster: Annotated[bool, typer.Option("--cluster", help="Of the cluster itself.")] = False

    def names(self) -> Names:
        return Names(self.topics or (), self.groups or (), self.transactional_ids or (), self.of_cluster)


class Granted(NamedTuple):
    """The options that name users, and what they may or may not do."""

    allowed: Annotated[
        list[str] | None,
        typer.Option("--allow", "--allow-principal", metavar="USER", help="Allow NAME, or User:NAME; * is every user."),
    ] = None
    denied: Annotated[
        list[str] | None,
        typer.Option("--deny", "--deny-principal", metavar="USER", help="Deny this user, whatever else allows it."),
    ] = None
    operations: Annotated[
        list[str] | None,
        typer.Option(
            "--operation",
            "-O",
            metavar="NAME",
            parser=parse_operation,
            help="Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs, ClusterAction, "
            "IdempotentWrite, TwoPhaseCommit or All, the default; may be repeated.",
        ),
    ] = None
    producer: Annotated[
        bool, typer.Option("--producer", help="All that a producer needs, a transactional one too.")
    ] = False
    idempotent: Annotated[bool, typer.Option("--idempotent", help="With --producer: an idempotent one.")] = False
    consumer: Annotated[bool, typer.Option("--consumer", help="All that a consumer in a group needs.")] = False


class Where(NamedTuple):
    """The options that widen or narrow a rule."""

    prefixed: Annotated[bool, typer.Option("--prefixed", help="Of all resources whose names begin so.")] = False
    hosts: Annotated[
        list[str] | None, typer.Option("--host", metavar="IP", help="Only from this address; may be repeated.")
    ] = None


def request_of(granted: Granted, named: Named, where: Where) -> Request:
    """Raises BadValue for roles without what they need."""
    names, roles = named.names(), Roles(granted.producer, granted.idempotent, granted.consumer)
    if any(roles) and granted.operations:
        raise BadValue("--producer and --consumer bring their operations; leave --operation out")
    if roles.idempotent and not roles.producer:
        raise BadValue("--idempotent goes with --producer")
    if roles.producer and not names.topics:
        raise BadValue("--producer needs --topic")
    if roles.consumer and not (names.topics and names.groups):
        raise BadValue("--consumer needs --topic and --group")
    allowed, denied, hosts = granted.allowed or (), granted.denied or (), where.hosts or ()
    return Request(names, roles, granted.operations or (), allowed, denied, hosts, where.prefixed)


@app.command("list", epilog="Example: minibroker acls list --topic orders --applying")
@on_cluster
def list_acls(
    cluster: Cluster,
    named: Named,
    users: Annotated[
        list[str] | None, typer.Option("--user", "--principal", metavar="USER", help="For this user alone.")
    ] = None,
    applying: Annotated[
        bool, typer.Option("--applying", help="All rules that apply to these names: by prefixes and * too.")
    ] = False,
) -> Shown:
    """List access rules: all of them, or those of some names or users."""
    with connected(cluster) as client, refusals_explained(client):
        rules = acl_admin.rules(client, wanted_of(named.names(), users or (), applying=applying))
    documents = [rule.as_document() for rule in rules]
    columns = ("<RESOURCE", "<NAME", "<PATTERN", "<USER", "<HOST", "<RULE", "<OPERATION")
    rows = [list(document.values()) for document in documents]
    return table(documents, columns, rows, without="no such rules; `minibroker acls add` adds one")


@app.command("add", epilog=ADD_EPILOG)
@changing_cluster
def add_acls(cluster: Cluster, granted: Granted, named: Named, where: Where) -> Shown:
    """Add access rules."""
    request = request_of(granted, named, where)
    if not (request.allowed or request.denied):
        raise BadValue("name the users with --allow or --deny")
    if not any(request.names) and not request.roles.idempotent:
        raise BadValue("name the resources with --topic, --group, --transactional-id or --cluster")
    with connected(cluster) as client, refusals_explained(client):
        outcomes = acl_admin.add(client, list(request.rules()))
    return results(outcomes)


@app.command("remove", epilog=REMOVE_EPILOG)
@changing_cluster
def remove_acls(cluster: Cluster, granted: Granted, named: Named, where: Where) -> Shown:
    """Remove the access rules that are equal in all that is named; what is not named may be anything."""
    request = request_of(granted, named, where)
    if not (any(request.names) or request.allowed or request.denied or request.roles.idempotent):
        raise BadValue("name the resources or the users whose rules to remove")
    with connected(cluster) as client, refusals_explained(client):
        outcomes = acl_admin.remove(client, list(request.wanted()))
    return results(outcomes, without="no such rules; `minibroker acls list` shows them all")
