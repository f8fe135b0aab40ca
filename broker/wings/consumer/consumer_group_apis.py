"""Groups of the consumer protocol (KIP-848): ConsumerGroupHeartbeat, and ConsumerGroupDescribe for administrators.

ConsumerGroupHeartbeat v0-v1. Version notes: v1 regular expressions; the client makes the member id.
ConsumerGroupDescribe v0-v1. Version notes: v1 the protocol of each member.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.authorized_operations import NOT_REQUESTED, on_group
from minibroker.broker.apis.client import Client
from minibroker.broker.apis.groups import client_host, named_assignment
from minibroker.broker.apis.routes import Routes
from minibroker.broker.pending import Pending, then
from minibroker.broker.wings.consumer.consumer_groups import ConsumerGroups
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.heartbeats import HeartbeatRequest, HeartbeatResult
from minibroker.broker.wings.consumer.member import ConsumerMember
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.groups import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation

FIRST_VERSION_WITH_OWN_MEMBER_ID: int = ConsumerGroupHeartbeatRequest.field("subscribed_topic_regex").first
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

Body = Any


class ConsumerGroupApis:
    """Handlers of groups of the consumer protocol."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups

    def routes(self) -> Routes:
        return {
            ApiKey.CONSUMER_GROUP_HEARTBEAT: self.consumer_group_heartbeat,
            ApiKey.CONSUMER_GROUP_DESCRIBE: self.consumer_group_describe,
        }

    def consumer_group_heartbeat(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        may_describe = client.decisions(Operation.DESCRIBE, ResourceType.TOPIC)
        if not all(may_describe[name] for name in body.subscribed_topic_names or ()):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        owned = body.topic_partitions
        result = self._groups.heartbeats.heartbeat(
            HeartbeatRequest(
                group_id=body.group_id,
                member_id=body.member_id,
                member_epoch=body.member_epoch,
                instance_id=body.instance_id,
                rack_id=body.rack_id,
                rebalance_timeout_ms=body.rebalance_timeout_ms,
                topic_names=body.subscribed_topic_names,
                topic_regex=body.subscribed_topic_regex,
                server_assignor=body.server_assignor,
                owned=None if owned is None else dict(owned),
                client_id=request.client_id or "",
                client_host=client_host(client),
                must_bring_member_id=request.api_version >= FIRST_VERSION_WITH_OWN_MEMBER_ID,
                may_describe=may_describe.__getitem__,
            )
        )
        return then(result, answered)

    # -- ConsumerGroupDescribe --------------------------------------------------------------------------------

    def consumer_group_describe(self, request: Request, client: Client) -> Body:
        body = request.body
        return ConsumerGroupDescribeResponse(groups=[self._described(each, body, client) for each in body.group_ids])

    def _described(self, group_id: str, body: Body, client: Client) -> Body:
        make_row = ConsumerGroupDescribeResponse.row("groups")
        try:
            group = self._groups.described(group_id)
            members = [self._member(group, member, client) for member in group.members.values()]
        except KafkaError as error:
            return make_row(error_code=error.code, error_message=error.message, group_id=group_id)
        asks = body.include_authorized_operations
        return make_row(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=self._groups.assignor_of(group),
            members=members,
            authorized_operations=on_group(client, group_id) if asks else NOT_REQUESTED,
        )

    def _member(self, group: ConsumerGroup, member: ConsumerMember, client: Client) -> Body:
        owned = {topic_id: set(partitions) for topic_id, partitions in member.assigned.items()}
        for topic_id, partitions in member.pending_revocation.items():
            owned.setdefault(topic_id, set()).update(partitions)
        topics = self._groups.topics
        make_row = ConsumerGroupDescribeResponse.row("groups.members")
        return make_row(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.member_epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            assignment=(named_assignment(owned, topics, client),),
            target_assignment=(named_assignment(group.target_of(member.member_id), topics, client),),
            member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        )


def answered(result: HeartbeatResult) -> Body:
    assignment = result.assignment
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if assignment is None else (assignment,),
    )
