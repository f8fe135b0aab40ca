"""The operations that a client may do with a resource (KIP-430): all of them, without an authorizer.

A bit for each operation, by its code in Kafka's AclOperation (as kafka 2.3 AuthorizerUtils).
"""

from __future__ import annotations

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12


def bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


NOT_REQUESTED = -(2**31)
ON_CLUSTER = bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE)
ON_TOPIC = bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
ON_GROUP = bits(READ, DELETE, DESCRIBE)
