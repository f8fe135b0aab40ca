"""What each API answers when the whole request fails: the error code in every place it has.

As kafka's getErrorResponse.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.api import Request
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.fetch import FetchResponse, ListOffsetsResponse
from minibroker.protocol.messages.metadata import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataResponse,
)
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.messages.topics import (
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
    DescribeConfigsResponse,
)
from minibroker.protocol.messages.transactions import InitProducerIdResponse

NO_OFFSET = -1
NO_ACKS = 0

Body = Any


def produce(request: Request, error: KafkaError) -> Body | None:
    if request.body.acks == NO_ACKS:
        return None
    topics: list[Any] = [
        (
            topic,
            [
                (partition, error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, [], error.message)
                for partition, _ in partitions
            ],
        )
        for topic, partitions in request.body.topics
    ]
    return ProduceResponse(topics=topics)


def fetch(request: Request, error: KafkaError) -> Body:
    topics = [
        (topic, [(row[0], error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None, b"") for row in partitions])
        for topic, partitions in request.body.topics
    ]
    return FetchResponse(error_code=error.code, topics=topics)


def list_offsets(request: Request, error: KafkaError) -> Body:
    make_row = ListOffsetsResponse.row("topics.partitions")
    topics = [
        (topic.topic, [make_row(partition=row.partition, error_code=error.code) for row in topic.partitions])
        for topic in request.body.topics
    ]
    return ListOffsetsResponse(topics=topics)


def metadata(request: Request, error: KafkaError) -> Body:
    make_row = MetadataResponse.row("topics")
    topics = [make_row(error_code=error.code, name=topic.name, partitions=[]) for topic in request.body.topics or ()]
    return MetadataResponse(brokers=[], topics=topics)


def find_coordinator(request: Request, error: KafkaError) -> Body:
    return FindCoordinatorResponse(error_code=error.code, error_message=error.message, node_id=-1, host="", port=-1)


def api_versions(request: Request, error: KafkaError) -> Body:
    return ApiVersionsResponse(error_code=error.code, api_keys=[])


def create_topics(request: Request, error: KafkaError) -> Body:
    return CreateTopicsResponse(topics=[(topic.name, error.code, error.message) for topic in request.body.topics])


def delete_topics(request: Request, error: KafkaError) -> Body:
    return DeleteTopicsResponse(topics=[(name, error.code) for name in request.body.topic_names])


def delete_records(request: Request, error: KafkaError) -> Body:
    topics = [
        (topic.name, [(partition, NO_OFFSET, error.code) for partition, _ in topic.partitions])
        for topic in request.body.topics
    ]
    return DeleteRecordsResponse(topics=topics)


def init_producer_id(request: Request, error: KafkaError) -> Body:
    return InitProducerIdResponse(error_code=error.code)


def describe_configs(request: Request, error: KafkaError) -> Body:
    make_result = DescribeConfigsResponse.row("results")
    results = [
        make_result(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        for resource in request.body.resources
    ]
    return DescribeConfigsResponse(results=results)
