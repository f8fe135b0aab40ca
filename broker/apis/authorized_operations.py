"""The operations that a client may do with a resource (KIP-430): all of its type, unless it has fewer rights.

A bit for each operation, by its code in Kafka's AclOperation (as kafka 2.3 AuthorizerUtils).
"""

from __future__ import annotations

from collections.abc import Iterable

from minibroker.broker.apis.client import Client
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


def on_cluster(client: Client) -> int:
    if not client.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return NOT_ALLOWED
    return bits(client.allowed(OF_CLUSTER, (ResourceType.CLUSTER, CLUSTER_NAME)))


def on_topic(client: Client, name: str) -> int:
    return bits(client.allowed(OF_TOPIC, (ResourceType.TOPIC, name)))


def on_group(client: Client, name: str) -> int:
    return bits(client.allowed(OF_GROUP, (ResourceType.GROUP, name)))
