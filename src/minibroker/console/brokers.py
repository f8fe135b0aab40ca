"""The brokers of the cluster: what each of them leads, and its settings."""

from __future__ import annotations

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import Refused, change, get, in_path, number_of
from minibroker.console.console import Console
from minibroker.console.metadata import BrokerRow
from minibroker.console.pages import page_of, wanted_page
from minibroker.console.topics import change_settings_of, settings_of

ID_MAX = 2**31 - 1


def routes(console: Console) -> list[BaseRoute]:
    async def listed(request: Request) -> Any:
        wanted = wanted_page(request, default="id", columns=("id", "address", "rack", "leads", "replicas", "in_sync"))
        snapshot = await console.metadata.snapshot()
        partitions = [each for topic in snapshot.topics.values() for each in topic.partitions]
        leads = Counter(each.leader for each in partitions)
        replicas = Counter(broker for each in partitions for broker in each.replicas)
        in_sync = Counter(broker for each in partitions for broker in each.isr)
        known = {each.id for each in snapshot.brokers}
        gone = [BrokerRow(broker, "", 0) for broker in snapshot.gone]
        rows = [
            {
                "id": each.id,
                "address": f"{each.host}:{each.port}" if each.id in known else "",
                "rack": each.rack,
                "alive": each.id in known,
                "controller": each.id == snapshot.controller,
                "leads": leads[each.id],
                "replicas": replicas[each.id],
                "in_sync": in_sync[each.id],
            }
            for each in (*snapshot.brokers, *gone)
        ]
        return page_of(
            rows,
            wanted,
            text=lambda row: f"{row['id']} {row['address']}",
            key=lambda row: row[wanted.sort] or "" if wanted.sort == "rack" else row[wanted.sort],
            shown=lambda row: row,
        )

    async def settings(request: Request) -> Any:
        return await settings_of(console, "broker", await broker_in(request))

    async def change_settings(request: Request, body: dict[str, Any]) -> Any:
        return await change_settings_of(console, "broker", await broker_in(request), body)

    async def broker_in(request: Request) -> str:
        """The id of the broker in the path. Raises Refused for one that the cluster does not have."""
        broker = number_of(in_path(request, "broker"), "broker", most=ID_MAX)
        if all(each.id != broker for each in (await console.metadata.snapshot()).brokers):
            raise Refused(404, f"the cluster has no broker {broker}; the page Brokers lists those that it has")
        return str(broker)

    return [
        get("/api/brokers", listed),
        get("/api/brokers/{broker}/settings", settings),
        change("POST", "/api/brokers/{broker}/settings", change_settings),
    ]
