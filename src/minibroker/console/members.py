"""Clients: the members of groups, which any broker knows; a minibroker with a control socket knows its connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.groups import Member
from minibroker.any_cluster.described_groups import described, groups_listed
from minibroker.client.topic_partition import TopicPartition
from minibroker.console.answers import get
from minibroker.console.console import Console
from minibroker.console.inside_watch import InsideWatch
from minibroker.errors import BrokerError

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
    listed = groups_listed(client)
    names = list(listed)
    rows = [
        {**member_row(member, group.protocol_type), "group": name, "state": group.state}
        for name, group in described(client, names[:GROUPS_MAX], listed).items()
        for member in group.members or ()
    ]
    return len(names), rows


def member_row(member: Member, protocol_type: str) -> dict[str, Any]:
    """A member as pages show it; `unread` is what there is in the place of partitions."""
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "protocol": member.protocol,
        "epoch": member.epoch,
        "partitions": named(member.partitions),
        "awaits": named(member.awaits),
        "revokes": named(member.revokes),
        "tasks": member.tasks,
        "instance_id": member.instance_id,
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "unread": member.unread(protocol_type),
    }


def named(partitions: Sequence[TopicPartition]) -> list[str]:
    return [f"{at.topic}-{at.partition}" for at in partitions]
