"""What the administrators' APIs answer when the whole request fails: the error code in every place it has.

As kafka's getErrorResponse.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.configs import known_type
from minibroker.broker.apis.topics import NO_TOPIC_ID, failed_row
from minibroker.protocol.api import Request
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.cluster import (
    AlterReplicaLogDirsResponse,
    DescribeClusterResponse,
    DescribeLogDirsResponse,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
)
from minibroker.protocol.messages.configs import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from minibroker.protocol.messages.topics import (
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
)

NO_BROKER = -1
NO_LOW_WATERMARK = -1

Body = Any


def create_topics(request: Request, error: KafkaError) -> Body:
    return CreateTopicsResponse(topics=[failed_row(topic.name, error) for topic in request.body.topics])


def delete_topics(request: Request, error: KafkaError) -> Body:
    wanted = [(name, NO_TOPIC_ID) for name in request.body.topic_names] + list(request.body.topics)
    return DeleteTopicsResponse(topics=[(name, each, error.code, error.message) for name, each in wanted])


def create_partitions(request: Request, error: KafkaError) -> Body:
    return CreatePartitionsResponse(results=[(row.name, error.code, error.message) for row in request.body.topics])


def delete_records(request: Request, error: KafkaError) -> Body:
    topics = [
        (topic.name, [(partition, NO_LOW_WATERMARK, error.code) for partition, _ in topic.partitions])
        for topic in request.body.topics
    ]
    return DeleteRecordsResponse(topics=topics)


def describe_configs(request: Request, error: KafkaError) -> Body:
    make_result = DescribeConfigsResponse.row("results")
    results = [
        make_result(
            error_code=error.code,
            error_message=error.message,
            resource_type=known_type(resource.resource_type),
            resource_name=resource.resource_name,
        )
        for resource in request.body.resources
    ]
    return DescribeConfigsResponse(results=results)


def alter_configs(request: Request, error: KafkaError) -> Body:
    return AlterConfigsResponse(responses=resource_rows(request, error))


def incremental_alter_configs(request: Request, error: KafkaError) -> Body:
    return IncrementalAlterConfigsResponse(responses=resource_rows(request, error))


def resource_rows(request: Request, error: KafkaError) -> list[Body]:
    return [
        (error.code, error.message, known_type(resource.resource_type), resource.resource_name)
        for resource in request.body.resources
    ]


def describe_cluster(request: Request, error: KafkaError) -> Body:
    return DescribeClusterResponse(error_code=error.code, error_message=error.message, controller_id=NO_BROKER)


def describe_log_dirs(request: Request, error: KafkaError) -> Body:
    return DescribeLogDirsResponse(error_code=error.code)


def alter_replica_log_dirs(request: Request, error: KafkaError) -> Body:
    topics = [
        (topic.name, [(partition, error.code) for partition in topic.partitions])
        for directory in request.body.dirs
        for topic in directory.topics
    ]
    return AlterReplicaLogDirsResponse(topics=topics)


def elect_leaders(request: Request, error: KafkaError) -> Body:
    topics = [
        (topic.topic, [(partition, error.code, error.message) for partition in topic.partitions])
        for topic in request.body.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=error.code, topics=topics)


def list_partition_reassignments(request: Request, error: KafkaError) -> Body:
    return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
