"""What the APIs of groups answer when the whole request fails: the error code in every place it has.

As kafka's getErrorResponse.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.groups import FIRST_VERSION_WITH_MANY_KEYS
from minibroker.protocol.api import Request
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.messages.groups import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
)

NO_NODE = (-1, "", -1)
NO_OFFSET = -1

Body = Any


def find_coordinator(request: Request, error: KafkaError) -> Body:
    node_id, host, port = NO_NODE
    if request.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
        keys = request.body.coordinator_keys
        return FindCoordinatorResponse(coordinators=[(key, *NO_NODE, error.code, error.message) for key in keys])
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=node_id, host=host, port=port
    )


def join_group(request: Request, error: KafkaError) -> Body:
    return JoinGroupResponse(
        error_code=error.code, generation_id=-1, protocol_name="", member_id=request.body.member_id, members=[]
    )


def sync_group(request: Request, error: KafkaError) -> Body:
    return SyncGroupResponse(error_code=error.code, assignment=b"")


def heartbeat(request: Request, error: KafkaError) -> Body:
    return HeartbeatResponse(error_code=error.code)


def leave_group(request: Request, error: KafkaError) -> Body:
    return LeaveGroupResponse(error_code=error.code)


def offset_commit(request: Request, error: KafkaError) -> Body:
    topics = [(topic.name, [(row.partition, error.code) for row in topic.partitions]) for topic in request.body.topics]
    return OffsetCommitResponse(topics=topics)


def offset_fetch(request: Request, error: KafkaError) -> Body:
    topics = [
        (topic.name, [(partition, NO_OFFSET, -1, "", error.code) for partition in topic.partitions])
        for topic in request.body.topics or ()
    ]
    return OffsetFetchResponse(topics=topics, error_code=error.code)


def offset_delete(request: Request, error: KafkaError) -> Body:
    return OffsetDeleteResponse(error_code=error.code)


def describe_groups(request: Request, error: KafkaError) -> Body:
    make_row = DescribeGroupsResponse.row("groups")
    rows = [make_row(error_code=error.code, group_id=group_id) for group_id in request.body.groups]
    return DescribeGroupsResponse(groups=rows)


def list_groups(request: Request, error: KafkaError) -> Body:
    return ListGroupsResponse(error_code=error.code)


def delete_groups(request: Request, error: KafkaError) -> Body:
    return DeleteGroupsResponse(results=[(name, error.code) for name in request.body.group_names])
