"""What each API answers when the whole request fails: the error code in every place it has.

As kafka's getErrorResponse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minibroker.broker.apis.fetch import response_row
from minibroker.broker.replica.partition import NO_EPOCH
from minibroker.broker.replica.partition_read import failed_fetch
from minibroker.protocol.api import Request
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.fetch import FetchResponse, ListOffsetsResponse, OffsetForLeaderEpochResponse
from minibroker.protocol.messages.metadata import ApiVersionsResponse, MetadataResponse
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    DescribeProducersResponse,
    DescribeTransactionsResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    ListTransactionsResponse,
    TxnOffsetCommitResponse,
    WriteTxnMarkersResponse,
)
from minibroker.protocol.primitives import TopicPartition

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
        (name, [response_row(failed_fetch(TopicPartition(name, row[0]), error.code), error.code) for row in partitions])
        for name, partitions in request.body.topics
    ]
    return FetchResponse(error_code=error.code, topics=topics)


def list_offsets(request: Request, error: KafkaError) -> Body:
    make_row = ListOffsetsResponse.row("topics.partitions")
    topics = [
        (topic.topic, [make_row(partition=row.partition, error_code=error.code) for row in topic.partitions])
        for topic in request.body.topics
    ]
    return ListOffsetsResponse(topics=topics)


def offset_for_leader_epoch(request: Request, error: KafkaError) -> Body:
    topics = [
        (topic.topic, [(error.code, row.partition, NO_EPOCH, NO_OFFSET) for row in topic.partitions])
        for topic in request.body.topics
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


def metadata(request: Request, error: KafkaError) -> Body:
    make_row = MetadataResponse.row("topics")
    topics = [
        make_row(error_code=error.code, name=topic.name or "", topic_id=topic.topic_id, partitions=[])
        for topic in request.body.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics)


def api_versions(request: Request, error: KafkaError) -> Body:
    return ApiVersionsResponse(error_code=error.code, api_keys=[])


def init_producer_id(request: Request, error: KafkaError) -> Body:
    return InitProducerIdResponse(error_code=error.code)


def add_partitions_to_txn(request: Request, error: KafkaError) -> Body:
    return AddPartitionsToTxnResponse(topics=partition_rows(request.body.topics, error))


def add_offsets_to_txn(request: Request, error: KafkaError) -> Body:
    return AddOffsetsToTxnResponse(error_code=error.code)


def txn_offset_commit(request: Request, error: KafkaError) -> Body:
    topics = [(name, [row.partition for row in partitions]) for name, partitions in request.body.topics]
    return TxnOffsetCommitResponse(topics=partition_rows(topics, error))


def end_txn(request: Request, error: KafkaError) -> Body:
    return EndTxnResponse(error_code=error.code)


def write_txn_markers(request: Request, error: KafkaError) -> Body:
    markers = [(marker.producer_id, partition_rows(marker.topics, error)) for marker in request.body.markers]
    return WriteTxnMarkersResponse(markers=markers)


def partition_rows(topics: Iterable[tuple[str, Iterable[int]]], error: KafkaError) -> list[Any]:
    return [(name, [(partition, error.code) for partition in partitions]) for name, partitions in topics]


def describe_producers(request: Request, error: KafkaError) -> Body:
    make_row = DescribeProducersResponse.row("topics.partitions")
    topics = [
        (name, [make_row(partition=each, error_code=error.code, error_message=error.message) for each in partitions])
        for name, partitions in request.body.topics
    ]
    return DescribeProducersResponse(topics=topics)


def describe_transactions(request: Request, error: KafkaError) -> Body:
    make_row = DescribeTransactionsResponse.row("transactions")
    rows = [make_row(error_code=error.code, transactional_id=each) for each in request.body.transactional_ids]
    return DescribeTransactionsResponse(transactions=rows)


def list_transactions(request: Request, error: KafkaError) -> Body:
    return ListTransactionsResponse(error_code=error.code)
