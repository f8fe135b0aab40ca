"""Fetch: consumers and followers read records.

Fetch v0-v18. Behavior: partitions are read in the order of the request, or of its session, under one byte budget;
unknown ones are answered unread, and come last; a request that finds too little waits in the fetch purgatory. The
answer in a session has only the changed partitions (replica/fetch_context.py).
Version notes: v3 max_bytes, and oversize first batches · v4 isolation_level · v5 log start offsets · v6 knows
KAFKA_STORAGE_ERROR · v7 sessions · v8 the client throttles itself · v9 refuses other leader epochs than this leader's ·
v10 knows zstd · v11 racks: consumers may read followers (KIP-392) · v12 diverging epochs, compact types · v13 ids
of topics · v15 the follower is in a tagged field · v16 names the leader in place of this broker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.current_leaders import CurrentLeaders
from minibroker.broker.apis.down_conversion import magic_to_convert_to
from minibroker.broker.apis.known_errors import known_code
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.config.profiles import EVERYTHING, Habit, Profile
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.fetch import DEBUGGING_REPLICA_ID
from minibroker.broker.replica.fetch_context import FetchAnswer, FetchContext, FetchManager
from minibroker.broker.replica.fetch_session import id_of
from minibroker.broker.replica.fetched_partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchParams, FetchRow, failed_fetch
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.replica.replica_selector import RackAwareSelector
from minibroker.broker.time.clock import Clock
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.batches import NEWEST_MAGIC
from minibroker.protocol.codegen import records_size, write_uvarint
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, NOT_THROTTLED, READ_COMMITTED, READ_UNCOMMITTED
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse, replica_id_of
from minibroker.protocol.primitives import ZERO_UUID, TopicPartition, UnknownTopicById, new
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation
from minibroker.storage.files.converted_slice import ConvertedSlice, whole_batches
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.transaction_index import AbortedTxn

FIRST_VERSION_WITH_MAX_BYTES: int = FetchRequest.field("max_bytes").first
LAST_VERSION_OF_OLD_FORMATS = 3
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_RACKS: int = FetchRequest.field("rack_id").first
FIRST_VERSION_WITH_IDS: int = FetchRequest.field("topics.topic").later[0]
FIRST_VERSION_WITH_LEADERS: int = FetchResponse.field("node_endpoints").first
FIRST_VERSION_WITH_COMPACT_TYPES = FetchResponse.first_flexible
CORRELATION_BYTES = 4
DIVERGING_EPOCH_BYTES = 15  # a tag, its size, an epoch, an offset, and no tags behind them
CURRENT_LEADER_BYTES = 11  # a tag, its size, a broker id, an epoch, and no tags behind them
LEADER_ERRORS = (ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.FENCED_LEADER_EPOCH)

READ, CLUSTER_ACTION = Operation.READ, Operation.CLUSTER_ACTION
TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
TOPIC_AUTHORIZATION_FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
FETCH_RESPONSE = FetchResponse.type

Body = Any

logger = logging.getLogger(__name__)


class Asked(NamedTuple):
    """A Fetch in hand: the rows to read, and the answers of the unread partitions."""

    request: Request
    client: Client
    context: FetchContext
    params: FetchParams
    rows: Sequence[FetchRow]
    unread: Sequence[FetchedPartition]


class FetchApis:
    """The handler of Fetch. With `selects_by_rack` consumers are sent to the replica in their rack."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        fetch_manager: FetchManager,
        clock: Clock,
        *,
        selects_by_rack: bool = False,
        profile: Profile = EVERYTHING,
    ) -> None:
        self._answers_alike = Habit.ANSWERS_ALIKE in profile.habits
        self._aborted_unread: Sequence[AbortedTxn] | None = () if self._answers_alike else None
        self._shows_last_stable_offset = Habit.SHOWS_LAST_STABLE_OFFSET in profile.habits
        self._waits_for_max_bytes = Habit.WAITS_FOR_MAX_BYTES in profile.habits
        self._reads_missing_partitions = Habit.READS_MISSING_PARTITIONS in profile.habits
        self._converts_at_once = Habit.CONVERTS_AT_ONCE in profile.habits
        self._selects_by_rack = selects_by_rack
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache
        self._fetch_manager = fetch_manager
        self._clock = clock
        self._has_warned_of_old_format = False

    def routes(self) -> Routes:
        return {ApiKey.FETCH: self.fetch}

    # -- Fetch ------------------------------------------------------------------------------------------------

    def fetch(self, request: Request, client: Client) -> Body | Pending[Body]:
        version, body = request.api_version, request.body
        check_isolation_level(body.isolation_level)
        replica_id = replica_id_of(body)
        is_consumer = replica_id == CONSUMER_REPLICA_ID
        reads_followers = replica_id == DEBUGGING_REPLICA_ID or (is_consumer and version >= FIRST_VERSION_WITH_RACKS)
        selector = self._selector(client, replica_id, body.rack_id) if self._selects_by_rack and body.rack_id else None
        min_bytes = min(body.min_bytes, body.max_bytes) if self._waits_for_max_bytes else body.min_bytes
        limits = body.max_wait_ms, min_bytes, body.max_bytes, version < FIRST_VERSION_WITH_MAX_BYTES
        knows_zstd = version >= FIRST_VERSION_WITH_ZSTD
        params = new(
            FetchParams,
            (
                replica_id,
                *limits,
                body.isolation_level,
                knows_zstd,
                reads_followers,
                selector,
                None,
                self._shows_last_stable_offset,
            ),
        )
        requested = requested_rows(body.topics)
        context = self._fetch_manager.new_context(
            body.session_id,
            body.session_epoch,
            rows=requested,
            forgotten=[
                TopicPartition(name, partition)
                for name, partitions in body.forgotten_topics
                for partition in partitions
            ],
            is_from_follower=params.is_from_follower,
            topics_by_id=None if version < FIRST_VERSION_WITH_IDS else self._metadata_cache.topics_by_id,
        )
        rows, unknown = self._split(client, params, context.rows)
        if version >= FIRST_VERSION_WITH_IDS:
            rows, unknown, params = self._with_errors_of_ids(rows, unknown, params)
        asked = new(Asked, (request, client, context, params, rows, unknown))
        return then(self._replica_manager.fetch(params, rows), partial(self._answer, asked))

    def _selector(self, client: Client, replica_id: int, rack_id: str) -> RackAwareSelector | None:
        """Select among the replicas that a consumer reaches by its listener; None for other readers."""
        if replica_id != CONSUMER_REPLICA_ID:
            return None
        brokers, listener = self._metadata_cache.brokers, client.listener
        racks = {broker_id: each.rack for broker_id, each in brokers.items() if listener in each.endpoints}
        return RackAwareSelector(rack_id, racks)

    def _split(
        self, client: Client, params: FetchParams, requested: Sequence[FetchRow]
    ) -> tuple[Sequence[FetchRow], list[FetchedPartition]]:
        """Split into the partitions to read, and the answers of the others: the unknown (fetch-path row 9), the denied.

        Rights are asked for with every request of a session.
        """
        may_read = None
        if not client.may_everything:
            if not params.is_from_follower:
                may_read = client.decisions(READ, TOPIC)
            elif not client.may(CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
                return [], [self._unread(row.topic_partition, TOPIC_AUTHORIZATION_FAILED) for row in requested]
        known = self._metadata_cache.topics
        unread = {}
        for row in requested:
            name, partition = topic_partition = row.topic_partition
            if may_read is not None and not may_read[name]:
                unread[topic_partition] = self._unread(topic_partition, TOPIC_AUTHORIZATION_FAILED)
                continue
            topic = known.get(name)
            if topic is None or not (partition in topic.partitions or self._reads_missing_partitions):
                unread[topic_partition] = self._unread(topic_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not unread:
            return requested, []
        return [row for row in requested if row.topic_partition not in unread], list(unread.values())

    def _unread(self, topic_partition: TopicPartition, error: ErrorCode) -> FetchedPartition:
        return failed_fetch(topic_partition, error)._replace(aborted_transactions=self._aborted_unread)

    def _with_errors_of_ids(
        self, rows: Sequence[FetchRow], unread: Sequence[FetchedPartition], params: FetchParams
    ) -> tuple[Sequence[FetchRow], list[FetchedPartition], FetchParams]:
        """Return the rows to read without those of a topic that was made anew, and all others with the errors of ids.

        As kafka 3.9 KafkaApis.handleFetchRequest and ReplicaManager.readFromLog: an id that is not known, and one that
        no longer is the topic's; this is an error of reading, which is answered at once.
        """
        known = self._metadata_cache.topics_by_id
        unknown = [
            each._replace(error=ErrorCode.UNKNOWN_TOPIC_ID)
            if isinstance(each.topic_partition.topic, UnknownTopicById) and not is_denied_follower(each, params)
            else each
            for each in unread
        ]
        old = [row for row in rows if id_of(row.topic_partition) not in known]
        if not old:
            return rows, unknown, params
        unknown += [failed_fetch(row.topic_partition, ErrorCode.INCONSISTENT_TOPIC_ID) for row in old]
        read = [row for row in rows if id_of(row.topic_partition) in known]
        return read, unknown, params._replace(max_wait_ms=0)

    def _answer(self, asked: Asked, fetched: Sequence[FetchedPartition]) -> Body:
        request, client, context, params, rows, unread = asked
        version = request.api_version
        leaders = None
        if version >= FIRST_VERSION_WITH_LEADERS:
            leaders = CurrentLeaders(self._replica_manager.partitions, self._metadata_cache, client)
        answer = context.answer([*fetched, *unread] if unread else fetched)
        shown = with_ids_of(rows, answer) if version >= FIRST_VERSION_WITH_IDS else answer
        response = fetch_response(version, shown, leaders)
        if client.meter is not None and client.meter.withholds(fetched_bytes(version, response)):
            return fetch_response(version, context.throttled_answer())
        if version <= LAST_VERSION_OF_OLD_FORMATS:
            converted = [
                self._for_old_client(version, params, row, result) for row, result in zip(rows, fetched, strict=True)
            ]
            return fetch_response(version, answer._replace(partitions=[*converted, *unread]))
        if version >= FIRST_VERSION_WITH_COMPACT_TYPES and self._replica_manager.log_manager.has_had_old_formats:
            self._warn_of_old_format(version, fetched)
        session_id = context.keep(answer, self._clock.monotonic_ms()).session_id
        if params.is_from_follower and self._replica_manager.leader_quota.limit is not None:
            self._count_throttled(version, shown)
        return response if session_id == answer.session_id else response._replace(session_id=session_id)

    def _count_throttled(self, version: int, answer: FetchAnswer) -> None:
        """Count the part of a follower's answer that is throttled (as kafka 2.0.1 sizeOfThrottledPartitions)."""
        is_throttled = self._replica_manager.is_throttled
        throttled = [each for each in answer.partitions if is_throttled(each.topic_partition)]
        size_bytes = fetched_bytes(version, fetch_response(version, answer._replace(partitions=throttled)))
        self._replica_manager.leader_quota.record(size_bytes, self._clock.monotonic_ms())

    def _for_old_client(
        self, version: int, params: FetchParams, row: FetchRow, result: FetchedPartition
    ) -> FetchedPartition:
        """Down-convert records that this client cannot read (fetch-path rows 67 and 68)."""
        partition = self._replica_manager.partitions.any(row.topic_partition)
        if partition is None:
            return result  # it was deleted since the read
        config = partition.log.config
        if self._answers_alike and not (config.message_downconversion_enable or params.is_from_follower):
            # Whether there are records or not.
            return failed_fetch(row.topic_partition, ErrorCode.UNSUPPORTED_VERSION)._replace(records=None)
        if not isinstance(result.records, FileSlice):
            return result
        if self._answers_alike and next(whole_batches(result.records), None) is None:
            return result._replace(records=b"")
        try:
            to_magic = magic_to_convert_to(result.records, version, config)
            if to_magic is None:
                return result
            if not (config.message_downconversion_enable or params.is_from_follower):
                return failed_fetch(row.topic_partition, ErrorCode.UNSUPPORTED_VERSION)
            at_once = self._converts_at_once
            converted = ConvertedSlice(result.records, to_magic, row.fetch_offset, at_once=at_once)
            return result._replace(records=converted)
        except KafkaError as error:
            return failed_fetch(row.topic_partition, error.code)

    def _warn_of_old_format(self, version: int, fetched: Sequence[FetchedPartition]) -> None:
        """Log, once, that some clients cannot read what they get: librdkafka 2.5 to 2.15 (docs/differences.md)."""
        if self._has_warned_of_old_format:
            return
        for result in fetched:
            partition = self._replica_manager.partitions.any(result.topic_partition)
            if result.size_bytes > 0 and partition is not None and partition.log.config.magic < NEWEST_MAGIC:
                logger.warning(
                    "topic %s has message.format.version %s and is read with Fetch v%d: librdkafka 2.5 to 2.15 finds "
                    "no keys and values in records of formats before 0.11 then; use librdkafka 2.16, or serve with "
                    "--act-as 2.0, or set another message.format.version before records are written (this is logged "
                    "once, for the first such topic)",
                    result.topic_partition.topic,
                    partition.log.config.message_format_version,
                    version,
                )
                self._has_warned_of_old_format = True
                return


def with_ids_of(rows: Sequence[FetchRow], answer: FetchAnswer) -> FetchAnswer:
    """Return the answer with the ids of the request: one that a partition keeps for all readers has only the name."""
    if not any(type(each.topic_partition.topic) is str for each in answer.partitions):
        return answer
    asked = {row.topic_partition: row.topic_partition for row in rows}
    named = [
        each._replace(topic_partition=asked[each.topic_partition]) if type(each.topic_partition.topic) is str else each
        for each in answer.partitions
    ]
    return answer._replace(partitions=named)


def is_denied_follower(result: FetchedPartition, params: FetchParams) -> bool:
    return params.is_from_follower and result.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def requested_rows(topics: Sequence[Any]) -> dict[TopicPartition, FetchRow]:
    """The row of each partition, as in Kafka's map: one named twice keeps its first place and its last row."""
    rows = {}
    for name, partitions in topics:
        for partition, leader_epoch, fetch_offset, last_epoch, log_start_offset, max_bytes in partitions:
            topic_partition = new(TopicPartition, (name, partition))
            row = (topic_partition, fetch_offset, log_start_offset, max_bytes, leader_epoch, last_epoch)
            rows[topic_partition] = new(FetchRow, row)
    return rows


def check_isolation_level(level: int) -> None:
    """Raises KafkaProtocolError for an unknown level: Kafka 2.0.1 cannot parse such a request."""
    if level not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise KafkaProtocolError(f"unknown isolation level {level}")


def fetch_response(version: int, answer: FetchAnswer, leaders: CurrentLeaders | None = None) -> Body:
    """Make the response. Neighbours of one topic share a row, as in Kafka's batchByTopic; a topic may come twice."""
    topics: list[tuple[str, list[Any]]] = []
    last_name: str | None = None
    last_id = b""
    uses_ids = version >= FIRST_VERSION_WITH_IDS
    rows: list[Any] = []
    for result in answer.partitions:
        name, code = result.topic_partition.topic, result.error
        if name != last_name or (uses_ids and id_of(result.topic_partition) != last_id):
            rows = []
            topics.append((name, rows))
            last_name = name
            last_id = id_of(result.topic_partition) if uses_ids else b""
        leader = None
        if code is not ErrorCode.NONE:
            code = known_code(ApiKey.FETCH, version, code)
            if leaders is not None and code in LEADER_ERRORS:
                leader = leaders.of(result.topic_partition)
        rows.append(response_row(result, code, leader))
    endpoints = () if leaders is None else leaders.endpoints
    return new(FETCH_RESPONSE, (NOT_THROTTLED, answer.error, answer.session_id, topics, endpoints))


def response_row(result: FetchedPartition, code: ErrorCode, leader: tuple[int, int] | None) -> tuple[Any, ...]:
    """Make the row of one partition, in the order of the schema's fields."""
    aborted = result.aborted_transactions
    return (
        result.topic_partition[1],
        code,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        None if aborted is None else [(txn.producer_id, txn.first_offset) for txn in aborted],
        result.preferred_read_replica,
        result.records,
        result.diverging_epoch,
        leader,
    )


def fetched_bytes(version: int, body: Body) -> int:
    """The size of a Fetch response as Kafka counts it: before down-conversion, with 4 bytes for its header.

    It is known without encoding.
    """
    is_compact = version >= FIRST_VERSION_WITH_COMPACT_TYPES
    response_bytes, topic_bytes, partition_bytes, aborted_bytes = fixed_bytes(version)
    size = CORRELATION_BYTES + response_bytes
    lengths = [len(body.topics)]
    for name, rows in body.topics:
        name_bytes = len(name.encode()) if version < FIRST_VERSION_WITH_IDS else 0
        size += topic_bytes + name_bytes + len(rows) * partition_bytes
        lengths += (name_bytes, len(rows))
        for _, _, _, _, _, aborted, _, records, diverging_epoch, leader in rows:
            if records:
                records_bytes = records_size(records)
                size += records_bytes
                lengths.append(records_bytes)
            if aborted:
                size += len(aborted) * aborted_bytes
                lengths.append(len(aborted))
            if is_compact and diverging_epoch is not None:
                size += DIVERGING_EPOCH_BYTES
            if is_compact and leader is not None:
                size += CURRENT_LEADER_BYTES
    if body.node_endpoints and version >= FIRST_VERSION_WITH_LEADERS:
        named = FetchResponse(node_endpoints=body.node_endpoints)
        size += sum(map(len, FetchResponse.encode(version, named))) - response_bytes
    return size + sum([len(write_uvarint(length + 1)) - 1 for length in lengths]) if is_compact else size


@cache
def fixed_bytes(version: int) -> tuple[int, int, int, int]:
    """The bytes of a response without topics, and what a topic, a partition and an aborted transaction add to it."""
    row = FetchResponse.row("topics.partitions")
    partition = row(partition=0, error_code=0)
    name = "" if version < FIRST_VERSION_WITH_IDS else ZERO_UUID
    grown: Sequence[Any] = (
        [],
        [(name, [])],
        [(name, [partition])],
        [(name, [partition._replace(aborted_transactions=[(0, 0)])])],
    )
    sizes = [len(b"".join(FetchResponse.encode(version, FetchResponse(topics=topics)))) for topics in grown]
    return sizes[0], sizes[1] - sizes[0], sizes[2] - sizes[1], sizes[3] - sizes[2]
