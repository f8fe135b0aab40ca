"""The operations that a client may do with a resource (KIP-430): all of its type, without an authorizer.

A bit for each operation, by its code in Kafka's AclOperation (as kafka 2.3 AuthorizerUtils).
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.broker.apis.client import Client
from minibroker.broker.security.acls.authorizer import Authorizer
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation

NOT_REQUESTED = -(2**31)
NOT_ALLOWED = 0  # of a client that may not describe the cluster
OF_CLUSTER = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
OF_TOPIC = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
OF_GROUP = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)


def bits(operations: Iterable[Operation]) -> int:
    return sum(1 << operation for operation in operations)


ON_CLUSTER, ON_TOPIC, ON_GROUP = bits(OF_CLUSTER), bits(OF_TOPIC), bits(OF_GROUP)


def on_cluster(authorizer: Authorizer | None, client: Client) -> int:
    if authorizer is None:
        return ON_CLUSTER
    if not authorizer.allows(client, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return NOT_ALLOWED
    return bits(authorizer.allowed(client, OF_CLUSTER, (ResourceType.CLUSTER, CLUSTER_NAME)))


def on_topic(authorizer: Authorizer | None, client: Client, name: str) -> int:
    if authorizer is None:
        return ON_TOPIC
    return bits(authorizer.allowed(client, OF_TOPIC, (ResourceType.TOPIC, name)))


def on_group(authorizer: Authorizer | None, client: Client, name: str) -> int:
    if authorizer is None:
        return ON_GROUP
    return bits(authorizer.allowed(client, OF_GROUP, (ResourceType.GROUP, name)))
