"""The rights that an authorizer asks for, by API and in its order: the columns of API_TABLE for a secured broker.

As kafka 2.0.1 KafkaApis; the APIs and versions that 2.0.1 lacks as the Kafka that brought them. A right on a group, a
transactional id or the cluster is for the whole request, if the request does not name them in rows. A right on
resources that only the answer names leaves the others out of the answer. `broker/apis/guard.py` carries this out.
"""

from __future__ import annotations

from collections.abc import Mapping

from minibroker.protocol.api import ApiKey
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Right

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE

RIGHTS: Mapping[int, tuple[Right, ...]] = {
    ApiKey.PRODUCE: (WRITE.on(TRANSACTIONAL_ID), IDEMPOTENT_WRITE.on(CLUSTER), WRITE.on(TOPIC)),
    ApiKey.FETCH: (CLUSTER_ACTION.on(CLUSTER), READ.on(TOPIC)),  # the first of followers, the second of consumers
    ApiKey.LIST_OFFSETS: (DESCRIBE.on(TOPIC),),
    ApiKey.METADATA: (DESCRIBE.on(TOPIC), CREATE.on(CLUSTER).or_(CREATE.on(TOPIC))),
    ApiKey.OFFSET_COMMIT: (READ.on(GROUP), READ.on(TOPIC)),
    ApiKey.OFFSET_FETCH: (DESCRIBE.on(GROUP), DESCRIBE.on(TOPIC)),
    ApiKey.FIND_COORDINATOR: (DESCRIBE.on(GROUP), DESCRIBE.on(TRANSACTIONAL_ID)),
    ApiKey.JOIN_GROUP: (READ.on(GROUP),),
    ApiKey.HEARTBEAT: (READ.on(GROUP),),
    ApiKey.LEAVE_GROUP: (READ.on(GROUP),),
    ApiKey.SYNC_GROUP: (READ.on(GROUP),),
    ApiKey.DESCRIBE_GROUPS: (DESCRIBE.on(GROUP),),
    ApiKey.LIST_GROUPS: (DESCRIBE.on(CLUSTER).until(2), DESCRIBE.on(CLUSTER).or_(DESCRIBE.on(GROUP)).since(3)),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.API_VERSIONS: (),
    ApiKey.CREATE_TOPICS: (CREATE.on(CLUSTER).or_(CREATE.on(TOPIC)),),
    ApiKey.DELETE_TOPICS: (DELETE.on(TOPIC),),
    ApiKey.DELETE_RECORDS: (DELETE.on(TOPIC),),
    ApiKey.INIT_PRODUCER_ID: (WRITE.on(TRANSACTIONAL_ID), IDEMPOTENT_WRITE.on(CLUSTER)),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        CLUSTER_ACTION.on(CLUSTER).until(1),
        CLUSTER_ACTION.on(CLUSTER).or_(DESCRIBE.on(TOPIC)).since(2),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (WRITE.on(TRANSACTIONAL_ID), WRITE.on(TOPIC)),
    ApiKey.ADD_OFFSETS_TO_TXN: (WRITE.on(TRANSACTIONAL_ID), READ.on(GROUP)),
    ApiKey.END_TXN: (WRITE.on(TRANSACTIONAL_ID),),
    ApiKey.WRITE_TXN_MARKERS: (CLUSTER_ACTION.on(CLUSTER),),
    ApiKey.TXN_OFFSET_COMMIT: (WRITE.on(TRANSACTIONAL_ID), READ.on(GROUP), READ.on(TOPIC)),
    ApiKey.DESCRIBE_ACLS: (DESCRIBE.on(CLUSTER),),
    ApiKey.CREATE_ACLS: (ALTER.on(CLUSTER),),
    ApiKey.DELETE_ACLS: (ALTER.on(CLUSTER),),
    ApiKey.DESCRIBE_CONFIGS: (DESCRIBE_CONFIGS.on(TOPIC), DESCRIBE_CONFIGS.on(CLUSTER)),
    ApiKey.ALTER_CONFIGS: (ALTER_CONFIGS.on(TOPIC), ALTER_CONFIGS.on(CLUSTER)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (ALTER.on(CLUSTER),),
    ApiKey.DESCRIBE_LOG_DIRS: (DESCRIBE.on(CLUSTER),),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.CREATE_PARTITIONS: (ALTER.on(TOPIC),),
    ApiKey.DELETE_GROUPS: (DELETE.on(GROUP),),
    ApiKey.ELECT_LEADERS: (ALTER.on(CLUSTER),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (ALTER_CONFIGS.on(TOPIC), ALTER_CONFIGS.on(CLUSTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (DESCRIBE.on(CLUSTER),),
    ApiKey.OFFSET_DELETE: (DELETE.on(GROUP), READ.on(TOPIC)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (DESCRIBE_CONFIGS.on(CLUSTER),),
    ApiKey.ALTER_CLIENT_QUOTAS: (ALTER_CONFIGS.on(CLUSTER),),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (DESCRIBE.on(CLUSTER),),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (ALTER.on(CLUSTER),),
    ApiKey.DESCRIBE_CLUSTER: (),
    ApiKey.DESCRIBE_PRODUCERS: (READ.on(TOPIC),),
    ApiKey.DESCRIBE_TRANSACTIONS: (DESCRIBE.on(TRANSACTIONAL_ID), DESCRIBE.on(TOPIC)),
    ApiKey.LIST_TRANSACTIONS: (DESCRIBE.on(TRANSACTIONAL_ID),),
}
