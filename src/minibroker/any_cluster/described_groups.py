"""Groups as their coordinators describe them: classic ones, and those of Kafka 4's protocols by requests of their own.

DescribeGroups answers for classic groups only. What it does not find, ListGroups may have, with the type that names the
request to describe it by: the consumer protocol (KIP-848), share groups (KIP-932), streams groups (KIP-1071).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minibroker.admin.groups import (
    SHARE,
    STREAMS,
    UNKNOWN_STATE,
    Group,
    classic_group,
    consumer_group,
    listed_only,
    share_group,
    streams_group,
    type_of,
)
from minibroker.any_cluster.acl_admin import hidden_unless
from minibroker.any_cluster.cluster import at_coordinators, lacks_answer, of_each
from minibroker.client.client import Client, Question
from minibroker.client.coordinators import when_there
from minibroker.client.errors import NoAnswer, check
from minibroker.protocol.api import ApiKey
from minibroker.protocol.message_values import CONSUMER


def groups_listed(client: Client) -> dict[str, Any]:
    """The row of ListGroups of every group of the cluster, by name in order; old brokers list no state and no type."""
    questions = {broker: Question(ApiKey.LIST_GROUPS, {}, broker) for broker in client.brokers}
    answers = of_each(client, questions, "what it coordinates").values()
    for answer in answers:
        check(answer.error_code)
    rows = {row.group_id: row for row in sorted(row for answer in answers for row in answer.groups)}
    return hidden_unless(rows, client, "groups")


def group_ids(client: Client) -> list[str]:
    """Every group of the cluster, by name."""
    return list(groups_listed(client))


def described(client: Client, groups: Sequence[str], listed: Mapping[str, Any] | None = None) -> dict[str, Group]:
    """Each of those groups, of whatever type, by name in order.

    With the rows of `groups_listed`, a group whose coordinator does not answer is what its row has. Else it is left
    out, or NoAnswer is raised if that leaves none.
    """
    found: dict[str, Group] = {}
    try:
        classic = asked_for(client, groups, ApiKey.DESCRIBE_GROUPS, "groups", classic_group)
        found = {group.group: group for group in classic}
    except NoAnswer as error:
        if listed is None:
            raise
        lacks_answer(error, "what it coordinates")
    missing = [name for name, group in found.items() if not group.exists]
    if listed is None:
        listed = groups_listed(client) if missing else {}
    unanswered = listed.keys() & groups - found.keys()
    found |= {name: listed_only(listed[name], UNKNOWN_STATE) for name in unanswered}
    for type_, (api_key, group_of) in REQUESTS.items():
        names = [name for name in missing if name in listed and type_of(listed[name]) == type_]
        found |= {name: listed_only(listed[name]) for name in names}
        if api_key in client.versions:
            found |= {group.group: group for group in asked_for(client, names, api_key, "group_ids", group_of)}
    return dict(sorted(found.items()))


def asked_for(
    client: Client, groups: Sequence[str], api_key: ApiKey, field: str, group_of: Callable[[Any], Group]
) -> list[Group]:
    """These groups as their coordinators describe them, by that API, which names them in `field`."""

    def ask(names: dict[int, list[str]]) -> list[Group]:
        questions = {broker: Question(api_key, {field: names[broker]}, broker) for broker in names}
        answers = of_each(client, questions, "what it coordinates")
        return [group_of(row) for answer in answers.values() for row in when_there(answer.groups)]

    return at_coordinators(client, groups, ask) if groups else []


REQUESTS: dict[str, tuple[ApiKey, Callable[[Any], Group]]] = {
    CONSUMER: (ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group),
    SHARE: (ApiKey.SHARE_GROUP_DESCRIBE, share_group),
    STREAMS: (ApiKey.STREAMS_GROUP_DESCRIBE, streams_group),
}
