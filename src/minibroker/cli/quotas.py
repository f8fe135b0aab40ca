"""`minibroker quotas ...`: list, set, remove, of users and of client ids, on any Kafka broker.

This module reads arguments and prints; `quota_admin` asks the broker, and is imported once there is something to ask.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from minibroker.any_cluster.bootstrap import Cluster, Setting, parse_setting
from minibroker.cli.options import Output, show_help_if_alone
from minibroker.cli.parameters import OutputOption, on_cluster
from minibroker.errors import EXIT_OK, BadValue

if TYPE_CHECKING:
    from minibroker.any_cluster.quota_admin import Entity, EntityQuotas

UNITS = {"producer_byte_rate": "bytes/s", "consumer_byte_rate": "bytes/s", "request_percentage": "% of one core"}
DEFAULT = "(default)"
SET_EPILOG = (
    "Quotas: producer_byte_rate and consumer_byte_rate in bytes per second, request_percentage in percent of one core. "
    "Example: minibroker quotas set --client-id slow consumer_byte_rate=10000"
)

UserOption = Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="This user.")]
DefaultUserOption = Annotated[bool, typer.Option("--default-user", help="All users without quotas of their own.")]
ClientIdOption = Annotated[str | None, typer.Option("--client-id", "-c", metavar="NAME", help="This client id.")]
DefaultClientIdOption = Annotated[
    bool, typer.Option("--default-client-id", help="All client ids without quotas of their own.")
]

app = typer.Typer(help="List, set and remove quotas of users and client ids.")
app.callback(invoke_without_command=True)(show_help_if_alone)


def names_of(
    user: str | None, is_default_user: bool, client_id: str | None, is_default_client_id: bool
) -> dict[str, str | None]:
    """The names of an entity by type, None for the default. Raises BadValue."""
    names = {}
    for kind, name, is_default in (("user", user, is_default_user), ("client-id", client_id, is_default_client_id)):
        if name is not None and is_default:
            raise BadValue(f"name either --{kind} or --default-{kind}")
        if name is not None or is_default:
            names[kind] = name
    return names


def entity_of(names: dict[str, str | None]) -> Entity:
    """Raises BadValue."""
    from minibroker.any_cluster.quota_admin import Entity

    if not names:
        raise BadValue("name --user, --client-id, or both, or their defaults")
    return Entity(names)


@app.command("list", epilog="Example: minibroker quotas list --user ann")
@on_cluster
def list_quotas(
    cluster: Cluster,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    output: OutputOption = "text",
) -> int:
    """List quotas: all, or those of a user, of a client id."""
    names = names_of(user, default_user, client_id, default_client_id)
    from minibroker.any_cluster.quota_admin import quota_admin

    with quota_admin(cluster) as admin:
        found = admin.quotas(names)
    if output == "json":
        print(json.dumps([{"entity": dict(each.entity.names), "quotas": dict(each.quotas)} for each in found]))
    else:
        print_quotas(found)
    return EXIT_OK


def print_quotas(found: list[EntityQuotas]) -> None:
    from minibroker.cli.terminal import complain, print_table

    if not found:
        complain("no quotas")
        return
    rows = [
        (*(shown_name(each.entity, kind) for kind in ("user", "client-id")), key, f"{value:.15g}", UNITS.get(key, ""))
        for each in found
        for key, value in each.quotas.items()
    ]
    print_table(("USER", "CLIENT-ID", "QUOTA", "LIMIT", "UNIT"), rows, left=("USER", "CLIENT-ID", "QUOTA", "UNIT"))


def shown_name(entity: Entity, kind: str) -> str:
    if kind not in entity.names:
        return ""
    name = entity.names[kind]
    return DEFAULT if name is None else name


@app.command("set", epilog=SET_EPILOG)
@on_cluster
def set_quotas(
    settings: Annotated[
        list[Setting], typer.Argument(metavar="QUOTA=LIMIT...", parser=parse_setting, show_default=False)
    ],
    cluster: Cluster,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    output: OutputOption = "text",
) -> int:
    """Set quotas of a user, of a client id, or of both; others of theirs stay as they are."""
    entity = entity_of(names_of(user, default_user, client_id, default_client_id))
    quotas = {key: limit_of(key, text) for key, text in settings}
    from minibroker.any_cluster.quota_admin import quota_admin

    with quota_admin(cluster) as admin:
        admin.set(entity, quotas)
    return report(entity, [f"set: {key}={value:.15g}" for key, value in quotas.items()], {"set": quotas}, output)


@app.command("remove", epilog="Example: minibroker quotas remove --client-id slow consumer_byte_rate")
@on_cluster
def remove_quotas(
    cluster: Cluster,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA]...", show_default=False)] = None,
    user: UserOption = None,
    default_user: DefaultUserOption = False,
    client_id: ClientIdOption = None,
    default_client_id: DefaultClientIdOption = False,
    output: OutputOption = "text",
) -> int:
    """Remove quotas of a user, of a client id, or of both: those named, or all."""
    entity = entity_of(names_of(user, default_user, client_id, default_client_id))
    from minibroker.any_cluster.quota_admin import quota_admin

    with quota_admin(cluster) as admin:
        removed = admin.remove(entity, keys or ())
    return report(entity, [f"removed: {key}" for key in removed], {"removed": removed}, output)


def limit_of(key: str, text: str) -> float:
    """Raises BadValue."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadValue(f"{key}={text}: not a number")
    return value


def report(entity: Entity, lines: list[str], done: dict[str, object], output: Output) -> int:
    print(json.dumps({"entity": dict(entity.names), **done}) if output == "json" else "\n".join(lines))
    return EXIT_OK
