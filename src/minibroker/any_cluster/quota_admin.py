"""The requests of the `quotas` commands; `admin/` has what the answers mean.

The requests came with Kafka 2.6; before it, Kafka's own tools wrote quotas into ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minibroker.admin.quotas import Entity, EntityQuotas, refusal
from minibroker.client.client import Client
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.message_values import EXACT, IS_DEFAULT

USER, CLIENT_ID = "user", "client-id"
REMOVED = 0.0  # the value of a quota that is removed: brokers ignore it


def quotas(client: Client, names: Mapping[str, str | None]) -> list[EntityQuotas]:
    """The quotas of the entities with these names, and perhaps with others."""
    components = [(kind, IS_DEFAULT if name is None else EXACT, name) for kind, name in names.items()]
    answer = client.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=components, strict=False)
    if answer.error_code:
        raise CommandFailed(refusal(answer))
    found = [
        EntityQuotas(
            Entity({kind: row[kind] for kind in (USER, CLIENT_ID) if kind in row} or row),
            {value.key: value.value for value in sorted(entry.values, key=lambda value: str(value.key))},
        )
        for entry in answer.entries
        for row in [{part.entity_type: part.entity_name for part in entry.entity}]
    ]
    return sorted(found, key=lambda each: [(kind, name or "") for kind, name in each.entity.names.items()])


def set_quotas(client: Client, entity: Entity, quotas: Mapping[str, float]) -> None:
    """Raises CommandFailed; then nothing has changed."""
    alter(client, entity, [(key, value, False) for key, value in quotas.items()])


def remove(client: Client, entity: Entity, keys: Sequence[str]) -> list[str]:
    """Remove these quotas of an entity, or all that it has; return their keys. Raises CommandFailed."""
    own = next((each.quotas for each in quotas(client, entity.names) if each.entity.names == entity.names), {})
    missing = [key for key in keys if key not in own]
    if missing or not own:
        named = f"quota {missing[0]}" if missing else "quotas"
        raise CommandFailed(f"{entity} has no {named}; `minibroker quotas list` shows all quotas")
    removed = list(keys) or list(own)
    alter(client, entity, [(key, REMOVED, True) for key in removed])
    return removed


def alter(client: Client, entity: Entity, ops: Sequence[tuple[str, float, bool]]) -> None:
    entries = [(list(entity.names.items()), ops)]
    (result,) = client.at_controller(ApiKey.ALTER_CLIENT_QUOTAS, entries=entries, validate_only=False).entries
    if result.error_code:
        raise CommandFailed(f"{entity}: {refusal(result)}")
