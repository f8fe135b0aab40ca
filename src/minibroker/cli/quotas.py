"""`minibroker quotas ...`: list, set, remove, of users and of client ids, on any Kafka broker.

This module reads arguments and prints; `quota_admin` asks the broker.
"""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import typer

from minibroker.admin.quotas import Entity
from minibroker.any_cluster import quota_admin
from minibroker.any_cluster.bootstrap import Cluster, Setting, parse_setting
from minibroker.any_cluster.cluster import connected
from minibroker.cli.options import noun
from minibroker.cli.parameters import changing_cluster, on_cluster
from minibroker.cli.shown import Shown, change, table
from minibroker.errors import BadValue

UNITS = {"producer_byte_rate": "bytes/s", "consumer_byte_rate": "bytes/s", "request_percentage": "% of one core"}
DEFAULT = "(default)"
SET_EPILOG = (
    "Quotas: producer_byte_rate and consumer_byte_rate in bytes per second, request_percentage in percent of one core. "
    "Example: minibroker quotas set --client-id slow consumer_byte_rate=10000"
)


class Entities(NamedTuple):
    """The options that name users and client ids."""

    user: Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="This user.")] = None
    default_user: Annotated[bool, typer.Option("--default-user", help="All users without quotas of their own.")] = False
    client_id: Annotated[str | None, typer.Option("--client-id", "-c", metavar="NAME", help="This client id.")] = None
    default_client_id: Annotated[
        bool, typer.Option("--default-client-id", help="All client ids without quotas of their own.")
    ] = False

    def names(self) -> dict[str, str | None]:
        """The names by type, None for the default. Raises BadValue."""
        found = {}
        for kind, name, is_default in (("user", *self[:2]), ("client-id", *self[2:])):
            if name is not None and is_default:
                raise BadValue(f"name either --{kind} or --default-{kind}")
            if name is not None or is_default:
                found[kind] = name
        return found

    def entity(self) -> Entity:
        """Raises BadValue."""
        if not (names := self.names()):
            raise BadValue("name --user, --client-id, or both, or their defaults")
        return Entity(names)


app = noun(help="List, set and remove quotas of users and client ids.")


@app.command("list", epilog="Example: minibroker quotas list --user ann")
@on_cluster
def list_quotas(
    cluster: Cluster,
    entities: Entities,
) -> Shown:
    """List quotas: all, or those of a user, of a client id."""
    names = entities.names()
    with connected(cluster) as client:
        found = quota_admin.quotas(client, names)
    documents = [{"entity": dict(each.entity.names), "quotas": dict(each.quotas)} for each in found]
    rows = [
        (*(shown_name(each.entity, kind) for kind in ("user", "client-id")), key, f"{value:.15g}", UNITS.get(key, ""))
        for each in found
        for key, value in each.quotas.items()
    ]
    return table(documents, ("<USER", "<CLIENT-ID", "<QUOTA", "LIMIT", "<UNIT"), rows, without="no quotas")


def shown_name(entity: Entity, kind: str) -> str:
    if kind not in entity.names:
        return ""
    name = entity.names[kind]
    return DEFAULT if name is None else name


@app.command("set", epilog=SET_EPILOG)
@changing_cluster
def set_quotas(
    settings: Annotated[
        list[Setting], typer.Argument(metavar="QUOTA=LIMIT...", parser=parse_setting, show_default=False)
    ],
    cluster: Cluster,
    entities: Entities,
) -> Shown:
    """Set quotas of a user, of a client id, or of both; others of theirs stay as they are."""
    entity = entities.entity()
    quotas = {key: limit_of(key, text) for key, text in settings}
    with connected(cluster) as client:
        quota_admin.set_quotas(client, entity, quotas)
    lines = [f"{key}={value:.15g}" for key, value in quotas.items()]
    return change({"entity": dict(entity.names)}, "set", lines, quotas)


@app.command("remove", epilog="Example: minibroker quotas remove --client-id slow consumer_byte_rate")
@changing_cluster
def remove_quotas(
    cluster: Cluster,
    entities: Entities,
    keys: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA]...", show_default=False)] = None,
) -> Shown:
    """Remove quotas of a user, of a client id, or of both: those named, or all."""
    entity = entities.entity()
    with connected(cluster) as client:
        removed = quota_admin.remove(client, entity, keys or ())
    return change({"entity": dict(entity.names)}, "removed", removed, removed)


def limit_of(key: str, text: str) -> float:
    """Raises BadValue."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadValue(f"{key}={text}: not a number")
    return value
