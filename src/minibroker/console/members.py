"""Clients: the members of groups, which any broker knows; a minibroker with a control socket knows its connections."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import get
from minibroker.console.console import Console
from minibroker.console.group_offsets import group_ids
from minibroker.console.inside_watch import InsideWatch
from minibroker.process import BrokerError

GROUPS_MAX = 300
CONNECTIONS_MAX = 5_000


def routes(console: Console, watch: InsideWatch) -> list[BaseRoute]:
    async def clients(request: Request) -> Any:
        every, rows = await console.kafka.ask(members)
        connections = failure = None
        if console.control is not None:
            try:
                await watch.look()
                connections = await every_connection(console)
            except BrokerError as error:  # an earlier minibroker, or one that has just ended
                failure = str(error)
        return {
            "members": rows,
            "groups": every,
            "looked_through": min(every, GROUPS_MAX),
            "connections": connections,
            "failure": failure,
        }

    return [get("/api/clients", clients)]


async def every_connection(console: Console) -> list[Any]:
    """The connections of the broker, in the order of their numbers; the first CONNECTIONS_MAX of them."""
    rows: list[Any] = []
    after = 0
    while len(rows) < CONNECTIONS_MAX:
        found = await console.call("inside.connections", after=after)
        rows += found["connections"]
        if found["more"] is None:
            break
        after = found["more"]
    return rows


def members(client: Any) -> tuple[int, list[dict[str, Any]]]:
    """A row of each member of the first groups, and how many groups there are."""
    from minibroker.cli.group_admin import member_of

    names = group_ids(client)
    described = client.describe_groups(names[:GROUPS_MAX]) if names else {}
    rows = [
        {
            **member._asdict(),
            "group": name,
            "state": row["group_state"],
            "partitions": [f"{at.topic}-{at.partition}" for at in member.partitions],
        }
        for name, row in sorted(described.items())
        for member in map(member_of, row["members"])
    ]
    return len(names), rows
