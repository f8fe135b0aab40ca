"""Rules of Kafka's authorizer (ACLs) as tests write them: `Acl("alice", "read", topic="orders")`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# Kafka's numbers
OPERATIONS = {
    "all": 2,
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster_action": 9,
    "describe_configs": 10,
    "alter_configs": 11,
    "idempotent_write": 12,
}
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
CLUSTER_NAME = "kafka-cluster"
NO_RESOURCE = "an Acl needs a resource: topic=, group=, transactional_id=, one of these with _prefix, or cluster=True"


class Rule(NamedTuple):
    """One operation on one resource, in the fields of CreateAcls."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@dataclass(frozen=True, init=False)
class Acl:
    """Allows a user operations on the named resources, or denies them.

        Acl("alice", "read", topic="orders", group="billing")
        Acl("bob", "write", "describe", topic_prefix="orders-", deny=True)

    `user`: a user's name, or "*" for everyone. `operations`: read, write, create, delete, alter, describe,
    describe_configs, alter_configs, cluster_action, idempotent_write, all. `topic="*"` is every topic; `topic_prefix`
    is all whose names begin with it; likewise groups and transactional ids. `host`: an address. Raises ValueError.
    """

    rules: tuple[Rule, ...]

    def __init__(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        topic_prefix: str | None = None,
        group: str | None = None,
        group_prefix: str | None = None,
        transactional_id: str | None = None,
        transactional_id_prefix: str | None = None,
        cluster: bool = False,
        host: str = "*",
        deny: bool = False,
    ) -> None:
        numbers = [number_of(each) for each in operations or ("",)]
        resources = [
            (TOPIC, topic, LITERAL),
            (TOPIC, topic_prefix, PREFIXED),
            (GROUP, group, LITERAL),
            (GROUP, group_prefix, PREFIXED),
            (TRANSACTIONAL_ID, transactional_id, LITERAL),
            (TRANSACTIONAL_ID, transactional_id_prefix, PREFIXED),
            (CLUSTER, CLUSTER_NAME if cluster else None, LITERAL),
        ]
        rules = tuple(
            Rule(kind, name, pattern, f"User:{user}", host, number, DENY if deny else ALLOW)
            for kind, name, pattern in resources
            if name is not None
            for number in numbers
        )
        if not rules:
            raise ValueError(NO_RESOURCE)
        object.__setattr__(self, "rules", rules)


def number_of(operation: str) -> int:
    """The number of an operation, of which Kafka's own name does as well: DescribeConfigs. Raises ValueError."""
    for name, number in OPERATIONS.items():
        if operation.lower() in (name, name.replace("_", "")):
            return number
    raise ValueError(f"{operation!r} is none of the operations {', '.join(OPERATIONS)}")
