"""Settings in ZooKeeper: the configs of brokers, users and client ids, as the JSON of sections of the state.

A node has the configs of one entity: `brokers/1`, `brokers/<default>`, `clients/app`, `users/alice` with the quotas and
the SCRAM credentials of a user, `users/alice/clients/app`. ACLs are nodes of their own, one for each resource. As kafka
2.0.1 AdminZkClient, ScramCredentialUtils and SimpleAclAuthorizer.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minibroker.broker.cluster.sections import Configs
from minibroker.broker.wings.zookeeper_nodes.nodes import (
    DEFAULT_ENTITY,
    from_json,
    reading,
    sanitized,
    to_json,
    unsanitized,
)
from minibroker.protocol.scram import BY_NAME

logger = logging.getLogger(__name__)

BROKERS: Final = "brokers/"
USERS: Final = "users/"
CLIENTS: Final = "clients/"
USER: Final = "user"
CLIENT_ID: Final = "client-id"
QUOTA_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
WHOLE_NUMBERS: Final = ("producer_byte_rate", "consumer_byte_rate")  # of bytes: Kafka 2.0.1 takes no others
ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
LITERAL: Final = "LITERAL"
PREFIXED: Final = "PREFIXED"

Entities = Mapping[str, Configs]  # by path, without those of topics
Named = Mapping[str, str | None]  # a user, a client id or both, None for the default
AclRow = Mapping[str, str]


# -- brokers --------------------------------------------------------------------------------------------------------


def broker_configs_of(entities: Entities) -> dict[str, Configs]:
    return {
        "" if (name := path.removeprefix(BROKERS)) == DEFAULT_ENTITY else name: configs
        for path, configs in entities.items()
        if path.startswith(BROKERS) and configs
    }


def with_broker_configs(entities: Entities, wanted: Mapping[str, Configs]) -> dict[str, Configs]:
    return {BROKERS + (name or DEFAULT_ENTITY): configs for name, configs in wanted.items()}


# -- quotas ---------------------------------------------------------------------------------------------------------


def quotas_of(entities: Entities) -> list[dict[str, Any]]:
    """The quotas of users and client ids, without values that are no numbers."""
    return [
        {"entity": named, "quotas": quotas}
        for path, configs in entities.items()
        if (named := entity_of(path)) is not None
        and (quotas := {key: rate for key in QUOTA_KEYS if (rate := number_of(configs.get(key, ""))) is not None})
    ]


def with_quotas(entities: Entities, wanted: Sequence[Mapping[str, Any]]) -> dict[str, Configs]:
    """The configs of all entities that have or had quotas, with the wanted ones."""
    paths: dict[str, Mapping[str, float]] = {path_of(each["entity"]): {} for each in quotas_of(entities)}
    paths |= {path_of(each["entity"]): each["quotas"] for each in wanted}
    return {
        path: {
            **{key: value for key, value in entities.get(path, {}).items() if key not in QUOTA_KEYS},
            **{key: str(int(rate)) if key in WHOLE_NUMBERS else repr(rate) for key, rate in quotas.items()},
        }
        for path, quotas in paths.items()
    }


def number_of(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None


def path_of(named: Named) -> str:
    names = {kind: DEFAULT_ENTITY if name is None else sanitized(name) for kind, name in named.items()}
    if USER not in names:
        return f"{CLIENTS}{names[CLIENT_ID]}"
    return f"{USERS}{names[USER]}" + (f"/{CLIENTS}{names[CLIENT_ID]}" if CLIENT_ID in names else "")


def entity_of(path: str) -> Named | None:
    """The user or client id of a path, None for another path."""
    if path.startswith(CLIENTS):
        return {CLIENT_ID: name_of(path.removeprefix(CLIENTS))}
    if path.startswith(USERS):
        user, _, client_id = path.removeprefix(USERS).partition(f"/{CLIENTS}")
        return {USER: name_of(user), **({CLIENT_ID: name_of(client_id)} if client_id else {})}
    return None


def name_of(text: str) -> str | None:
    return None if text == DEFAULT_ENTITY else unsanitized(text)


# -- SCRAM ----------------------------------------------------------------------------------------------------------


def credentials_of(entities: Entities) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path, configs in entities.items():
        named = entity_of(path)
        if named is None or named.keys() != {USER} or (user := named[USER]) is None:
            continue
        for name in BY_NAME:
            try:
                if name in configs:
                    found.setdefault(user, {})[name] = credential_of(configs[name])
            except ValueError as error:
                logger.error("user %s cannot log in by %s: %s", user, name, error)
    return found


def with_credentials(entities: Entities, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Configs]:
    """The configs of all users that have or had credentials, with the wanted ones."""
    users = dict.fromkeys((*wanted, *credentials_of(entities)))
    return {
        (path := path_of({USER: user})): {
            **{key: value for key, value in entities.get(path, {}).items() if key not in BY_NAME},
            **{name: credential_text(each) for name, each in wanted.get(user, {}).items()},
        }
        for user in users
    }


def credential_text(credential: Mapping[str, Any]) -> str:
    return ",".join(f"{name}={credential[name]}" for name in ("salt", "stored_key", "server_key", "iterations"))


def credential_of(text: str) -> dict[str, Any]:
    """Raises ValueError without the values: they are secret."""
    fields = dict(each.split("=", 1) for each in text.split(",") if "=" in each)
    try:
        keys = {name: fields[name] for name in ("salt", "stored_key", "server_key")}
        for each in keys.values():
            base64.b64decode(each, validate=True)
        return {**keys, "iterations": int(fields["iterations"])}
    except (ValueError, KeyError):
        raise ValueError("a malformed SCRAM credential") from None


# -- the table ------------------------------------------------------------------------------------------------------


class InEntities(NamedTuple):
    """A section that configs of entities have: its JSON from them, and the configs of entities with a new one."""

    of: Callable[[Entities], Any]
    written: Callable[[Entities, Any], dict[str, Configs]]


IN_ENTITIES: Final[Mapping[str, InEntities]] = {
    "broker_configs": InEntities(broker_configs_of, with_broker_configs),
    "client_quotas": InEntities(quotas_of, with_quotas),
    "scram_credentials": InEntities(credentials_of, with_credentials),
}


# -- ACLs -----------------------------------------------------------------------------------------------------------


def acls_path(pattern: str, resource_type: str, name: str) -> str:
    return f"{PREFIXED_ACLS if pattern == PREFIXED else ACLS}/{resource_type}/{name}"


def rows_of_resource(pattern: str, resource_type: str, name: str, data: bytes) -> list[AclRow]:
    """The rules of a resource, as the JSON of the section `acls` has them. Raises ValueError."""
    with reading():
        return [
            {
                "resource_type": resource_type,
                "name": name,
                "pattern": pattern,
                "principal": str(each["principal"]),
                "host": str(each["host"]),
                "operation": str(each["operation"]),
                "permission": str(each["permissionType"]).upper(),
            }
            for each in from_json(data)["acls"]
        ]


def acls_data(rows: Iterable[AclRow]) -> bytes:
    acls = [
        {
            "principal": row["principal"],
            "permissionType": row["permission"].title(),
            "operation": row["operation"],
            "host": row["host"],
        }
        for row in rows
    ]
    return to_json({"version": 1, "acls": acls})


def by_resource(rows: Sequence[AclRow]) -> dict[tuple[str, str, str], list[AclRow]]:
    """The rules by pattern, type and name of their resource."""
    found: dict[tuple[str, str, str], list[AclRow]] = {}
    for row in rows:
        found.setdefault((row["pattern"], row["resource_type"], row["name"]), []).append(row)
    return found


def acl_change_data(pattern: str, resource_type: str, name: str) -> bytes:
    """Names a resource whose rules have changed."""
    if pattern == LITERAL:
        return f"{resource_type}:{name}".encode()
    return to_json({"version": 1, "resourceType": resource_type, "name": name, "patternType": pattern})
