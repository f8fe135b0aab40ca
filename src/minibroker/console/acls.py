"""Access rules (ACLs): a list, one to add, one to remove."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.acls import CLUSTER, EVERY_HOST, Rule, Wanted, principal_of
from minibroker.admin.outcomes import Outcome
from minibroker.any_cluster import acl_admin
from minibroker.any_cluster.acl_admin import refusals_explained
from minibroker.console.answers import NAME_MAX, Refused, change, get, outcome_of
from minibroker.console.console import Console
from minibroker.console.kafka_clients import needing
from minibroker.console.pages import page_of, wanted_page
from minibroker.console.topics import text_of
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

COLUMNS = ("resource_type", "name", "pattern", "principal", "host", "permission", "operation")
NEEDS = "the cluster does not list its access rules, which takes Kafka 0.11 or later"


def routes(console: Console) -> list[BaseRoute]:
    async def listed(request: Request) -> Any:
        """`authorizer` is false of a cluster that has none: everything is allowed there."""
        wanted = wanted_page(request, default="name", columns=COLUMNS)
        rules = await console.kafka.ask(rules_of)
        page = page_of(
            rules or [],
            wanted,
            text=str,
            key=lambda rule: (rule.as_document()[wanted.sort].casefold(), rule),
            shown=lambda rule: rule.as_document() | {"text": str(rule)},
        )
        return page | {"authorizer": rules is not None}

    async def add(request: Request, body: dict[str, Any]) -> Any:
        rule = rule_in(body, is_new=True)

        def act(client: Any) -> Sequence[Outcome]:
            with refusals_explained(client):
                return acl_admin.add(client, [rule])

        return outcome_of(await console.kafka.act(act), "text")

    async def remove(request: Request, body: dict[str, Any]) -> Any:
        """Remove the rule that is equal in everything."""
        rule = rule_in(body)

        def act(client: Any) -> Sequence[Outcome]:
            with refusals_explained(client):
                return acl_admin.remove(client, [Wanted(*rule)])

        removed = await console.kafka.act(act)
        if not removed:
            raise Refused(404, f"there is no rule that {rule}; the page ACLs lists those that there are")
        return {"text": str(rule), "outcome": "removed"}

    return [get("/api/acls", listed), change("POST", "/api/acls", add), change("DELETE", "/api/acls", remove)]


def rules_of(client: Any) -> list[Rule] | None:
    """All rules; None for a cluster without an authorizer. Raises CommandFailed, and Refused for an old cluster."""
    with refusals_explained(client), needing(NEEDS):
        try:
            return acl_admin.rules(client, [Wanted()])
        except KafkaError as error:
            if error.code != ErrorCode.SECURITY_DISABLED:
                raise
            return None


def rule_in(body: dict[str, Any], *, is_new: bool = False) -> Rule:
    """The rule that a form or a row of the list describes. A row may be odd: its name or host may be empty.

    Raises Refused.
    """
    resource_type = named(body, "resource_type", ResourceType, "ANY")
    if resource_type is ResourceType.CLUSTER:
        of_cluster = {"name": CLUSTER[1], "pattern": "literal"}
        body = body | of_cluster if is_new else of_cluster | body
    shortest = 1 if is_new else 0
    return Rule(
        resource_type,
        text_of(body, "name", least=shortest, most=NAME_MAX),
        named(body, "pattern", Pattern, "ANY", "MATCH"),
        principal_of(text_of(body, "principal", most=NAME_MAX)),
        text_of({"host": EVERY_HOST} | body, "host", least=shortest, most=NAME_MAX),
        named(body, "permission", Permission, "ANY"),
        named(body, "operation", Operation, "ANY"),
    )


def named(body: dict[str, Any], name: str, kind: type[IntEnum], *only_filters: str) -> Any:
    """The member of a name in either form, `TransactionalId` or `transactional_id`. Raises Refused."""
    known = {each.name.replace("_", "").lower(): each for each in kind if each.name not in only_filters}
    text = text_of(body, name)
    if text.replace("_", "").lower() not in known:
        choices = ", ".join(each.name.lower() for each in known.values())
        raise Refused(400, f"{name} {text[:30]} is none of {choices}; correct it")
    return known[text.replace("_", "").lower()]
