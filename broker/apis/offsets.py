"""OffsetCommit, OffsetFetch, OffsetDelete: the committed offsets of groups.

OffsetCommit v0-v10. Version notes: v0 as if in ZooKeeper, apart from the groups · v1 a commit timestamp · v2-v4 a
retention time · v6 leader epochs · v7 static members · v9 members of the consumer protocol ·
v10 ids of topics.
OffsetFetch v0-v10. Version notes: v0 reads what v0 has committed, answers UNKNOWN_TOPIC_OR_PARTITION without an offset,
and never metadata · v2 null means all, and one error code for the group · v5 leader epochs · v7 stable offsets only,
which no open transaction is about to change · v8 several groups · v9 members of the consumer protocol · v10 ids of
topics.
OffsetDelete v0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.zookeeper import ZooKeeperOffsets
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.group.member import MemberIdentity
from minibroker.broker.group.offset_manager import FetchedOffset, OffsetManager
from minibroker.broker.group.offsets import Commit, Errors
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.message_values import NOT_THROTTLED
from minibroker.protocol.messages.groups import OffsetCommitResponse, OffsetDeleteResponse, OffsetFetchResponse
from minibroker.protocol.primitives import TopicById, TopicPartition, UnknownTopicById, new
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation
from minibroker.protocol.text import utf16_length

NOT_GIVEN = -1
FIRST_VERSION_WITH_MEMBER_EPOCHS = 9
MAX_TIMESTAMP_MS = 2**63 - 1
COMMITTED = OffsetCommitResponse.type
LAST_VERSION_WITHOUT_GROUP_ERROR = OffsetFetchResponse.field("error_code").first - 1
GROUP_ROW = OffsetFetchResponse.row("groups")
FIRST_VERSION_WITH_IDS: int = OffsetFetchResponse.field("groups.topics.name").later[0]
FIRST_VERSION_WITH_GROUPS = OffsetFetchResponse.field("groups").first
NOT_THERE_IN_V0 = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = FetchedOffset(error=ErrorCode.UNKNOWN_TOPIC_ID)
DENIED = FetchedOffset(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

Body = Any


class OffsetApis:
    """Handlers of committed offsets."""

    def __init__(
        self,
        offsets: OffsetManager,
        offsets_of_v0: ZooKeeperOffsets,
        metadata_cache: MetadataCache,
        clock: Clock,
        config: KafkaConfig,
    ) -> None:
        self._offsets = offsets
        self._offsets_of_v0 = offsets_of_v0
        self._metadata_cache = metadata_cache
        self._clock = clock
        self._config = config
        self._has_zookeeper = Habit.HAS_NO_ZOOKEEPER not in config.profile.habits
        self._takes_any_partition = Habit.COMMITS_TO_MISSING_PARTITIONS in config.profile.habits

    def routes(self) -> Routes:
        return {
            ApiKey.OFFSET_COMMIT: self.offset_commit,
            ApiKey.OFFSET_FETCH: self.offset_fetch,
            ApiKey.OFFSET_DELETE: self.offset_delete,
        }

    # -- OffsetCommit -----------------------------------------------------------------------------------------

    def offset_commit(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        now_ms = self._clock.wall_ms()
        if request.api_version == 0 and not self._has_zookeeper:
            asked = [TopicPartition(name, row.partition) for name, rows in body.topics for row in rows]
            is_known = any([*map(self._has_partition, asked)])
            code = ErrorCode.UNSUPPORTED_VERSION if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return committed(dict.fromkeys(asked, code))
        commits: dict[TopicPartition, OffsetRecord] = {}
        errors: Errors = {}
        for name, rows in body.topics:
            topic = self._metadata_cache.topics.get(name)
            for row in rows:
                topic_partition = TopicPartition(name, row.partition)
                if topic is not None and (self._takes_any_partition or row.partition in topic.partitions):
                    commits[topic_partition] = self._record(row, body.retention_time_ms, now_ms)
                else:
                    errors[topic_partition] = unknown_topic(name)
        if not commits:
            return committed(errors)
        if request.api_version == 0:
            return committed(errors | self._commit_v0(body.group_id, commits))
        identity = MemberIdentity(body.member_id, body.group_instance_id, body.generation_id)
        commit = Commit(body.group_id, identity, commits, errors)
        has_member_epochs = request.api_version >= FIRST_VERSION_WITH_MEMBER_EPOCHS
        return then(self._offsets.commit(commit, has_member_epochs=has_member_epochs), committed)

    def _commit_v0(self, group_id: str, commits: Mapping[TopicPartition, OffsetRecord]) -> Errors:
        """As kafka 2.0.1 KafkaApis.handleOffsetCommitRequest, which writes such offsets to ZooKeeper."""
        largest = self._config.offset_metadata_max_bytes
        fitting = {each: row.offset for each, row in commits.items() if utf16_length(row.metadata) <= largest}
        outcome = ErrorCode.NONE
        try:
            if fitting:
                self._offsets_of_v0.commit(group_id, fitting)
        except KafkaError as error:
            outcome = error.code
        return {each: outcome if each in fitting else ErrorCode.OFFSET_METADATA_TOO_LARGE for each in commits}

    def _may_commit_to(self, topic_partition: TopicPartition) -> bool:
        is_partition_known = self._takes_any_partition or self._has_partition(topic_partition)
        return is_partition_known and topic_partition.topic in self._metadata_cache.topics

    def _has_partition(self, topic_partition: TopicPartition) -> bool:
        topic = self._metadata_cache.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def _record(self, row: Body, retention_time_ms: int, now_ms: int) -> OffsetRecord:
        """Make the record; only clients up to v4 set when it expires, for others the broker decides."""
        expire_ms = None
        if retention_time_ms != NOT_GIVEN:
            expire_ms = min(now_ms + retention_time_ms, MAX_TIMESTAMP_MS)
        elif row.commit_timestamp != NOT_GIVEN:
            expire_ms = min(row.commit_timestamp + self._offsets.retention_ms, MAX_TIMESTAMP_MS)
        metadata = row.committed_metadata or ""
        return OffsetRecord(row.committed_offset, row.committed_leader_epoch, metadata, now_ms, expire_ms)

    # -- OffsetFetch ------------------------------------------------------------------------------------------

    def offset_fetch(self, request: Request, client: Client) -> Body:
        body, version = request.body, request.api_version
        if version >= FIRST_VERSION_WITH_GROUPS:
            has_ids = version >= FIRST_VERSION_WITH_IDS
            rows = [self._fetched_group(each, body, client, has_ids=has_ids) for each in body.groups]
            return OffsetFetchResponse(groups=rows)
        if body.topics is None and version <= LAST_VERSION_WITHOUT_GROUP_ERROR:
            raise KafkaProtocolError(f"OffsetFetch v{version}: topics are null")
        asked = None if body.topics is None else partitions_of(body.topics)
        if version == 0 and not self._has_zookeeper:
            error, offsets = ErrorCode.UNSUPPORTED_VERSION, {}
        elif version == 0:
            error, offsets = ErrorCode.NONE, {each: self._fetched_v0(body.group_id, each) for each in asked or ()}
        else:
            error, offsets = self._offsets.fetch(body.group_id, asked, must_be_stable=body.require_stable)
        if error is not ErrorCode.NONE and version <= LAST_VERSION_WITHOUT_GROUP_ERROR:
            offsets = dict.fromkeys(asked or (), FetchedOffset(error=error))
        return OffsetFetchResponse(topics=by_topic(fetched_rows(offsets)), error_code=error)

    def _fetched_group(self, group: Body, body: Body, client: Client, *, has_ids: bool) -> Body:
        """Make the row of one group: topics that the client may not know come last, or not if it asks for all."""
        asked = None if group.topics is None else partitions_of(group.topics)
        refused = {each: UNKNOWN_ID for each in asked or () if isinstance(each.topic, UnknownTopicById)}
        if not client.may(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            return GROUP_ROW(group.group_id, (), ErrorCode.GROUP_AUTHORIZATION_FAILED)
        may_know = client.decisions(Operation.DESCRIBE, ResourceType.TOPIC)
        if not client.may_everything:
            refused |= {each: DENIED for each in asked or () if each not in refused and not may_know[each.topic]}
        error, offsets = self._offsets.fetch(
            group.group_id,
            None if asked is None else [each for each in asked if each not in refused],
            must_be_stable=body.require_stable,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
        )
        if error is not ErrorCode.NONE:
            return GROUP_ROW(group.group_id, (), error)
        if asked is None and not client.may_everything:
            offsets = {each: offset for each, offset in offsets.items() if may_know[each.topic]}
        if asked is None and has_ids:
            offsets = self._by_id(offsets)
        return GROUP_ROW(group.group_id, by_topic(fetched_rows(offsets | refused)), error)

    def _by_id(self, offsets: Mapping[TopicPartition, FetchedOffset]) -> dict[TopicPartition, FetchedOffset]:
        """The offsets with the ids of their topics, without those of topics that are gone (as kafka 4.4)."""
        topics = self._metadata_cache.topics
        ids = {each: TopicById(each, topics[each].topic_id.bytes) for each, _ in offsets if each in topics}
        return {TopicPartition(ids[each[0]], each[1]): offset for each, offset in offsets.items() if each[0] in ids}

    def _fetched_v0(self, group_id: str, topic_partition: TopicPartition) -> FetchedOffset:
        """As kafka 2.0.1 KafkaApis.handleOffsetFetchRequest, which reads such offsets from ZooKeeper."""
        if not self._may_commit_to(topic_partition):
            return NOT_THERE_IN_V0
        try:
            offset = self._offsets_of_v0.get(group_id, topic_partition)
        except KafkaError as error:
            return FetchedOffset(error=error.code)
        return NOT_THERE_IN_V0 if offset is None else FetchedOffset(offset)

    # -- OffsetDelete -----------------------------------------------------------------------------------------

    def offset_delete(self, request: Request, client: Client) -> Body:
        asked = partitions_of(request.body.topics)
        known = [each for each in asked if self._has_partition(each)]
        error, errors = self._offsets.delete(request.body.group_id, known)
        if error is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=error)
        rows = {each: (each.partition, errors.get(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)) for each in asked}
        return OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=by_topic(rows))


def unknown_topic(name: str) -> ErrorCode:
    """The error for a partition that is not there: whether the client named the topic, or its id."""
    is_by_id = isinstance(name, UnknownTopicById)
    return ErrorCode.UNKNOWN_TOPIC_ID if is_by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def partitions_of(topics: Iterable[Body]) -> list[TopicPartition]:
    """The partitions of all topics, each once, in order."""
    return list(
        dict.fromkeys(TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions)
    )


def committed(errors: Errors) -> Body:
    rows = {each: (each.partition, error) for each, error in errors.items()}
    return new(COMMITTED, (NOT_THROTTLED, by_topic(rows)))


def fetched_rows(offsets: Mapping[TopicPartition, FetchedOffset]) -> dict[TopicPartition, tuple[Any, ...]]:
    """The rows of an answer to OffsetFetch."""
    return {
        each: (each.partition, offset.offset, offset.leader_epoch, offset.metadata, offset.error)
        for each, offset in offsets.items()
    }


def by_topic(rows: Mapping[TopicPartition, tuple[Any, ...]]) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Group the rows of partitions by topic."""
    topics: dict[str, list[tuple[Any, ...]]] = {}
    for topic_partition, row in rows.items():
        topics.setdefault(topic_partition.topic, []).append(row)
    return list(topics.items())
