"""Settings in ZooKeeper: the configs of brokers, users and client ids, as the sections of a ClusterState.

A node has the configs of one entity: `brokers/1`, `brokers/<default>`, `clients/app`, `users/alice` with the quotas and
the SCRAM credentials of a user, `users/alice/clients/app`. ACLs are nodes of their own, one for each resource. As kafka
2.0.1 AdminZkClient, ScramCredentialUtils and SimpleAclAuthorizer.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from minibroker.broker.cluster.state import Configs, ScramCredentials
from minibroker.broker.cluster.zk.nodes import DEFAULT_ENTITY, from_json, sanitized, to_json, unsanitized
from minibroker.broker.wings.quotas.client_quotas import KEYS, REQUEST_PERCENTAGE, Quotas
from minibroker.broker.wings.quotas.entities import DEFAULT, Entity, Name
from minibroker.protocol.scram import BY_NAME, ScramCredential

logger = logging.getLogger(__name__)

BROKERS: Final = "brokers/"
USERS: Final = "users/"
CLIENTS: Final = "clients/"
ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"
LITERAL: Final = "LITERAL"
PREFIXED: Final = "PREFIXED"

Entities = Mapping[str, Configs]  # by path, without those of topics
AclRow = Mapping[str, str]


# -- brokers --------------------------------------------------------------------------------------------------------


def broker_configs_of(entities: Entities) -> dict[str, Configs]:
    """By broker id, those of all brokers under the empty name."""
    return {
        "" if (name := path.removeprefix(BROKERS)) == DEFAULT_ENTITY else name: configs
        for path, configs in entities.items()
        if path.startswith(BROKERS) and configs
    }


def with_broker_configs(wanted: Mapping[str, Configs]) -> dict[str, Configs]:
    return {BROKERS + (name or DEFAULT_ENTITY): configs for name, configs in wanted.items()}


# -- quotas ---------------------------------------------------------------------------------------------------------


def quotas_of(entities: Entities) -> dict[Entity, Quotas]:
    """The quotas of users and client ids, without values that are no numbers."""
    found: dict[Entity, Quotas] = {}
    for path, configs in entities.items():
        entity = entity_of(path)
        quotas = {key: value for key in KEYS if (value := number_of(configs.get(key, ""))) is not None}
        if entity is not None and quotas:
            found[entity] = quotas
    return found


def with_quotas(entities: Entities, wanted: Mapping[Entity, Quotas]) -> dict[str, Configs]:
    """The configs of all entities that have or had quotas, with the wanted ones."""
    paths = {path_of(entity): quotas for entity, quotas in wanted.items()}
    paths |= {path_of(entity): {} for entity in quotas_of(entities) if entity not in wanted}
    return {
        path: {
            **{key: value for key, value in entities.get(path, {}).items() if key not in KEYS},
            **{key: text_of(key, value) for key, value in quotas.items()},
        }
        for path, quotas in paths.items()
    }


def text_of(key: str, value: float) -> str:
    """Kafka 2.0.1 takes whole numbers of bytes only."""
    return repr(value) if key == REQUEST_PERCENTAGE else str(int(value))


def number_of(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 else None


def path_of(entity: Entity) -> str:
    user, client_id = name_in_path(entity.user), name_in_path(entity.client_id)
    if user is None:
        return f"{CLIENTS}{client_id}"
    return USERS + user if client_id is None else f"{USERS}{user}/{CLIENTS}{client_id}"


def name_in_path(name: Name) -> str | None:
    if name is None:
        return None
    return DEFAULT_ENTITY if name is DEFAULT else sanitized(str(name))


def entity_of(path: str) -> Entity | None:
    """The user or client id of a path, None for another path."""
    if path.startswith(CLIENTS):
        return Entity(None, name_of(path.removeprefix(CLIENTS)))
    if path.startswith(USERS):
        user, _, client_id = path.removeprefix(USERS).partition(f"/{CLIENTS}")
        return Entity(name_of(user), name_of(client_id) if client_id else None)
    return None


def name_of(text: str) -> Name:
    return DEFAULT if text == DEFAULT_ENTITY else unsanitized(text)


# -- SCRAM ----------------------------------------------------------------------------------------------------------


def credentials_of(entities: Entities) -> ScramCredentials:
    found: dict[str, dict[str, ScramCredential]] = {}
    for path, configs in entities.items():
        entity = entity_of(path)
        if entity is None or not isinstance(entity.user, str) or entity.client_id is not None:
            continue
        for name in BY_NAME:
            try:
                if name in configs:
                    found.setdefault(entity.user, {})[name] = credential_of(configs[name])
            except ValueError as error:
                logger.error("user %s cannot log in by %s: %s", entity.user, name, error)
    return found


def with_credentials(entities: Entities, wanted: ScramCredentials) -> dict[str, Configs]:
    """The configs of all users that have or had credentials, with the wanted ones."""
    users = dict.fromkeys((*wanted, *credentials_of(entities)))
    return {
        (path := path_of(Entity(user))): {
            **{key: value for key, value in entities.get(path, {}).items() if key not in BY_NAME},
            **{name: credential_text(each) for name, each in wanted.get(user, {}).items()},
        }
        for user in users
    }


def credential_text(credential: ScramCredential) -> str:
    salt, stored_key, server_key = (
        base64.b64encode(each).decode() for each in (credential.salt, credential.stored_key, credential.server_key)
    )
    return f"salt={salt},stored_key={stored_key},server_key={server_key},iterations={credential.iterations}"


def credential_of(text: str) -> ScramCredential:
    """Raises ValueError without the values: they are secret."""
    fields = dict(each.split("=", 1) for each in text.split(",") if "=" in each)
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))
    except (ValueError, KeyError):
        raise ValueError("a malformed SCRAM credential") from None


# -- ACLs -----------------------------------------------------------------------------------------------------------


def acls_path(pattern: str, resource_type: str, name: str) -> str:
    return f"{PREFIXED_ACLS if pattern == PREFIXED else ACLS}/{resource_type}/{name}"


def rows_of_resource(pattern: str, resource_type: str, name: str, data: bytes) -> list[AclRow]:
    """The rules of a resource, as `AclStore` has them."""
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
    """Names a resource of which the rules have changed."""
    if pattern == LITERAL:
        return f"{resource_type}:{name}".encode()
    return to_json({"version": 1, "resourceType": resource_type, "name": name, "patternType": pattern})
