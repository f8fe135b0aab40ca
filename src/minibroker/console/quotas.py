"""Quotas of users and client ids: a list, and those of one entity to set or to remove."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.quotas import RATES, Entity, EntityQuotas
from minibroker.any_cluster import quota_admin
from minibroker.any_cluster.quota_admin import CLIENT_ID, USER
from minibroker.console.answers import TEXT_MAX, Refused, change, get
from minibroker.console.console import Console
from minibroker.console.kafka_clients import needing
from minibroker.console.pages import page_of, wanted_page
from minibroker.console.topics import SETTINGS_MAX, names_in

NEEDS = "the cluster does not list its quotas, which takes Kafka 2.6 or later"
LIMIT_MAX = 2**63  # nothing is faster; neither is a number that is none


def routes(console: Console) -> list[BaseRoute]:
    async def listed(request: Request) -> Any:
        wanted = wanted_page(request, default="entity", columns=("entity", *RATES))
        found = await console.kafka.ask(quotas_of)
        by_name = wanted.sort == "entity"
        return page_of(
            found,
            wanted,
            text=lambda each: str(each.entity),
            key=lambda each: str(each.entity) if by_name else each.quotas.get(wanted.sort),
            shown=lambda each: {
                "entity": dict(each.entity.names),
                "text": str(each.entity),
                "quotas": dict(each.quotas),
            },
        )

    async def set_quotas(request: Request, body: dict[str, Any]) -> Any:
        """`set` has limits by the name of the quota, `unset` the names of those to remove."""
        entity, limits, names = entity_in(body), limits_in(body), names_in(body, "unset")

        def act(client: Any) -> None:
            if limits:
                quota_admin.set_quotas(client, entity, limits)
            if names:
                quota_admin.remove(client, entity, names)

        await console.kafka.act(act)
        return {"entity": dict(entity.names)}

    return [get("/api/quotas", listed), change("POST", "/api/quotas", set_quotas)]


def quotas_of(client: Any) -> list[EntityQuotas]:
    """Raises CommandFailed, and Refused for a cluster that cannot list them."""
    with needing(NEEDS):
        return quota_admin.quotas(client, {})


def entity_in(body: dict[str, Any]) -> Entity:
    """A user, a client id or both, as `{"user": "ann"}`; null is the default. Raises Refused."""
    value = body.get("entity")
    if not isinstance(value, dict) or not value or not value.keys() <= {USER, CLIENT_ID}:
        raise Refused(400, 'entity is not an object such as {"user": "ann"} or {"client-id": null}; correct it')
    for name in value.values():
        if name is not None and not (isinstance(name, str) and 0 < len(name) <= TEXT_MAX):
            raise Refused(400, f"a name is not a text of 1 to {TEXT_MAX} characters; correct it, null is the default")
    return Entity({kind: value[kind] for kind in (USER, CLIENT_ID) if kind in value})


def limits_in(body: dict[str, Any]) -> dict[str, float]:
    """Raises Refused."""
    value = body.get("set", {})
    if not isinstance(value, dict) or len(value) > SETTINGS_MAX or not all(map(is_number, value.values())):
        raise Refused(400, 'set is not an object of numbers, such as {"producer_byte_rate": 10000}; correct it')
    return {name: float(limit) for name, limit in value.items()}


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LIMIT_MAX
