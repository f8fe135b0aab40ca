"""DescribeCluster, DescribeLogDirs, ElectLeaders and the like: the APIs about brokers and replicas.

Each broker has one log directory; only the controller elects leaders.

DescribeCluster v0-v2 (v1 endpoint type, v2 fenced brokers, of which there are none). DescribeLogDirs v0-v5: v2
flexible, v3 error code, v4 size of the disk.
AlterReplicaLogDirs v0-v2 (v2 flexible). ElectLeaders v0-v2: v1 unclean elections, v2 flexible.
As Kafka 2.0.1 where it has them, as later Kafka else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from minibroker.broker.apis.authorized_operations import NOT_REQUESTED, on_cluster
from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster import controller
from minibroker.broker.cluster.controller import Image, Plan
from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.cluster import (
    AlterReplicaLogDirsResponse,
    DescribeClusterResponse,
    DescribeLogDirsResponse,
    ElectLeadersResponse,
)
from minibroker.protocol.primitives import TopicPartition

ENDPOINT_BROKERS, ENDPOINT_CONTROLLERS = 1, 2
ELECT_PREFERRED, ELECT_UNCLEAN = 0, 1
UNKNOWN_SIZE = -1

Body = Any
Outcome = tuple[int, ErrorCode, str | None]  # of a partition


class ClusterApis:
    """Handlers of the APIs about brokers and replicas."""

    def __init__(
        self,
        *,
        config: KafkaConfig,
        metadata_cache: MetadataCache,
        controller_loop: ControllerLoop,
        topic_admin: TopicAdmin,
        replica_manager: ReplicaManager,
    ) -> None:
        self._config = config
        self._metadata_cache = metadata_cache
        self._controller = controller_loop
        self._topic_admin = topic_admin
        self._replica_manager = replica_manager

    def routes(self) -> Routes:
        return {
            ApiKey.ALTER_REPLICA_LOG_DIRS: self.alter_replica_log_dirs,
            ApiKey.DESCRIBE_LOG_DIRS: self.describe_log_dirs,
            ApiKey.ELECT_LEADERS: self.elect_leaders,
            ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
        }

    # -- DescribeCluster --------------------------------------------------------------------------------------

    def describe_cluster(self, request: Request, client: Client) -> Body:
        self._check_endpoint_type(request.body.endpoint_type)
        cache = self._metadata_cache
        brokers = [
            (broker_id, *address, broker.rack, False)
            for broker_id, broker in cache.brokers.items()
            if (address := client.address_of(broker)) is not None
        ]
        operations = NOT_REQUESTED
        if request.body.include_cluster_authorized_operations:
            operations = on_cluster(client)
        return DescribeClusterResponse(
            endpoint_type=ENDPOINT_BROKERS,
            cluster_id=cache.cluster_id,
            controller_id=cache.controller_id if any(row[0] == cache.controller_id for row in brokers) else -1,
            brokers=brokers,
            cluster_authorized_operations=operations,
        )

    def _check_endpoint_type(self, endpoint_type: int) -> None:
        if endpoint_type == ENDPOINT_CONTROLLERS:
            raise KafkaError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE,
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
            )
        if endpoint_type != ENDPOINT_BROKERS:
            raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint_type}")

    # -- DescribeLogDirs and AlterReplicaLogDirs --------------------------------------------------------------

    def describe_log_dirs(self, request: Request, client: Client) -> Body:
        log_manager = self._replica_manager.log_manager
        make_result = DescribeLogDirsResponse.row("results")
        log_dir = str(log_manager.log_dir)
        if log_manager.is_offline:
            return DescribeLogDirsResponse(
                results=[make_result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=log_dir)]
            )
        topics: dict[str, list[Body]] = {}
        for topic_partition in self._wanted(request.body.topics):
            topics.setdefault(topic_partition.topic, []).append(self._size_row(topic_partition))
        total_bytes, usable_bytes = disk_sizes(log_dir)
        result = make_result(
            error_code=ErrorCode.NONE,
            log_dir=log_dir,
            topics=list(topics.items()),
            total_bytes=total_bytes,
            usable_bytes=usable_bytes,
        )
        return DescribeLogDirsResponse(results=[result])

    def _wanted(self, topics: Sequence[Body] | None) -> Iterator[TopicPartition]:
        """Yield each of the named partitions, or of all, that has a log here; each once."""
        logs = self._replica_manager.log_manager.logs
        if topics is None:
            return iter(sorted(logs))
        named = {TopicPartition(topic, partition) for topic, partitions in topics for partition in partitions}
        return (topic_partition for topic_partition in sorted(named) if topic_partition in logs)

    def _size_row(self, topic_partition: TopicPartition) -> Body:
        """Return the log's size, and its lag behind its own high watermark."""
        log = self._replica_manager.log_manager.logs[topic_partition]
        offset_lag = max(log.high_watermark - log.log_end_offset, 0)
        return (topic_partition.partition, log.size_bytes, offset_lag, False)

    def alter_replica_log_dirs(self, request: Request, client: Client) -> Body:
        # As Kafka's map: if a partition is named twice, its last directory counts, and it has one row.
        wanted = {
            TopicPartition(topic, partition): path
            for path, topics in request.body.dirs
            for topic, partitions in topics
            for partition in partitions
        }
        topics: dict[str, list[Body]] = {}
        for topic_partition, path in wanted.items():
            row = (topic_partition.partition, self._why_not_moved(topic_partition, path))
            topics.setdefault(topic_partition.topic, []).append(row)
        return AlterReplicaLogDirsResponse(topics=list(topics.items()))

    def _why_not_moved(self, topic_partition: TopicPartition, path: str) -> ErrorCode:
        """Return NONE for a partition in this directory, the only one (as kafka 2.0.1 ReplicaManager)."""
        log_manager = self._replica_manager.log_manager
        if path != str(log_manager.log_dir):
            return ErrorCode.LOG_DIR_NOT_FOUND
        if log_manager.is_offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE if topic_partition in log_manager.logs else ErrorCode.REPLICA_NOT_AVAILABLE

    # -- ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments -----------------------------

    def elect_leaders(self, request: Request, client: Client) -> Body:
        self._topic_admin.check_is_controller()
        self._topic_admin.check_time(request.body.timeout_ms)
        election_type = request.body.election_type
        if election_type not in (ELECT_PREFERRED, ELECT_UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
        wanted = request.body.topic_partitions
        if wanted is None:
            asked = [
                TopicPartition(each.name, number) for each in self._topic_admin.topics() for number in each.partitions
            ]
        else:
            asked = [TopicPartition(topic, partition) for topic, partitions in wanted for partition in partitions]
        outcomes: dict[TopicPartition, tuple[ErrorCode, str | None]] = {}

        def elect(image: Image) -> Plan:
            plan, found = controller.elect(image, dict.fromkeys(asked), is_unclean=election_type == ELECT_UNCLEAN)
            outcomes.update(found)
            return plan

        self._controller.perform("the leaders", elect)
        topics: dict[str, list[Outcome]] = {}
        for (name, partition), (code, message) in outcomes.items():
            # The answer to a request for all partitions has no row for an election that was not needed.
            if wanted is not None or code is not ErrorCode.ELECTION_NOT_NEEDED:
                topics.setdefault(name, []).append((partition, code, message))
        return ElectLeadersResponse(topics=list(topics.items()))


def disk_sizes(path: str) -> tuple[int, int]:
    """Return the size of the file system of `path`, and its free bytes."""
    try:
        found = os.statvfs(path)
    except OSError:
        return UNKNOWN_SIZE, UNKNOWN_SIZE
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
