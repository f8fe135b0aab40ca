"""The table of APIs: key, request, response. Decodes a frame to a Request, and encodes a response to a frame.

Request and response of an API have the same versions, checked at import. A broker has one handler for every row
(`broker/apis/routes.py`). All other facts of an API are derived from its messages.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from minibroker.protocol.codegen import records_size, skip_tagged_fields
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages import (
    acls,
    cluster,
    configs,
    fetch,
    groups,
    metadata,
    produce,
    quotas,
    security,
    topics,
    transactions,
)
from minibroker.protocol.primitives import TEXT_ERRORS
from minibroker.protocol.schema import Message


class ApiKey(IntEnum):
    """Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
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
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


class Api(NamedTuple):
    """One row of the table."""

    key: ApiKey
    request: Message
    response: Message

    @property
    def name(self) -> str:
        """Kafka's name of the API, as in its documentation."""
        return self.request.name.removesuffix("Request")

    @property
    def versions(self) -> tuple[int, int]:
        """The first and the last version."""
        return self.request.first_version, self.request.last_version

    def until(self, last: int) -> Api:
        """Return the API without the versions after `last`."""
        return Api(self.key, self.request.until(last), self.response.until(last))


API_TABLE: dict[int, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceResponse),
        Api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchResponse),
        Api(ApiKey.LIST_OFFSETS, fetch.ListOffsetsRequest, fetch.ListOffsetsResponse),
        Api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataResponse),
        Api(ApiKey.OFFSET_COMMIT, groups.OffsetCommitRequest, groups.OffsetCommitResponse),
        Api(ApiKey.OFFSET_FETCH, groups.OffsetFetchRequest, groups.OffsetFetchResponse),
        Api(ApiKey.FIND_COORDINATOR, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse),
        Api(ApiKey.JOIN_GROUP, groups.JoinGroupRequest, groups.JoinGroupResponse),
        Api(ApiKey.HEARTBEAT, groups.HeartbeatRequest, groups.HeartbeatResponse),
        Api(ApiKey.LEAVE_GROUP, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
        Api(ApiKey.SYNC_GROUP, groups.SyncGroupRequest, groups.SyncGroupResponse),
        Api(ApiKey.DESCRIBE_GROUPS, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse),
        Api(ApiKey.LIST_GROUPS, groups.ListGroupsRequest, groups.ListGroupsResponse),
        Api(ApiKey.SASL_HANDSHAKE, security.SaslHandshakeRequest, security.SaslHandshakeResponse),
        Api(ApiKey.API_VERSIONS, metadata.ApiVersionsRequest, metadata.ApiVersionsResponse),
        Api(ApiKey.CREATE_TOPICS, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
        Api(ApiKey.DELETE_TOPICS, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
        Api(ApiKey.DELETE_RECORDS, topics.DeleteRecordsRequest, topics.DeleteRecordsResponse),
        Api(ApiKey.INIT_PRODUCER_ID, transactions.InitProducerIdRequest, transactions.InitProducerIdResponse),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, fetch.OffsetForLeaderEpochRequest, fetch.OffsetForLeaderEpochResponse),
        Api(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            transactions.AddPartitionsToTxnRequest,
            transactions.AddPartitionsToTxnResponse,
        ),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse),
        Api(ApiKey.END_TXN, transactions.EndTxnRequest, transactions.EndTxnResponse),
        Api(ApiKey.WRITE_TXN_MARKERS, transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse),
        Api(ApiKey.TXN_OFFSET_COMMIT, transactions.TxnOffsetCommitRequest, transactions.TxnOffsetCommitResponse),
        Api(ApiKey.DESCRIBE_ACLS, acls.DescribeAclsRequest, acls.DescribeAclsResponse),
        Api(ApiKey.CREATE_ACLS, acls.CreateAclsRequest, acls.CreateAclsResponse),
        Api(ApiKey.DELETE_ACLS, acls.DeleteAclsRequest, acls.DeleteAclsResponse),
        Api(ApiKey.DESCRIBE_CONFIGS, configs.DescribeConfigsRequest, configs.DescribeConfigsResponse),
        Api(ApiKey.ALTER_CONFIGS, configs.AlterConfigsRequest, configs.AlterConfigsResponse),
        Api(ApiKey.ALTER_REPLICA_LOG_DIRS, cluster.AlterReplicaLogDirsRequest, cluster.AlterReplicaLogDirsResponse),
        Api(ApiKey.DESCRIBE_LOG_DIRS, cluster.DescribeLogDirsRequest, cluster.DescribeLogDirsResponse),
        Api(ApiKey.SASL_AUTHENTICATE, security.SaslAuthenticateRequest, security.SaslAuthenticateResponse),
        Api(ApiKey.CREATE_PARTITIONS, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
        Api(ApiKey.DELETE_GROUPS, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse),
        Api(ApiKey.ELECT_LEADERS, cluster.ElectLeadersRequest, cluster.ElectLeadersResponse),
        Api(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            configs.IncrementalAlterConfigsRequest,
            configs.IncrementalAlterConfigsResponse,
        ),
        Api(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            cluster.ListPartitionReassignmentsRequest,
            cluster.ListPartitionReassignmentsResponse,
        ),
        Api(ApiKey.OFFSET_DELETE, groups.OffsetDeleteRequest, groups.OffsetDeleteResponse),
        Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, quotas.DescribeClientQuotasRequest, quotas.DescribeClientQuotasResponse),
        Api(ApiKey.ALTER_CLIENT_QUOTAS, quotas.AlterClientQuotasRequest, quotas.AlterClientQuotasResponse),
        Api(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            security.DescribeUserScramCredentialsRequest,
            security.DescribeUserScramCredentialsResponse,
        ),
        Api(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            security.AlterUserScramCredentialsRequest,
            security.AlterUserScramCredentialsResponse,
        ),
        Api(ApiKey.DESCRIBE_CLUSTER, cluster.DescribeClusterRequest, cluster.DescribeClusterResponse),
        Api(ApiKey.DESCRIBE_PRODUCERS, transactions.DescribeProducersRequest, transactions.DescribeProducersResponse),
        Api(
            ApiKey.DESCRIBE_TRANSACTIONS,
            transactions.DescribeTransactionsRequest,
            transactions.DescribeTransactionsResponse,
        ),
        Api(ApiKey.LIST_TRANSACTIONS, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse),
    )
}
for _api in API_TABLE.values():
    assert _api.versions == (_api.response.first_version, _api.response.last_version), _api.name

TESTS_CLIENT_ID = "minibroker-tests"  # of the requests that tests make through `Broker`
HEADER = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_unpack_header: Callable[..., tuple[int, int, int, int]] = HEADER.unpack_from
SIZE_AND_CORRELATION = struct.Struct(">ii")
CORRELATION_BYTES = 4


class Request:
    """A decoded request; `size_bytes` are those of its frame, without the length before it.

    `body` is None for an ApiVersions request of an unknown version.
    """

    __slots__ = ("api_key", "api_version", "body", "client_id", "correlation_id", "size_bytes")

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: Any,
        size_bytes: int = 0,
    ) -> None:
        self.size_bytes = size_bytes
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body


def decode_request(frame: bytearray | bytes, apis: Mapping[int, Api] = API_TABLE) -> Request:
    """Decode a request of one of `apis`; ignore trailing bytes, as kafka 2.0.1 does. Raises KafkaProtocolError."""
    try:
        key, version, correlation_id, size = _unpack_header(frame)
    except struct.error:
        raise KafkaProtocolError(f"a request of {len(frame)} bytes has no header") from None
    position = HEADER.size
    client_id = None
    if size >= 0:
        if size > len(frame) - position:
            raise KafkaProtocolError(f"a client id of {size} bytes, {len(frame) - position} left")
        try:
            client_id = str(frame[position : position + size], "utf-8", TEXT_ERRORS)
        except UnicodeDecodeError:
            raise KafkaProtocolError(f"the client id of {size} bytes is not UTF-8") from None
        position += size
    api = apis.get(key)
    if api is None:
        known = f"{API_TABLE[key].name} is not served" if key in API_TABLE else f"unknown API key {key}"
        raise KafkaProtocolError(f"{known} (version {version})")
    message = api.request
    if not message.first_version <= version <= message.last_version:
        if key == ApiKey.API_VERSIONS:
            return Request(key, version, correlation_id, client_id, None, len(frame))
        raise KafkaProtocolError(f"{api.name} has no version {version}, the last is {message.last_version}")
    if version >= message.first_flexible:
        position = skip_header_tags(frame, position)
    return Request(key, version, correlation_id, client_id, message.decode(version, frame, position)[0], len(frame))


def skip_header_tags(frame: bytearray | bytes, position: int) -> int:
    try:
        return skip_tagged_fields(frame, position, len(frame))
    except Exception as error:
        raise KafkaProtocolError(f"the request header's tagged fields are malformed: {error}") from None


def response_has_tags(api: Api, version: int) -> bool:
    """Whether the response header is v1. ApiVersions' never is: a client reads it before it knows the version."""
    return version >= api.response.first_flexible and api.key != ApiKey.API_VERSIONS


def encode_response(request: Request, body: Any) -> list[Any]:
    """Encode a frame with its size: bytes, and between them the Records objects that are not bytes."""
    api = API_TABLE[request.api_key]
    chunks = api.response.encode(request.api_version, body)
    head = b"\0" if response_has_tags(api, request.api_version) else b""
    if len(chunks) == 1:
        first = chunks[0]
        return [
            SIZE_AND_CORRELATION.pack(CORRELATION_BYTES + len(head) + len(first), request.correlation_id) + head + first
        ]
    size = CORRELATION_BYTES + len(head) + sum(map(records_size, chunks))
    chunks[0] = SIZE_AND_CORRELATION.pack(size, request.correlation_id) + head + chunks[0]
    return chunks


# -- the client's side, for tests and benchmarks --------------------------------------------------------------


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Any) -> bytes:
    """Encode a whole frame with its size."""
    api = API_TABLE[api_key]
    name = b"" if client_id is None else client_id.encode()
    header = HEADER.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    if version >= api.request.first_flexible:
        header += b"\0"
    payload = header + joined(api.request.encode(version, body))
    return struct.pack(">i", len(payload)) + payload


def decode_response(api_key: int, version: int, frame: bytes | bytearray) -> tuple[int, Any]:
    """Decode a frame without its size to correlation id and body."""
    api = API_TABLE[api_key]
    (correlation_id,) = struct.unpack_from(">i", frame)
    position = CORRELATION_BYTES
    if response_has_tags(api, version):
        position = skip_header_tags(frame, position)
    return correlation_id, api.response.decode(version, frame, position)[0]


def joined(chunks: Sequence[Any]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)
