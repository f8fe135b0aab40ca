"""The table of APIs: one declaration for each, with all that the broker knows of an API besides its handler.

A broker has one handler for every row (`broker/apis/routes.py`). What else an API needs, such as the answer to a
request that fails, is derived from its messages; the columns have only what the messages do not show.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages import (
    acls,
    cluster,
    configs,
    delegation_tokens,
    fetch,
    groups,
    inter_broker,
    metadata,
    newer_groups,
    produce,
    quotas,
    security,
    telemetry,
    topics,
    transactions,
)
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Right
from minibroker.protocol.schema import Message

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE

# The releases of Kafka whose versions `since` has, and the later ones that `--act-as` names: the last version of each
# API, or the first and the last. Those of 2.8 are from a table of kafka-python; 3.9.1, 4.0.1 and 4.4.0 answered theirs.
RELEASES_UNTIL_2_0 = ("0.10", "0.11", "1.1", "2.0")
LATER_RELEASES = {
    "2.8": """
        0:9 1:12 2:6 3:11 8:8 9:7 10:3 11:7 12:4 13:4 14:5 15:5 16:4 17:1 18:3 19:7 20:6 21:2 22:4 23:4 24:3
        25:3 26:3 27:1 28:3 29:2 30:2 31:2 32:4 33:2 34:2 35:2 36:2 37:3 38:2 39:2 40:2 41:2 42:2 43:2 44:1
        45:0 46:0 47:0 48:1 49:1 50:0 51:0 57:0 60:0 61:0
    """,
    "3.9": """
        0:11 1:17 2:9 3:12 8:9 9:9 10:6 11:9 12:4 13:5 14:5 15:5 16:5 17:1 18:4 19:7 20:6 21:2 22:5 23:4
        24:5 25:4 26:4 27:1 28:4 29:3 30:3 31:3 32:4 33:2 34:2 35:4 36:2 37:3 38:3 39:2 40:2 41:3 42:2 43:2
        44:1 45:0 46:0 47:0 48:1 49:1 50:0 51:0 55:2 57:1 60:1 61:0 64:0 65:0 66:1 68:0 69:0 74:0 75:0 80:0
        81:0
    """,
    "4.0": """
        0:12 1:4-17 2:1-10 3:13 8:2-9 9:1-9 10:6 11:9 12:4 13:5 14:5 15:6 16:5 17:1 18:4 19:2-7 20:1-6
        21:2 22:5 23:2-4 24:5 25:4 26:5 27:1-1 28:5 29:1-3 30:1-3 31:1-3 32:1-4 33:2 34:1-2 35:1-4 36:2 37:3
        38:1-3 39:1-2 40:1-2 41:1-3 42:2 43:2 44:1 45:0 46:0 47:0 48:1 49:1 50:0 51:0 55:2 57:2 60:2 61:0
        64:0 65:0 66:1 68:1 69:1 74:0 75:0 80:0 81:0
    """,
    "4.4": """
        0:13 1:4-18 2:1-11 3:13 8:2-10 9:1-10 10:6 11:9 12:4 13:5 14:5 15:6 16:5 17:1 18:5 19:2-7 20:1-6
        21:2 22:5 23:2-4 24:5 25:4 26:5 27:1-2 28:6 29:1-3 30:1-3 31:1-3 32:1-4 33:2 34:1-2 35:1-5 36:2 37:3
        38:1-3 39:1-2 40:1-2 41:1-3 42:3 43:2 44:1 45:1 46:0 47:0 48:1 49:1 50:0 51:0 55:2 57:2 60:2 61:0
        64:0 65:0 66:2 68:1 69:1 74:1 75:0 76:1-1 77:1-1 78:1-2 79:1-2 80:1 81:0 83:0 84:0 85:1 86:0 87:1
        88:1 89:1 90:1 91:0 92:0 93:0 94:0
    """,
}
RELEASES = (*RELEASES_UNTIL_2_0, *LATER_RELEASES)
# Kafka 2.0.1 shows the insides of the broker in place of it.
NOT_AUTHORIZED = "Request is not authorized."

Body = Any


class ApiKey(IntEnum):
    """Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Since(NamedTuple):
    """The release that brought an API, of RELEASES_UNTIL_2_0 the first that has it; its last version in that and in
    each later one of them."""

    release: str
    last_versions: tuple[int, ...]


class LaterCode(NamedTuple):
    """An error code that clients know from version `first` on; older ones get the code `before`."""

    code: ErrorCode
    first: int
    before: ErrorCode


class Api(NamedTuple):
    """One row of the table.

    since               the release of Kafka that brought it; its versions in RELEASES_UNTIL_2_0
    rights              what an authorizer asks for, in its order: as kafka 2.0.1 KafkaApis, later ones as the Kafka
                        that brought them. A right on a group, a transactional id or the cluster is for the whole
                        request, if the request does not name them in rows. A right on resources that only the answer
                        names leaves the others out of the answer (`broker/apis/guard.py`)
    later_codes         error codes that came with one of its versions
    denials             the messages for a lack of rights, up to the version of kafka 2.0.1 and after it; where it has
                        none of its own, those of kafka 3.9.1 by the error, after it only
    failed              changes the answer to a failed request, of this body in this version, as derived from the
                        messages (`broker/apis/failures.py`); None for a request that has no answer
    joined              joins rows of a request into the first array that names the subject of the answer's rows
    is_between_brokers  brokers send it to each other: no quota holds for it, unless a client sends it
    is_unlisted         ApiVersions does not list it; if brokers send it to each other, only a broker of a cluster of
                        several serves it
    """

    key: ApiKey
    request: Message
    response: Message
    since: Since
    rights: tuple[Right, ...]
    later_codes: tuple[LaterCode, ...] = ()
    denials: tuple[str | None, str | None] | None = None
    failed: Callable[[Body, int, Body], Body | None] | None = None
    joined: Callable[[Body], Body] | None = None
    is_between_brokers: bool = False
    is_unlisted: bool = False

    @property
    def name(self) -> str:
        """Kafka's name of the API, as in its documentation."""
        return self.request.name.removesuffix("Request")

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last version."""
        return self.request.first_version, self.request.last_version

    @property
    def last_of_2_0(self) -> int:
        """The last version that kafka 2.0.1 has, whose answers the versions up to it get; -1 for none."""
        return self.since.last_versions[-1] if self.since.last_versions else -1

    def between(self, first: int, last: int) -> Api:
        """Return the API without the versions before `first` and after `last`."""
        request, response = (each.between(first, last) for each in (self.request, self.response))
        return self._replace(request=request, response=response)


def since(release: str, *last_versions: int) -> Since:
    return Since(release, last_versions)


def storage_error_since(first: int) -> LaterCode:
    """A storage error is a fatal surprise to a client that does not know it: it is to look for another leader, and
    retry, as kafka 2.0.1 FetchResponse and ProduceResponse."""
    return LaterCode(ErrorCode.KAFKA_STORAGE_ERROR, first, ErrorCode.NOT_LEADER_FOR_PARTITION)


def fenced_since(first: int) -> LaterCode:
    """A fenced producer was one with an old epoch."""
    return LaterCode(ErrorCode.PRODUCER_FENCED, first, ErrorCode.INVALID_PRODUCER_EPOCH)


def abortable_since(first: int) -> LaterCode:
    """A transaction that can only be aborted was in a wrong state (KIP-890)."""
    return LaterCode(ErrorCode.TRANSACTION_ABORTABLE, first, ErrorCode.INVALID_TXN_STATE)


# fmt: off
DECLARATIONS = (
    Api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse, since("0.10", 2, 3, 5, 6),
        rights=(WRITE.on(TRANSACTIONAL_ID).by_handler(), IDEMPOTENT_WRITE.on(CLUSTER).by_handler(),
                WRITE.on(TOPIC).by_handler()),
        later_codes=(storage_error_since(4), abortable_since(11)), failed=produce.failed_produce),
    Api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse, since("0.10", 3, 5, 7, 8),
        rights=(CLUSTER_ACTION.on(CLUSTER).by_handler(), READ.on(TOPIC).by_handler()),
        later_codes=(storage_error_since(6),), joined=fetch.rows_once),
    Api(ApiKey.LIST_OFFSETS, fetch.ListOffsetsRequest, fetch.ListOffsetsResponse, since("0.10", 1, 2, 2, 3),
        rights=(DESCRIBE.on(TOPIC),)),
    Api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse, since("0.10", 2, 4, 5, 6),
        rights=(DESCRIBE.on(TOPIC).by_handler(), CREATE.on(CLUSTER).or_(CREATE.on(TOPIC)).by_handler()),
        later_codes=(LaterCode(ErrorCode.LISTENER_NOT_FOUND, 6, ErrorCode.LEADER_NOT_AVAILABLE),),
        failed=metadata.failed_metadata),
    Api(ApiKey.LEADER_AND_ISR, inter_broker.LeaderAndIsrRequest, inter_broker.LeaderAndIsrResponse,
        since("0.10", 0, 0, 1, 1), rights=(CLUSTER_ACTION.on(CLUSTER),), is_between_brokers=True, is_unlisted=True),
    Api(ApiKey.STOP_REPLICA, inter_broker.StopReplicaRequest, inter_broker.StopReplicaResponse,
        since("0.10", 0, 0, 0, 0), rights=(CLUSTER_ACTION.on(CLUSTER),), is_between_brokers=True, is_unlisted=True),
    Api(ApiKey.UPDATE_METADATA, inter_broker.UpdateMetadataRequest, inter_broker.UpdateMetadataResponse,
        since("0.10", 2, 3, 4, 4), rights=(CLUSTER_ACTION.on(CLUSTER),), is_between_brokers=True, is_unlisted=True),
    Api(ApiKey.CONTROLLED_SHUTDOWN, inter_broker.ControlledShutdownRequest, inter_broker.ControlledShutdownResponse,
        since("0.10", 1, 1, 1, 1), rights=(CLUSTER_ACTION.on(CLUSTER),), is_between_brokers=True, is_unlisted=True),
    Api(ApiKey.OFFSET_COMMIT, groups.OffsetCommitRequest, groups.OffsetCommitResponse, since("0.10", 2, 3, 3, 4),
        rights=(READ.on(GROUP), READ.on(TOPIC))),
    Api(ApiKey.OFFSET_FETCH, groups.OffsetFetchRequest, groups.OffsetFetchResponse, since("0.10", 2, 3, 3, 4),
        rights=(DESCRIBE.on(GROUP).by_handler(since=8), DESCRIBE.on(TOPIC).by_handler(since=8)),
        failed=groups.failed_offset_fetch),
    Api(ApiKey.FIND_COORDINATOR, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse,
        since("0.10", 0, 1, 1, 2), rights=(DESCRIBE.on(GROUP), DESCRIBE.on(TRANSACTIONAL_ID))),
    Api(ApiKey.JOIN_GROUP, groups.JoinGroupRequest, groups.JoinGroupResponse, since("0.10", 1, 2, 2, 3),
        rights=(READ.on(GROUP),), failed=groups.failed_join_group),
    Api(ApiKey.HEARTBEAT, groups.HeartbeatRequest, groups.HeartbeatResponse, since("0.10", 0, 1, 1, 2),
        rights=(READ.on(GROUP),)),
    Api(ApiKey.LEAVE_GROUP, groups.LeaveGroupRequest, groups.LeaveGroupResponse, since("0.10", 0, 1, 1, 2),
        rights=(READ.on(GROUP),)),
    Api(ApiKey.SYNC_GROUP, groups.SyncGroupRequest, groups.SyncGroupResponse, since("0.10", 0, 1, 1, 2),
        rights=(READ.on(GROUP),)),
    Api(ApiKey.DESCRIBE_GROUPS, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse,
        since("0.10", 0, 1, 1, 2), rights=(DESCRIBE.on(GROUP),), denials=(None, None)),
    Api(ApiKey.LIST_GROUPS, groups.ListGroupsRequest, groups.ListGroupsResponse, since("0.10", 0, 1, 1, 2),
        rights=(DESCRIBE.on(CLUSTER).until(2), DESCRIBE.on(CLUSTER).or_(DESCRIBE.on(GROUP)).since(3))),
    Api(ApiKey.SASL_HANDSHAKE, security.SaslHandshakeRequest, security.SaslHandshakeResponse,
        since("0.10", 0, 0, 1, 1), rights=()),
    Api(ApiKey.API_VERSIONS, metadata.ApiVersionsRequest, metadata.ApiVersionsResponse, since("0.10", 0, 1, 1, 2),
        rights=()),
    Api(ApiKey.CREATE_TOPICS, topics.CreateTopicsRequest, topics.CreateTopicsResponse, since("0.10", 1, 2, 2, 3),
        rights=(CREATE.on(CLUSTER).or_(CREATE.on(TOPIC)),), denials=(None, "Authorization failed.")),
    Api(ApiKey.DELETE_TOPICS, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, since("0.10", 0, 1, 1, 2),
        rights=(DELETE.on(TOPIC),),
        later_codes=(LaterCode(ErrorCode.TOPIC_DELETION_DISABLED, 3, ErrorCode.INVALID_REQUEST),)),
    Api(ApiKey.DELETE_RECORDS, topics.DeleteRecordsRequest, topics.DeleteRecordsResponse, since("0.11", 0, 0, 1),
        rights=(DELETE.on(TOPIC),)),
    Api(ApiKey.INIT_PRODUCER_ID, transactions.InitProducerIdRequest, transactions.InitProducerIdResponse,
        since("0.11", 0, 0, 1), rights=(WRITE.on(TRANSACTIONAL_ID), IDEMPOTENT_WRITE.on(CLUSTER).by_handler()),
        later_codes=(fenced_since(4),), failed=transactions.failed_init_producer_id),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, fetch.OffsetForLeaderEpochRequest, fetch.OffsetForLeaderEpochResponse,
        since("0.11", 0, 0, 1),
        rights=(CLUSTER_ACTION.on(CLUSTER).until(1), CLUSTER_ACTION.on(CLUSTER).or_(DESCRIBE.on(TOPIC)).since(2)),
        is_between_brokers=True),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, transactions.AddPartitionsToTxnRequest,
        transactions.AddPartitionsToTxnResponse, since("0.11", 0, 0, 1),
        rights=(WRITE.on(TRANSACTIONAL_ID).until(3), WRITE.on(TOPIC).until(3).by_handler(),
                CLUSTER_ACTION.on(CLUSTER).since(4)),
        later_codes=(fenced_since(2),)),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse,
        since("0.11", 0, 0, 1), rights=(WRITE.on(TRANSACTIONAL_ID), READ.on(GROUP)), later_codes=(fenced_since(2),)),
    Api(ApiKey.END_TXN, transactions.EndTxnRequest, transactions.EndTxnResponse, since("0.11", 0, 0, 1),
        rights=(WRITE.on(TRANSACTIONAL_ID),), later_codes=(fenced_since(2),)),
    Api(ApiKey.WRITE_TXN_MARKERS, transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse,
        since("0.11", 0, 0, 0), rights=(CLUSTER_ACTION.on(CLUSTER),), is_between_brokers=True),
    Api(ApiKey.TXN_OFFSET_COMMIT, transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse,
        since("0.11", 0, 0, 1), rights=(WRITE.on(TRANSACTIONAL_ID), READ.on(GROUP), READ.on(TOPIC)),
        later_codes=(abortable_since(4),)),
    Api(ApiKey.DESCRIBE_ACLS, acls.DescribeAclsRequest, acls.DescribeAclsResponse, since("0.11", 0, 0, 1),
        rights=(DESCRIBE.on(CLUSTER),), denials=(NOT_AUTHORIZED, NOT_AUTHORIZED)),
    Api(ApiKey.CREATE_ACLS, acls.CreateAclsRequest, acls.CreateAclsResponse, since("0.11", 0, 0, 1),
        rights=(ALTER.on(CLUSTER),), denials=(NOT_AUTHORIZED, NOT_AUTHORIZED)),
    Api(ApiKey.DELETE_ACLS, acls.DeleteAclsRequest, acls.DeleteAclsResponse, since("0.11", 0, 0, 1),
        rights=(ALTER.on(CLUSTER),), denials=(NOT_AUTHORIZED, NOT_AUTHORIZED)),
    Api(ApiKey.DESCRIBE_CONFIGS, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse,
        since("0.11", 0, 1, 2), rights=(DESCRIBE_CONFIGS.on(TOPIC), DESCRIBE_CONFIGS.on(CLUSTER),
                                      DESCRIBE_CONFIGS.on(GROUP))),
    Api(ApiKey.ALTER_CONFIGS, configs.AlterConfigsRequest, configs.AlterConfigsResponse, since("0.11", 0, 0, 1),
        rights=(ALTER_CONFIGS.on(TOPIC), ALTER_CONFIGS.on(CLUSTER), ALTER_CONFIGS.on(GROUP))),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, cluster.AlterReplicaLogDirsRequest, cluster.AlterReplicaLogDirsResponse,
        since("1.1", 0, 1), rights=(ALTER.on(CLUSTER),)),
    Api(ApiKey.DESCRIBE_LOG_DIRS, cluster.DescribeLogDirsRequest, cluster.DescribeLogDirsResponse,
        since("1.1", 0, 1), rights=(DESCRIBE.on(CLUSTER),)),
    Api(ApiKey.SASL_AUTHENTICATE, security.SaslAuthenticateRequest, security.SaslAuthenticateResponse,
        since("1.1", 0, 0), rights=()),
    Api(ApiKey.CREATE_PARTITIONS, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse,
        since("1.1", 0, 1), rights=(ALTER.on(TOPIC),), denials=("The topic authorization is failed.",) * 2),
    *(
        Api(key, request, response, since("1.1", 0, 1), rights=())
        for key, request, response in (
            (ApiKey.CREATE_DELEGATION_TOKEN, delegation_tokens.CreateDelegationTokenRequest,
             delegation_tokens.CreateDelegationTokenResponse),
            (ApiKey.RENEW_DELEGATION_TOKEN, delegation_tokens.RenewDelegationTokenRequest,
             delegation_tokens.RenewDelegationTokenResponse),
            (ApiKey.EXPIRE_DELEGATION_TOKEN, delegation_tokens.ExpireDelegationTokenRequest,
             delegation_tokens.ExpireDelegationTokenResponse),
            (ApiKey.DESCRIBE_DELEGATION_TOKEN, delegation_tokens.DescribeDelegationTokenRequest,
             delegation_tokens.DescribeDelegationTokenResponse),
        )
    ),
    Api(ApiKey.DELETE_GROUPS, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, since("1.1", 0, 1),
        rights=(DELETE.on(GROUP),)),
    Api(ApiKey.ELECT_LEADERS, cluster.ElectLeadersRequest, cluster.ElectLeadersResponse, since("2.2"),
        rights=(ALTER.on(CLUSTER),)),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, configs.IncrementalAlterConfigsRequest,
        configs.IncrementalAlterConfigsResponse, since("2.3"),
        rights=(ALTER_CONFIGS.on(TOPIC), ALTER_CONFIGS.on(CLUSTER), ALTER_CONFIGS.on(GROUP))),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, cluster.AlterPartitionReassignmentsRequest,
        cluster.AlterPartitionReassignmentsResponse, since("2.4"), rights=(ALTER.on(CLUSTER),)),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, cluster.ListPartitionReassignmentsRequest,
        cluster.ListPartitionReassignmentsResponse, since("2.4"), rights=(DESCRIBE.on(CLUSTER),)),
    Api(ApiKey.OFFSET_DELETE, groups.OffsetDeleteRequest, groups.OffsetDeleteResponse, since("2.4"),
        rights=(DELETE.on(GROUP), READ.on(TOPIC)), failed=groups.failed_offset_delete),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, quotas.DescribeClientQuotasRequest, quotas.DescribeClientQuotasResponse,
        since("2.6"), rights=(DESCRIBE_CONFIGS.on(CLUSTER),), denials=(None, None)),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, quotas.AlterClientQuotasRequest, quotas.AlterClientQuotasResponse, since("2.6"),
        rights=(ALTER_CONFIGS.on(CLUSTER),)),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, security.DescribeUserScramCredentialsRequest,
        security.DescribeUserScramCredentialsResponse, since("2.7"), rights=(DESCRIBE.on(CLUSTER),),
        denials=(None, None)),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, security.AlterUserScramCredentialsRequest,
        security.AlterUserScramCredentialsResponse, since("2.7"), rights=(ALTER.on(CLUSTER),),
        joined=security.users_once),
    Api(ApiKey.UPDATE_FEATURES, metadata.UpdateFeaturesRequest, metadata.UpdateFeaturesResponse, since("2.7"),
        rights=(ALTER.on(CLUSTER),)),
    Api(ApiKey.DESCRIBE_CLUSTER, cluster.DescribeClusterRequest, cluster.DescribeClusterResponse, since("2.8"),
        rights=()),
    Api(ApiKey.DESCRIBE_PRODUCERS, transactions.DescribeProducersRequest, transactions.DescribeProducersResponse,
        since("2.8"), rights=(READ.on(TOPIC),)),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, transactions.DescribeTransactionsRequest,
        transactions.DescribeTransactionsResponse, since("3.0"),
        rights=(DESCRIBE.on(TRANSACTIONAL_ID), DESCRIBE.on(TOPIC))),
    Api(ApiKey.LIST_TRANSACTIONS, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse,
        since("3.0"), rights=(DESCRIBE.on(TRANSACTIONAL_ID),)),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, groups.ConsumerGroupHeartbeatRequest, groups.ConsumerGroupHeartbeatResponse,
        since("3.7"), rights=(READ.on(GROUP), DESCRIBE.on(TOPIC).by_handler()), denials=(None, None)),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, groups.ConsumerGroupDescribeRequest, groups.ConsumerGroupDescribeResponse,
        since("3.7"), rights=(DESCRIBE.on(GROUP), DESCRIBE.on(TOPIC).by_handler()), denials=(None, None)),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, telemetry.GetTelemetrySubscriptionsRequest,
        telemetry.GetTelemetrySubscriptionsResponse, since("3.7"), rights=(), is_unlisted=True),
    Api(ApiKey.PUSH_TELEMETRY, telemetry.PushTelemetryRequest, telemetry.PushTelemetryResponse, since("3.7"),
        rights=(), is_unlisted=True),
    Api(ApiKey.LIST_CONFIG_RESOURCES, configs.ListConfigResourcesRequest, configs.ListConfigResourcesResponse,
        since("3.7"), rights=(DESCRIBE_CONFIGS.on(CLUSTER),)),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, metadata.DescribeTopicPartitionsRequest,
        metadata.DescribeTopicPartitionsResponse, since("3.7"), rights=(DESCRIBE.on(TOPIC).by_handler(),)),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, newer_groups.ShareGroupHeartbeatRequest,
        newer_groups.ShareGroupHeartbeatResponse, since("4.1"),
        rights=(READ.on(GROUP), DESCRIBE.on(TOPIC).by_handler()), denials=(None, None)),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, newer_groups.ShareGroupDescribeRequest, newer_groups.ShareGroupDescribeResponse,
        since("4.1"), rights=(DESCRIBE.on(GROUP), DESCRIBE.on(TOPIC).by_handler()), denials=(None, None)),
    Api(ApiKey.SHARE_FETCH, newer_groups.ShareFetchRequest, newer_groups.ShareFetchResponse, since("4.1"),
        rights=(READ.on(GROUP).by_handler(), READ.on(TOPIC).by_handler()), failed=newer_groups.failed_share),
    Api(ApiKey.SHARE_ACKNOWLEDGE, newer_groups.ShareAcknowledgeRequest, newer_groups.ShareAcknowledgeResponse,
        since("4.1"), rights=(READ.on(GROUP).by_handler(), READ.on(TOPIC).by_handler()),
        failed=newer_groups.failed_share),
    *(
        Api(key, request, response, since("4.1"), rights=(CLUSTER_ACTION.on(CLUSTER),), is_between_brokers=True,
            is_unlisted=True)
        for key, request, response in (
            (ApiKey.INITIALIZE_SHARE_GROUP_STATE, newer_groups.InitializeShareGroupStateRequest,
             newer_groups.InitializeShareGroupStateResponse),
            (ApiKey.READ_SHARE_GROUP_STATE, newer_groups.ReadShareGroupStateRequest,
             newer_groups.ReadShareGroupStateResponse),
            (ApiKey.WRITE_SHARE_GROUP_STATE, newer_groups.WriteShareGroupStateRequest,
             newer_groups.WriteShareGroupStateResponse),
            (ApiKey.DELETE_SHARE_GROUP_STATE, newer_groups.DeleteShareGroupStateRequest,
             newer_groups.DeleteShareGroupStateResponse),
            (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, newer_groups.ReadShareGroupStateSummaryRequest,
             newer_groups.ReadShareGroupStateSummaryResponse),
        )
    ),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, newer_groups.DescribeShareGroupOffsetsRequest,
        newer_groups.DescribeShareGroupOffsetsResponse, since("4.1"),
        rights=(DESCRIBE.on(GROUP), DESCRIBE.on(TOPIC).by_handler()), denials=(None, None)),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, newer_groups.AlterShareGroupOffsetsRequest,
        newer_groups.AlterShareGroupOffsetsResponse, since("4.1"),
        rights=(READ.on(GROUP), READ.on(TOPIC).by_handler()), denials=(None, None), failed=newer_groups.failed_share),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, newer_groups.DeleteShareGroupOffsetsRequest,
        newer_groups.DeleteShareGroupOffsetsResponse, since("4.1"),
        rights=(DELETE.on(GROUP), READ.on(TOPIC).by_handler()), denials=(None, None), failed=newer_groups.failed_share),
)
# Those that this broker lacks, and our tools ask of others.
ASKED_OF_OTHERS = (
    Api(ApiKey.DESCRIBE_QUORUM, cluster.DescribeQuorumRequest, cluster.DescribeQuorumResponse, since("3.0"), rights=()),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, newer_groups.StreamsGroupDescribeRequest,
        newer_groups.StreamsGroupDescribeResponse, since("4.1"), rights=()),
)
# fmt: on
API_TABLE: dict[int, Api] = {api.key: api for api in DECLARATIONS}
ASKED_TABLE = API_TABLE | {api.key: api for api in ASKED_OF_OTHERS}
for _api in ASKED_TABLE.values():
    assert _api.versions == (_api.response.first_version, _api.response.last_version), _api.name


def versions_of(release: str) -> dict[int, tuple[int, int]]:
    """The first and the last version of each API that one of RELEASES lists and this broker has, by API key."""
    if release in LATER_RELEASES:
        found = {}
        for each in LATER_RELEASES[release].split():
            key, _, versions = each.partition(":")
            first, _, last = versions.rpartition("-")
            found[int(key)] = int(first or 0), int(last)
        return {key: found[key] for key, api in API_TABLE.items() if key in found and not api.is_unlisted}
    place = RELEASES_UNTIL_2_0.index(release) - len(RELEASES_UNTIL_2_0)
    return {
        key: (0, api.since.last_versions[place])
        for key, api in API_TABLE.items()
        if len(api.since.last_versions) >= -place and not api.is_unlisted
    }
