"""Share groups for their members: ShareGroupHeartbeat, ShareFetch, ShareAcknowledge; and for administrators:
ShareGroupDescribe, DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets.

All of v1; ShareFetch and ShareAcknowledge v1-v2, DescribeShareGroupOffsets v0-v1, the last two v0. Version notes: v2
acquires at most so many records, and renews locks. As kafka 4.4 KafkaApis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from minibroker.broker.apis.authorized_operations import NOT_REQUESTED, on_group
from minibroker.broker.apis.client import Client
from minibroker.broker.apis.groups import client_host, named_assignment
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.group.group_configs import RECORD_LOCK_MS, GroupConfigs
from minibroker.broker.pending import Pending, gather, then
from minibroker.broker.wings.share.asking import HASTE_MS, Asking
from minibroker.broker.wings.share.group import ShareGroup
from minibroker.broker.wings.share.groups import (
    ASSIGNOR,
    MOST_MEMBER_ID_CHARACTERS,
    HeartbeatRequest,
    HeartbeatResult,
    ShareGroups,
)
from minibroker.broker.wings.share.partition import Acknowledgement, Kind
from minibroker.broker.wings.share.sessions import FINAL_EPOCH, FIRST_EPOCH, Partition, Sessions
from minibroker.broker.wings.share.shared import Asked, Delivered, SharedPartitions
from minibroker.broker.wings.share.states import Key, ShareStates
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.newer_groups import (
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponse,
    ShareAcknowledgeResponse,
    ShareFetchResponse,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatResponse,
)
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation

Body = Any
Outcome = ErrorCode | Pending[ErrorCode]
NO_LEADER = (0, 0)  # in place of another broker's name
NO_TOPIC_ID = bytes(16)
NOT_AUTHORIZED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."
NOT_HOSTED = "This server does not host this topic-partition."
STATE_APIS = (
    ApiKey.INITIALIZE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)
RECORD_LIMIT = 1  # of the ways to acquire records; any other takes whole batches


class Said(NamedTuple):
    """The answer for a partition, or a topic."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class ShareApis:
    """Handlers of share groups."""

    def __init__(
        self,
        groups: ShareGroups,
        sessions: Sessions,
        partitions: SharedPartitions,
        states: ShareStates,
        asking: Asking,
        configs: GroupConfigs,
        topics: MetadataCache,
        *,
        is_in_cluster: bool,
    ) -> None:
        self._groups = groups
        self._sessions = sessions
        self._partitions = partitions
        self._states = states
        self._asking = asking
        self._is_in_cluster = is_in_cluster
        self._configs = configs
        self._topics = topics

    def routes(self) -> Routes:
        return {
            ApiKey.SHARE_GROUP_HEARTBEAT: self.share_group_heartbeat,
            ApiKey.SHARE_GROUP_DESCRIBE: self.share_group_describe,
            ApiKey.SHARE_FETCH: self.share_fetch,
            ApiKey.SHARE_ACKNOWLEDGE: self.share_acknowledge,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: self.describe_share_group_offsets,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS: self.alter_share_group_offsets,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS: self.delete_share_group_offsets,
            **(dict.fromkeys(STATE_APIS, self.serve_states) if self._is_in_cluster else {}),
        }

    # -- heartbeats -------------------------------------------------------------------------------------------

    def share_group_heartbeat(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        may_describe = client.decisions(Operation.DESCRIBE, ResourceType.TOPIC)
        if not all(may_describe[name] for name in body.subscribed_topic_names or ()):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        member = body.group_id, body.member_id, body.member_epoch, body.rack_id, body.subscribed_topic_names
        result = self._groups.beat(HeartbeatRequest(*member, request.client_id or "", client_host(client)))
        return then(result, answered)

    # -- fetches and acknowledgements -------------------------------------------------------------------------

    def share_fetch(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        group_id, member_id, epoch = named(body, client)
        rows = rows_of(body.topics)
        acknowledged = {each: batches for each, batches in rows.items() if batches}
        if epoch == FIRST_EPOCH and acknowledged:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if body.is_renew_ack and (body.max_wait_ms or body.min_bytes or body.max_bytes or body.max_records):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if epoch == FIRST_EPOCH:
            if self._is_in_cluster and not self._sessions.has(group_id):
                self._partitions.rest(group_id)  # another broker may have changed its states
            session = self._sessions.open(group_id, member_id, client.number, rows)
            fresh = set(rows)
        else:
            session = self._sessions.go_on(group_id, member_id, epoch)
            fresh = rows.keys() - session.partitions.keys()
            if epoch != FINAL_EPOCH:
                session.partitions.update(dict.fromkeys(rows))
            for topic_id, numbers in body.forgotten_topics:
                for number in numbers:
                    session.partitions.pop((topic_id, number), None)
        answers = self._acknowledge(group_id, member_id, acknowledged, client, renews=body.is_renew_ack)
        if epoch == FINAL_EPOCH:
            self.end_session(group_id, member_id)
            return then(answers, partial(self._fetched, body, {}, set(), []))
        ordered = list(session.partitions)
        if ordered:
            turn = epoch % len(ordered)
            ordered = ordered[turn:] + ordered[:turn]
        readable: list[tuple[TopicPartition, Key]] = []
        failed: dict[Partition, ErrorCode] = {}
        for each in ordered:
            name, error = self._name_of(each, client)
            if error is ErrorCode.NONE and not group_id:
                error = ErrorCode.UNKNOWN_SERVER_ERROR  # no group can have state
            if error is not ErrorCode.NONE:
                failed[each] = error
            else:
                readable.append((name, Key(group_id, *each)))
        asked = Asked(
            group_id,
            member_id,
            readable,
            0 if failed else body.max_wait_ms,
            body.min_bytes,
            body.max_bytes,
            body.max_records,
            body.batch_size,
            body.share_acquire_mode == RECORD_LIMIT,
        )

        def fetch(answered: Mapping[Partition, Said]) -> Body | Pending[Body]:
            found = self._partitions.fetch(asked)
            return then(found, lambda delivered: self._fetched(body, failed, fresh, delivered, answered))

        return then(answers, fetch)

    def _fetched(
        self,
        body: Body,
        failed: Mapping[Partition, ErrorCode],
        fresh: set[Partition],
        delivered: Sequence[Delivered],
        answered: Mapping[Partition, Said],
    ) -> Body:
        make_row = ShareFetchResponse.row("responses.partitions")
        found = {(each.key.topic_id, each.key.partition): each for each in delivered}
        nothing = Delivered(Key(body.group_id, NO_TOPIC_ID, 0), ErrorCode.NONE)
        topics: dict[bytes, list[Body]] = {}
        for each in dict.fromkeys((*failed, *sorted(fresh - failed.keys()), *found, *answered)):
            records, acknowledgement = found.get(each, nothing), answered.get(each, Said())
            topics.setdefault(each[0], []).append(
                make_row(
                    partition=each[1],
                    error_code=failed.get(each, records.error),
                    acknowledge_error_code=acknowledgement.error,
                    acknowledge_error_message=acknowledgement.message,
                    current_leader=NO_LEADER,
                    records=records.records,
                    acquired_records=[(run.first, run.last, run.delivery_count) for run in records.acquired],
                )
            )
        return ShareFetchResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=self._configs.value(body.group_id, RECORD_LOCK_MS),
            responses=list(topics.items()),
            node_endpoints=[],
        )

    def share_acknowledge(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        group_id, member_id, epoch = named(body, client)
        if epoch == FIRST_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        self._sessions.go_on(group_id, member_id, epoch)
        answers = self._acknowledge(group_id, member_id, rows_of(body.topics), client, renews=body.is_renew_ack)
        if epoch == FINAL_EPOCH:
            self.end_session(group_id, member_id)

        def answer(answered: Mapping[Partition, Said]) -> Body:
            topics: dict[bytes, list[tuple[int, ErrorCode, str | None, tuple[int, int]]]] = {}
            for (topic_id, number), (error, message) in answered.items():
                topics.setdefault(topic_id, []).append((number, error, message, NO_LEADER))
            return ShareAcknowledgeResponse(
                error_code=ErrorCode.NONE,
                acquisition_lock_timeout_ms=self._configs.value(group_id, RECORD_LOCK_MS),
                responses=list(topics.items()),
                node_endpoints=[],
            )

        return then(answers, answer)

    def end_session(self, group_id: str, member_id: str) -> None:
        """End a member's session, and give back what it holds."""
        session = self._sessions.close(group_id, member_id)
        keys = [] if session is None else [Key(group_id, *each) for each in session.partitions]
        self._partitions.release(keys, member_id)

    def on_closed(self, client: Client, reason: str) -> None:
        """End the sessions of a connection that has ended."""
        for group_id, member_id in self._sessions.of_connection(client.number):
            self.end_session(group_id, member_id)
            if not self._sessions.has(group_id):
                self._partitions.rest(group_id)

    def _name_of(self, each: Partition, client: Client) -> tuple[TopicPartition, ErrorCode]:
        """The partition by name, or why the client cannot have it."""
        topic_id, number = each
        name = self._groups.topics.name_of(topic_id)
        if name is None:
            return TopicPartition("", number), ErrorCode.UNKNOWN_TOPIC_ID
        if not client.may(Operation.READ, ResourceType.TOPIC, name):
            return TopicPartition(name, number), ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if number not in self._topics.topics[name].partitions:
            return TopicPartition(name, number), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return TopicPartition(name, number), ErrorCode.NONE

    def _acknowledge(
        self, group_id: str, member_id: str, rows: Mapping[Partition, Sequence[Any]], client: Client, *, renews: bool
    ) -> dict[Partition, Said] | Pending[dict[Partition, Said]]:
        """Acknowledge records in each partition; return the answers once they are stored."""
        answers: dict[Partition, Said] = {}
        waiting: dict[Partition, Outcome] = {}
        for each, batches in rows.items():
            name, error = self._name_of(each, client)
            if error is not ErrorCode.NONE:
                answers[each] = Said(error)
                continue
            try:
                acknowledgements = checked(batches, renews=renews)
                waiting[each] = self._partitions.acknowledge(name, Key(group_id, *each), member_id, acknowledgements)
            except KafkaError as refusal:
                answers[each] = Said(refusal.code, refusal.message)

        def answer(errors: Mapping[Partition, ErrorCode]) -> dict[Partition, Said]:
            return {each: answers.get(each) or Said(errors[each]) for each in rows}

        return then(gather(waiting), answer)

    # -- for administrators -----------------------------------------------------------------------------------

    def share_group_describe(self, request: Request, client: Client) -> Body:
        body = request.body
        return ShareGroupDescribeResponse(groups=[self._described(each, body, client) for each in body.group_ids])

    def _described(self, group_id: str, body: Body, client: Client) -> Body:
        make_row = ShareGroupDescribeResponse.row("groups")
        make_member = ShareGroupDescribeResponse.row("groups.members")
        try:
            group = self._groups.described(group_id)
            members = [
                make_member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.topic_names),
                    assignment=(named_assignment(member.assigned, self._groups.topics, client),),
                )
                for member in group.members.values()
            ]
        except KafkaError as error:
            return make_row(error_code=error.code, error_message=error.message, group_id=group_id)
        return make_row(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=members,
            authorized_operations=on_group(client, group_id) if body.include_authorized_operations else NOT_REQUESTED,
        )

    def describe_share_group_offsets(self, request: Request, client: Client) -> Body | Pending[Body]:
        found = {group_id: self._offsets_of(group_id, topics, client) for group_id, topics in request.body.groups}
        return then(gather(found), lambda rows: DescribeShareGroupOffsetsResponse(groups=list(rows.values())))

    def _offsets_of(self, group_id: str, topics: Sequence[Any] | None, client: Client) -> Body | Pending[Body]:
        group = self._groups.find(group_id)
        if topics is None:
            known = () if group is None else group.initialized.values()
            topics = [each for each in known if client.may(Operation.DESCRIBE, ResourceType.TOPIC, each[0])]
        wanted = {name: [TopicPartition(name, number) for number in numbers] for name, numbers in topics}
        found = {each: self._offset_of(group, each, client) for places in wanted.values() for each in sorted(places)}

        may_describe = client.decisions(Operation.DESCRIBE, ResourceType.TOPIC)

        def answer(rows: Mapping[TopicPartition, Body]) -> Body:
            make_topic = DescribeShareGroupOffsetsResponse.row("groups.topics")
            described = [
                make_topic(
                    topic_name=name,
                    topic_id=(may_describe[name] and self._groups.topics.id_of(name)) or NO_TOPIC_ID,
                    partitions=[rows[each] for each in places],
                )
                for name, places in wanted.items()
            ]
            make_row = DescribeShareGroupOffsetsResponse.row("groups")
            return make_row(group_id=group_id, topics=described, error_code=ErrorCode.NONE, error_message=None)

        return then(gather(found), answer)

    def _offset_of(self, group: ShareGroup | None, each: TopicPartition, client: Client) -> Body | Pending[Body]:
        """The start of a group in a partition, and the number of records behind it that are not done."""
        make_row = DescribeShareGroupOffsetsResponse.row("groups.topics.partitions")
        topic_id = self._groups.topics.id_of(each.topic)
        may_describe = client.may(Operation.DESCRIBE, ResourceType.TOPIC, each.topic)
        error, message = Said() if may_describe else NOT_AUTHORIZED
        none = make_row(partition_index=each.partition, start_offset=-1, error_code=error, error_message=message)
        if not may_describe or group is None or topic_id is None or each.partition not in group.numbers_of(topic_id):
            return none

        def with_end(state: Body) -> Body | Pending[Body]:
            if state.error_code:
                return none._replace(error_code=state.error_code, error_message=state.error_message)
            row = none._replace(start_offset=state.start_offset, leader_epoch=state.leader_epoch)
            if row.start_offset < 0 or state.delivery_complete_count < 0:
                return row
            done = state.start_offset + state.delivery_complete_count
            end = self._asking.end_offset(each)
            return then(end, lambda end: row if end < 0 else row._replace(lag=max(0, end - done)))

        key = Key(group.group_id, topic_id, each.partition)
        summary = self._asking.state(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, key, patience_ms=HASTE_MS, leader_epoch=-1)
        return then(summary, with_end)

    def alter_share_group_offsets(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        epoch = self._groups.without_members(body.group_id, makes=True).epoch
        keys: dict[TopicPartition, Key] = {}
        outcomes: dict[TopicPartition, Said | Pending[Said]] = {}
        for name, partitions in body.topics:
            for number, offset in partitions:
                each = TopicPartition(name, number)
                try:
                    topic_id = self._altered(name, client)
                    if number not in self._topics.topics[name].partitions:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
                    key = keys[each] = Key(body.group_id, topic_id, number)
                    outcomes[each] = then(self._asking.begin(key, epoch, offset), Said)
                except KafkaError as error:
                    outcomes[each] = Said(error.code, error.message)

        def answer(said: Mapping[TopicPartition, Said]) -> Body:
            self._groups.without_members(body.group_id)
            done = [key for each, key in keys.items() if said[each].error is ErrorCode.NONE]
            self._groups.add_initialized(body.group_id, done)
            make_row = AlterShareGroupOffsetsResponse.row("responses")
            rows = [
                make_row(
                    topic_name=name,
                    topic_id=self._groups.topics.id_of(name) or NO_TOPIC_ID,
                    partitions=[(number, *said[TopicPartition(name, number)]) for number, _ in partitions],
                )
                for name, partitions in body.topics
            ]
            return AlterShareGroupOffsetsResponse(error_code=ErrorCode.NONE, error_message=None, responses=rows)

        return then(gather(outcomes), answer)

    def delete_share_group_offsets(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        group = self._groups.without_members(body.group_id)
        allowed = {name: client.may(Operation.READ, ResourceType.TOPIC, name) for (name,) in body.topics}
        rows = {name: (NO_TOPIC_ID, Said(*NOT_AUTHORIZED)) for name, is_allowed in allowed.items() if not is_allowed}
        for name in [each for each, is_allowed in allowed.items() if is_allowed]:
            topic_id = self._groups.topics.id_of(name) or NO_TOPIC_ID
            try:
                self._altered(name, client)
                rows[name] = topic_id, Said()
                if topic_id not in group.initialized:
                    none = "There is no offset information to delete."
                    rows[name] = NO_TOPIC_ID, Said(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, none)
            except KafkaError as error:
                rows[name] = topic_id, Said(error.code, error.message)

        def answer(errors: Mapping[bytes, ErrorCode]) -> Body:
            make_row = DeleteShareGroupOffsetsResponse.row("responses")
            found = [
                make_row(
                    topic_name=name,
                    topic_id=topic_id,
                    error_code=said.error or errors.get(topic_id, ErrorCode.NONE),
                    error_message=said.message,
                )
                for name, (topic_id, said) in rows.items()
            ]
            return DeleteShareGroupOffsetsResponse(error_code=ErrorCode.NONE, error_message=None, responses=found)

        wanted = [topic_id for topic_id, said in rows.values() if said.error is ErrorCode.NONE]
        return then(self._groups.delete_states(body.group_id, wanted), answer)

    def _altered(self, name: str, client: Client) -> bytes:
        """The id of a topic whose offsets a client may change. Raises KafkaError."""
        if not client.may(Operation.READ, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic_id = self._groups.topics.id_of(name)
        if topic_id is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        return topic_id

    # -- for other brokers ------------------------------------------------------------------------------------

    def serve_states(self, request: Request, client: Client) -> Body | Pending[Body]:
        """Show or change the states of partitions that this broker keeps, for one of the APIs 83 to 87."""
        body = request.body
        outcomes = {
            Key(body.group_id, topic_id, row.partition): self._states.serve(
                ApiKey(request.api_key), Key(body.group_id, topic_id, row.partition), row
            )
            for topic_id, rows in body.topics
            for row in rows
            if body.group_id
        }

        def answer(answers: Mapping[Key, Body]) -> Body:
            results: dict[bytes, list[Body]] = {}
            for key, row in answers.items():
                results.setdefault(key.topic_id, []).append(row)
            return API_TABLE[request.api_key].response(results=list(results.items()))

        return then(gather(outcomes), answer)


def answered(result: HeartbeatResult) -> Body:
    assignment = result.assignment
    return ShareGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if assignment is None else (assignment,),
    )


def named(body: Body, client: Client) -> tuple[str, str, int]:
    """Group, member and epoch of a request. Raises KafkaError."""
    if not client.may(Operation.READ, ResourceType.GROUP, body.group_id or ""):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if body.group_id is None or not body.member_id or len(body.member_id) > MOST_MEMBER_ID_CHARACTERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return body.group_id, body.member_id, body.share_session_epoch


def rows_of(topics: Sequence[Any]) -> dict[Partition, Sequence[Any]]:
    """The acknowledgements of each partition of a request."""
    return {(topic_id, number): batches for topic_id, partitions in topics for number, batches in partitions}


def checked(batches: Sequence[Any], *, renews: bool) -> list[Acknowledgement]:
    """Acknowledgements that are in order. Raises KafkaError(INVALID_REQUEST)."""
    found = []
    end = -1
    last_kind = Kind.RENEW if renews else Kind.REJECT
    for first, last, kinds in batches:
        is_complete = len(kinds) in (1, last - first + 1)
        if first > last or first < end or not is_complete or not all(0 <= each <= last_kind for each in kinds):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        end = last
        found.append(Acknowledgement(first, last, kinds))
    return found
