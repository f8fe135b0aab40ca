"""Routes each request to its handler and each failure to its answer (kafka's KafkaApis.handle).

The table below is the table of contents of the broker: one row per API, its handler and what is answered when
the whole request fails. What is in the table is what ApiVersions advertises.

Three rings of failure: a malformed request closes the connection (KafkaProtocolError, raised by the decoder); a
KafkaError that a handler lets through is answered for the whole request; anything else is a defect of ours,
answered UNKNOWN_SERVER_ERROR with one traceback in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from minibroker.broker.apis import admin_failures, failures, group_failures
from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.cluster import ClusterApis
from minibroker.broker.apis.configs import ConfigApis
from minibroker.broker.apis.describe_transactions import DescribeTransactionApis
from minibroker.broker.apis.fetch import FetchApis
from minibroker.broker.apis.groups import GroupApis
from minibroker.broker.apis.known_errors import KnownErrors
from minibroker.broker.apis.log_offsets import LogOffsetApis
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.offsets import OffsetApis
from minibroker.broker.apis.produce import ProduceApis
from minibroker.broker.apis.topics import TopicApis
from minibroker.broker.apis.transactions import TransactionApis
from minibroker.broker.config.profiles import EVERYTHING, Profile
from minibroker.broker.pending import Pending
from minibroker.protocol.api import API_TABLE, Api, ApiKey, Request, decode_request, encode_response
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError

logger = logging.getLogger(__name__)

Body = Any
Encoded = list[Any] | None
Handler = Callable[[Request, Client], Body | Pending[Body]]
Failure = Callable[[Request, KafkaError], Body]


def handlers(
    produce: ProduceApis,
    fetch: FetchApis,
    log_offsets: LogOffsetApis,
    metadata: MetadataApis,
    topics: TopicApis,
    configs: ConfigApis,
    cluster: ClusterApis,
    groups: GroupApis,
    offsets: OffsetApis,
    transactions: TransactionApis,
    describe_transactions: DescribeTransactionApis,
) -> dict[int, tuple[Handler, Failure]]:
    """Every API this broker serves. Versions come from `protocol.api`, so nothing is said twice."""
    return {
        ApiKey.PRODUCE: (produce.produce, failures.produce),
        ApiKey.FETCH: (fetch.fetch, failures.fetch),
        ApiKey.LIST_OFFSETS: (log_offsets.list_offsets, failures.list_offsets),
        ApiKey.METADATA: (metadata.metadata, failures.metadata),
        ApiKey.OFFSET_COMMIT: (offsets.offset_commit, group_failures.offset_commit),
        ApiKey.OFFSET_FETCH: (offsets.offset_fetch, group_failures.offset_fetch),
        ApiKey.FIND_COORDINATOR: (groups.find_coordinator, group_failures.find_coordinator),
        ApiKey.JOIN_GROUP: (groups.join_group, group_failures.join_group),
        ApiKey.HEARTBEAT: (groups.heartbeat, group_failures.heartbeat),
        ApiKey.LEAVE_GROUP: (groups.leave_group, group_failures.leave_group),
        ApiKey.SYNC_GROUP: (groups.sync_group, group_failures.sync_group),
        ApiKey.DESCRIBE_GROUPS: (groups.describe_groups, group_failures.describe_groups),
        ApiKey.LIST_GROUPS: (groups.list_groups, group_failures.list_groups),
        ApiKey.API_VERSIONS: (metadata.api_versions, failures.api_versions),
        ApiKey.CREATE_TOPICS: (topics.create_topics, admin_failures.create_topics),
        ApiKey.DELETE_TOPICS: (topics.delete_topics, admin_failures.delete_topics),
        ApiKey.DELETE_RECORDS: (topics.delete_records, admin_failures.delete_records),
        ApiKey.INIT_PRODUCER_ID: (transactions.init_producer_id, failures.init_producer_id),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (log_offsets.offset_for_leader_epoch, failures.offset_for_leader_epoch),
        ApiKey.ADD_PARTITIONS_TO_TXN: (transactions.add_partitions_to_txn, failures.add_partitions_to_txn),
        ApiKey.ADD_OFFSETS_TO_TXN: (transactions.add_offsets_to_txn, failures.add_offsets_to_txn),
        ApiKey.END_TXN: (transactions.end_txn, failures.end_txn),
        ApiKey.WRITE_TXN_MARKERS: (transactions.write_txn_markers, failures.write_txn_markers),
        ApiKey.TXN_OFFSET_COMMIT: (transactions.txn_offset_commit, failures.txn_offset_commit),
        ApiKey.DESCRIBE_PRODUCERS: (describe_transactions.describe_producers, failures.describe_producers),
        ApiKey.DESCRIBE_TRANSACTIONS: (describe_transactions.describe_transactions, failures.describe_transactions),
        ApiKey.LIST_TRANSACTIONS: (describe_transactions.list_transactions, failures.list_transactions),
        ApiKey.DELETE_GROUPS: (groups.delete_groups, group_failures.delete_groups),
        ApiKey.OFFSET_DELETE: (offsets.offset_delete, group_failures.offset_delete),
        ApiKey.DESCRIBE_CONFIGS: (configs.describe_configs, admin_failures.describe_configs),
        ApiKey.ALTER_CONFIGS: (configs.alter_configs, admin_failures.alter_configs),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (cluster.alter_replica_log_dirs, admin_failures.alter_replica_log_dirs),
        ApiKey.DESCRIBE_LOG_DIRS: (cluster.describe_log_dirs, admin_failures.describe_log_dirs),
        ApiKey.CREATE_PARTITIONS: (topics.create_partitions, admin_failures.create_partitions),
        ApiKey.ELECT_LEADERS: (cluster.elect_leaders, admin_failures.elect_leaders),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (
            configs.incremental_alter_configs,
            admin_failures.incremental_alter_configs,
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (
            cluster.list_partition_reassignments,
            admin_failures.list_partition_reassignments,
        ),
        ApiKey.DESCRIBE_CLUSTER: (cluster.describe_cluster, admin_failures.describe_cluster),
    }


class ApiRegistry:
    """Decodes a frame, runs its handler, encodes the answer."""

    def __init__(
        self, table: dict[int, tuple[Handler, Failure]], metadata: MetadataApis, profile: Profile = EVERYTHING
    ) -> None:
        self._table = table
        self.profile = profile
        self.apis = offered(table, profile)
        self._known_errors = KnownErrors(self.apis.values(), profile.error_said)
        self.encoded = encoded if profile is EVERYTHING else self._encoded_with_known_errors
        metadata.served = list(self.apis.values())

    def dispatch(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """The encoded response, None where the request wants none; a Pending of it when the request has to wait.

        Raises KafkaProtocolError and CloseConnectionError, which close the connection; so does a Pending.
        """
        request = decode_request(frame, self.apis)
        client.client_id = request.client_id
        body = self.answer(request, client)
        if isinstance(body, Pending):
            return body.then(partial(self.encoded, request, client))
        return self.encoded(request, client, body)

    def answer(self, request: Request, client: Client) -> Body | Pending[Body]:
        """The response before it is `encoded`, also where the whole request fails. Raises as `dispatch`."""
        try:
            body = self._table[request.api_key][0](request, client)
        except Exception as error:
            return self._failed(request, client, error)
        if isinstance(body, Pending):
            return body.then(same, partial(self._failed, request, client))
        return body

    def failure_of(self, request: Request, error: KafkaError) -> Body:
        """What is answered when the whole request fails; None where there is no answer."""
        return self._table[request.api_key][1](request, error)

    def _encoded_with_known_errors(self, request: Request, client: Client, body: Body) -> Encoded:
        known = None if body is None else self._known_errors.said(request.api_key, body)
        return encoded(request, client, known)

    def _failed(self, request: Request, client: Client, error: Exception) -> Body:
        """What is answered when the whole request failed."""
        if isinstance(error, KafkaProtocolError | CloseConnectionError):
            raise error
        if isinstance(error, KafkaError):
            refusal = error
            logger.info("%s: %s", describe(request, client), error)
        elif isinstance(error, OSError):
            refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            logger.error("%s: %s", describe(request, client), error)
        else:
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            logger.error("%s: a defect of minibroker", describe(request, client), exc_info=error)
        body = self.failure_of(request, refusal)
        if body is None:
            raise CloseConnectionError(f"{describe(request, client)} failed and has no response to say so")
        return body


def same(body: Body) -> Body:
    return body


def offered(table: Iterable[int], profile: Profile) -> dict[int, Api]:
    """The APIs there are handlers for, in the versions that the release has which this broker acts as."""
    apis = {}
    for key in sorted(table):
        api = API_TABLE[key]
        last = profile.last_version_of(key, api.versions[1])
        if last is not None:
            apis[key] = api.until(last)
    return apis


def encoded(request: Request, client: Client, body: Body) -> Encoded:
    """The response's chunks; None when there is none. Raises CloseConnectionError for what cannot be said."""
    if body is None:
        return None
    try:
        return encode_response(request, body)
    except Exception as error:
        logger.error("%s: the response cannot be encoded", describe(request, client), exc_info=error)
        raise CloseConnectionError("its response cannot be encoded") from error


def describe(request: Request, client: Client) -> str:
    """The request, for a log line."""
    return (
        f"{ApiKey(request.api_key).name} v{request.api_version} of {client.address} "
        f"(client id {request.client_id!r}, correlation id {request.correlation_id})"
    )
