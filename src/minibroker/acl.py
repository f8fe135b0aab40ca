"""Rules of Kafka's authorizer (ACLs) as tests write them: `Acl("alice", "read", topic="orders")`."""

from __future__ import annotations

from dataclasses import dataclass

from minibroker.admin.acls import Rule
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

ONLY_OF_FILTERS = (Operation.ANY,)
OF_OTHER_BROKERS = (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS, Operation.TWO_PHASE_COMMIT)
OPERATIONS = {each.name.lower(): each for each in Operation if each not in (*ONLY_OF_FILTERS, *OF_OTHER_BROKERS)}
NO_RESOURCE = "an Acl needs a resource: topic=, group=, transactional_id=, one of these with _prefix, or cluster=True"


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
            (ResourceType.TOPIC, topic, Pattern.LITERAL),
            (ResourceType.TOPIC, topic_prefix, Pattern.PREFIXED),
            (ResourceType.GROUP, group, Pattern.LITERAL),
            (ResourceType.GROUP, group_prefix, Pattern.PREFIXED),
            (ResourceType.TRANSACTIONAL_ID, transactional_id, Pattern.LITERAL),
            (ResourceType.TRANSACTIONAL_ID, transactional_id_prefix, Pattern.PREFIXED),
            (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None, Pattern.LITERAL),
        ]
        permission = Permission.DENY if deny else Permission.ALLOW
        rules = tuple(
            Rule(kind, name, pattern, f"User:{user}", host, permission, number)
            for kind, name, pattern in resources
            if name is not None
            for number in numbers
        )
        if not rules:
            raise ValueError(NO_RESOURCE)
        object.__setattr__(self, "rules", rules)


def number_of(operation: str) -> Operation:
    """The number of an operation by our name or Kafka's, such as DescribeConfigs. Raises ValueError."""
    for name, number in OPERATIONS.items():
        if operation.lower() in (name, name.replace("_", "")):
            return number
    raise ValueError(f"{operation!r} is none of the operations {', '.join(OPERATIONS)}")
