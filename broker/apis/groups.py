"""Groups for their members: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup; and for administrators:
DescribeGroups, ListGroups, DeleteGroups.

FindCoordinator v0-v6. Version notes: v1 transactional ids · v4 many keys at once · v6 share groups, which are not here.
JoinGroup v0-v9. Version notes: v1 rebalance timeout · v4 a new member first gets its id · v5 static members · v9 one
that led the group leads it again, without assigning anew.
SyncGroup v0-v5. Heartbeat v0-v4. Version notes: v3 keeps a member while the leader assigns.
LeaveGroup v0-v5. Version notes: v3 many members at once, static ones too.
DescribeGroups v0-v6. Version notes: v3 authorized operations · v6 GROUP_ID_NOT_FOUND.
ListGroups v0-v5 (v4 states, v5 types), DeleteGroups v0-v3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from minibroker.broker.apis.authorized_operations import NOT_REQUESTED, on_group
from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import SHARE_STATE_TOPIC, TRANSACTION_STATE_TOPIC, MetadataCache
from minibroker.broker.config.profiles import EVERYTHING, Habit, Profile
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.group import GroupState
from minibroker.broker.group.group_kind import LeaveAnswer
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.membership import JoinRequest, SyncRequest
from minibroker.broker.pending import Pending, gather, then
from minibroker.broker.replica.coordinator_log import partition_of_name
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.errors import MESSAGE_OF_INVALID_REQUEST, ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.messages.groups import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from minibroker.protocol.primitives import new
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation

KEY_GROUP = 0
KEY_TRANSACTION = 1
KEY_SHARE = 2  # a partition as a group shares it: group:topic id:partition
SHARE_KEY = re.compile(r".+:[A-Za-z0-9_-]{22}:\d+", re.DOTALL)
FIRST_VERSION_WITH_SHARES = 6
LAST_FIND_COORDINATOR_OF_2_0 = API_TABLE[ApiKey.FIND_COORDINATOR].last_of_2_0
FIRST_VERSION_WITH_MANY_KEYS: int = FindCoordinatorRequest.field("coordinator_keys").first
FIRST_VERSION_WITH_REBALANCE_TIMEOUT: int = JoinGroupRequest.field("rebalance_timeout_ms").first
FIRST_VERSION_THAT_ASKS_FOR_MEMBER_ID = 4
FIRST_VERSION_THAT_SKIPS_ASSIGNMENT: int = JoinGroupResponse.field("skip_assignment").first
FIRST_VERSION_WITH_PROTOCOL: int = SyncGroupRequest.field("protocol_type").first
FIRST_VERSION_THAT_KEEPS_WHILE_SYNCING = 3  # the first that kafka 2.0.1 lacks
FIRST_VERSION_WITH_NULL_PROTOCOL: int = JoinGroupResponse.field("protocol_name").null_first
FIRST_VERSION_LEAVING_TOGETHER: int = LeaveGroupRequest.field("members").first
COORDINATED = {KEY_GROUP: GROUP_METADATA_TOPIC, KEY_TRANSACTION: TRANSACTION_STATE_TOPIC}
FIRST_VERSION_WITH_GROUP_NOT_FOUND: int = DescribeGroupsResponse.field("groups.error_message").first
STATE_BEFORE_1_1 = "AwaitingSync"  # the name of CompletingRebalance

Body = Any


class CoordinatorRow(NamedTuple):
    """The coordinator of a group or transactional id."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: ErrorCode
    error_message: str | None


NO_COORDINATOR = CoordinatorRow("", -1, "", -1, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)


class GroupApis:
    """Handlers of groups.

    `ensure_topic` creates a coordinator's topic if it is not there, or raises KafkaError. `coordinated` has the topics
    by the type of their keys.
    """

    def __init__(
        self,
        coordinator: GroupCoordinator,
        *,
        metadata_cache: MetadataCache,
        ensure_topic: Callable[[str], object],
        coordinated: Mapping[int, str] = COORDINATED,
        profile: Profile = EVERYTHING,
    ) -> None:
        self._coordinator = coordinator
        self._profile = profile
        self._names_generation = Habit.NAMES_NO_GENERATION not in profile.habits
        self._first_that_keeps_while_syncing = profile.first_of(
            FIRST_VERSION_THAT_KEEPS_WHILE_SYNCING, Habit.KEEPS_WHILE_SYNCING
        )
        self._metadata_cache = metadata_cache
        self._ensure_topic = ensure_topic
        self._coordinated = coordinated

    def routes(self) -> Routes:
        return {
            ApiKey.FIND_COORDINATOR: self.find_coordinator,
            ApiKey.JOIN_GROUP: self.join_group,
            ApiKey.HEARTBEAT: self.heartbeat,
            ApiKey.LEAVE_GROUP: self.leave_group,
            ApiKey.SYNC_GROUP: self.sync_group,
            ApiKey.DESCRIBE_GROUPS: self.describe_groups,
            ApiKey.LIST_GROUPS: self.list_groups,
            ApiKey.DELETE_GROUPS: self.delete_groups,
        }

    # -- FindCoordinator --------------------------------------------------------------------------------------

    def find_coordinator(self, request: Request, client: Client) -> Body:
        """Answer the leader of the partition that keeps each key, once the coordinator's topic exists."""
        body = request.body
        is_share = body.key_type == KEY_SHARE
        topic = (
            None
            if is_share and request.api_version < FIRST_VERSION_WITH_SHARES
            else self._coordinated.get(body.key_type)
        )
        if topic is None:
            if request.api_version >= self._profile.first_of(LAST_FIND_COORDINATOR_OF_2_0 + 1, Habit.REFUSES_KEY_TYPES):
                has_message = Habit.HAS_COMMON_MESSAGES in self._profile.habits
                raise KafkaError(ErrorCode.INVALID_REQUEST, MESSAGE_OF_INVALID_REQUEST if has_message else None)
            raise KafkaProtocolError(f"FindCoordinator: unknown key type {body.key_type}")
        if is_share and not client.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.api_version >= FIRST_VERSION_WITH_MANY_KEYS:
            rows = [self._coordinator_row(topic, key, client) for key in body.coordinator_keys]
            return FindCoordinatorResponse(coordinators=rows)
        _, node_id, host, port, error, _ = self._coordinator_row(topic, body.key, client)
        message = ErrorCode.NONE.name if Habit.FINDS_WITH_MESSAGE in self._profile.habits and not error else None
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=node_id, host=host, port=port)

    def _coordinator_row(self, topic: str, key: str, client: Client) -> CoordinatorRow:
        cache = self._metadata_cache
        if topic == SHARE_STATE_TOPIC and not SHARE_KEY.fullmatch(key):
            return NO_COORDINATOR._replace(key=key, error_code=ErrorCode.INVALID_REQUEST, error_message="")
        if topic not in cache.topics:
            try:
                self._ensure_topic(topic)
            except KafkaError:
                return NO_COORDINATOR._replace(key=key)
        known = cache.topics.get(topic)
        state = None if known is None else known.partitions.get(partition_of_name(key, len(known.partitions)))
        broker = None if state is None else cache.brokers.get(state.leader)
        address = None if broker is None else client.address_of(broker)
        if state is None or address is None:
            return NO_COORDINATOR._replace(key=key)
        return new(CoordinatorRow, (key, state.leader, *address, ErrorCode.NONE, None))

    # -- JoinGroup --------------------------------------------------------------------------------------------

    def join_group(self, request: Request, client: Client) -> Body | Pending[Body]:
        body, version = request.body, request.api_version
        result = self._coordinator.serving(body.group_id).join(
            JoinRequest(
                group_id=body.group_id,
                member_id=body.member_id,
                group_instance_id=body.group_instance_id,
                must_know_member_id=version >= FIRST_VERSION_THAT_ASKS_FOR_MEMBER_ID and body.group_instance_id is None,
                can_skip_assignment=version >= FIRST_VERSION_THAT_SKIPS_ASSIGNMENT,
                client_id=request.client_id or "",
                client_host=client_host(client),
                rebalance_timeout_ms=(
                    body.rebalance_timeout_ms
                    if version >= FIRST_VERSION_WITH_REBALANCE_TIMEOUT
                    else body.session_timeout_ms
                ),
                session_timeout_ms=body.session_timeout_ms,
                protocol_type=body.protocol_type,
                protocols=[(protocol.name, protocol.metadata) for protocol in body.protocols],
            )
        )
        return then(result, partial(joined, version, names_generation=self._names_generation))

    # -- SyncGroup --------------------------------------------------------------------------------------------

    def sync_group(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        if request.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (body.protocol_type, body.protocol_name):
            return synced(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))  # as kafka 2.5, which brought them
        result = self._coordinator.serving(body.group_id).sync(
            SyncRequest(
                group_id=body.group_id,
                identity=identity_of(body),
                protocol_type=body.protocol_type,
                protocol=body.protocol_name,
                assignments=dict(body.assignments),
            )
        )
        return then(result, synced)

    # -- Heartbeat and LeaveGroup -----------------------------------------------------------------------------

    def heartbeat(self, request: Request, client: Client) -> Body:
        body = request.body
        error = self._coordinator.serving(body.group_id).heartbeat(
            body.group_id,
            identity_of(body),
            keeps_while_syncing=request.api_version >= self._first_that_keeps_while_syncing,
        )
        return HeartbeatResponse(error_code=error)

    def leave_group(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        leaving = (
            [MemberIdentity(member.member_id, member.group_instance_id) for member in body.members]
            if request.api_version >= FIRST_VERSION_LEAVING_TOGETHER
            else [MemberIdentity(body.member_id)]
        )
        outcome = self._coordinator.serving(body.group_id).leave(body.group_id, leaving)
        return then(outcome, partial(has_left, request.api_version))

    # -- for administrators -----------------------------------------------------------------------------------

    def describe_groups(self, request: Request, client: Client) -> Body:
        make_row = DescribeGroupsResponse.row("groups")
        rows = []
        for group_id in request.body.groups:
            group = self._coordinator.describe(group_id)
            is_missing = (
                group.state == GroupState.DEAD.value and request.api_version >= FIRST_VERSION_WITH_GROUP_NOT_FOUND
            )
            rows.append(
                make_row(
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_missing else group.error,
                    error_message=group.problem if is_missing else None,
                    group_id=group_id,
                    group_state=self._state_name(group.state),
                    protocol_type=group.protocol_type,
                    protocol_data=group.protocol,
                    members=group.members,
                    authorized_operations=on_group(client, group_id)
                    if request.body.include_authorized_operations and group.error is ErrorCode.NONE
                    else NOT_REQUESTED,
                )
            )
        return DescribeGroupsResponse(groups=rows)

    def _state_name(self, state: str) -> str:
        awaits = Habit.CALLS_SYNCING_AWAITING in self._profile.habits and state == GroupState.COMPLETING_REBALANCE.value
        return STATE_BEFORE_1_1 if awaits else state

    def list_groups(self, request: Request, client: Client) -> Body:
        error, groups = self._coordinator.list(request.body.states_filter, request.body.types_filter)
        return ListGroupsResponse(error_code=error, groups=groups)

    def delete_groups(self, request: Request, client: Client) -> Body | Pending[Body]:
        deleted = gather({name: self._coordinator.delete(name) for name in dict.fromkeys(request.body.group_names)})
        return then(
            deleted,
            lambda errors: DeleteGroupsResponse(results=[(name, error, None) for name, error in errors.items()]),
        )


def has_left(version: int, answer: LeaveAnswer) -> Body:
    error, left = answer
    if version < FIRST_VERSION_LEAVING_TOGETHER and left:
        error = left[0][1]
    rows = [(who.member_id, who.group_instance_id, refusal) for who, refusal in left]
    return LeaveGroupResponse(error_code=error, members=rows)


def client_host(client: Client) -> str:
    """The client's address as java.net.InetAddress prints it without a host name."""
    return "/" + client.address.rpartition(":")[0]


def named_assignment(
    assignment: Mapping[bytes, Iterable[int]], topics: GroupTopics, client: Client
) -> list[tuple[bytes, str, list[int]]]:
    """An assignment with the names of its topics. Raises KafkaError for one that the client may not describe."""
    rows = []
    for topic_id, partitions in assignment.items():
        name = topics.name_of(topic_id)
        if name is None:
            continue
        if not client.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                "The group has described topic(s) that the client is not authorized to describe.",
            )
        rows.append((topic_id, name, sorted(partitions)))
    return rows


def identity_of(body: Body) -> MemberIdentity:
    return MemberIdentity(body.member_id, body.group_instance_id, body.generation_id)


def joined(version: int, result: JoinResult, *, names_generation: bool) -> Body:
    """Make the response; before null was allowed, an empty string stood for no protocol."""
    protocol = result.protocol
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id if names_generation or not result.error else -1,
        protocol_type=result.protocol_type,
        protocol_name=protocol or "" if version < FIRST_VERSION_WITH_NULL_PROTOCOL else protocol,
        leader=result.leader,
        skip_assignment=result.skips_assignment,
        member_id=result.member_id,
        members=result.members,
    )


def synced(result: SyncResult) -> Body:
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol,
        assignment=result.assignment,
    )
