"""Produce: producers append records.

Produce v0-v13. Behavior: each partition succeeds or fails alone; acks=1 is answered after the append, acks=all after
the in-sync replicas have the records, acks=0 never. A failed acks=0 produce closes the connection, as the client can
notice nothing else. Version notes: v0-v2 carry message sets of magic 0 and 1 · v1 throttle time · v2 log append time ·
v3 record batches, exactly one of magic 2 a partition · v5 log start offset · v7 may carry zstd · v8 error messages,
the invalid records, and producers that stay known when their records are deleted · v10 names
the leader in place of this broker · v12 adds partitions to the transaction, in transactions v2 (KIP-890); up to it the
coordinator is asked whether they are there, and what is of a transaction without its id is refused, but not up to the
version of kafka 2.0.1 · v13 ids of topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.current_leaders import CurrentLeaders
from minibroker.broker.apis.known_errors import known_code
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import INTERNAL_TOPICS, MetadataCache
from minibroker.broker.config.profiles import EVERYTHING, Habit, Profile
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.append import AppendResults, failed_append
from minibroker.broker.replica.leading import ACKS_ALL, ACKS_NONE
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.transaction.marker_channels import Errors
from minibroker.broker.transaction.participation import Participation
from minibroker.broker.transaction.transaction import ProducerIdentity
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.batches import (
    NEWEST_MAGIC,
    is_one_batch_of_magic_2,
    is_zstd_batch,
    kinds_of_producers,
    scan_batches,
    transactional_producer,
)
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.message_values import NOT_THROTTLED
from minibroker.protocol.messages.produce import ProduceResponse
from minibroker.protocol.primitives import TopicPartition, UnknownTopicById, new
from minibroker.protocol.record import NO_OFFSET
from minibroker.protocol.record_batch import MAGIC_AT
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation

PRODUCE_RESPONSE = ProduceResponse.type
VALID_ACKS = (ACKS_ALL, ACKS_NONE, 1)
FIRST_VERSION_WITH_RECORD_BATCHES = 3
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_RECORD_ERRORS: int = ProduceResponse.field("topics.partitions.record_errors").first
FIRST_VERSION_THAT_REMEMBERS_PRODUCERS = 8  # of kafka 2.4, with KIP-360
FIRST_VERSION_WITH_LEADERS: int = ProduceResponse.field("node_endpoints").first
FIRST_VERIFIED_VERSION = API_TABLE[ApiKey.PRODUCE].last_of_2_0 + 1  # as kafka 3.6
FIRST_VERSION_THAT_ADDS_PARTITIONS = 12
NOT_ADDED = "Partition was not added to the transaction"
# As kafka 2.0.1 AdminUtils.AdminClientId: the only client that may write to internal topics.
ADMIN_CLIENT_ID = "__admin_client"

Body = Any
Entries = dict[TopicPartition, memoryview]


class ProduceApis:
    """The handler of Produce."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        participation: Participation,
        profile: Profile = EVERYTHING,
    ) -> None:
        self._first_verified_version = max(FIRST_VERSION_WITH_RECORD_BATCHES, profile.first_of(FIRST_VERIFIED_VERSION))
        self._first_that_remembers_producers = profile.first_of(
            FIRST_VERSION_THAT_REMEMBERS_PRODUCERS, Habit.REMEMBERS_PRODUCERS
        )
        self._first_with_ids_of_transactions = max(
            FIRST_VERSION_WITH_RECORD_BATCHES, profile.first_of(FIRST_VERIFIED_VERSION, Habit.NAMES_TRANSACTIONS)
        )
        calls_invalid = Habit.CALLS_RECORDS_INVALID in profile.habits
        self._first_with_invalid_records = 0 if calls_invalid else FIRST_VERSION_WITH_RECORD_ERRORS
        refuses_old = Habit.REFUSES_OLD_PRODUCE in profile.habits
        self._first_version = FIRST_VERSION_WITH_RECORD_BATCHES if refuses_old else 0
        self._knows_batches = Habit.KNOWS_NO_BATCHES not in profile.habits
        self._participation = participation
        self._replica_manager = replica_manager
        self._metadata_cache = metadata_cache

    def routes(self) -> Routes:
        return {ApiKey.PRODUCE: self.produce}

    def produce(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        if request.api_version < self._first_version:
            raise KafkaProtocolError(f"Produce has no version {request.api_version}")
        entries, refused = self._split_refused(request)
        if body.acks not in VALID_ACKS:
            refused = self._refused_for_acks((*entries, *refused))
            entries = {}
        if not client.may_everything:
            denied = refusals(client, body)
            if denied:
                entries = {each: records for each, records in entries.items() if each not in denied}
                refused = refused | denied
        version = request.api_version
        if entries and body.transactional_id is not None and version >= self._first_verified_version:
            return then(self._admit(request, entries), partial(self._append, request, client, entries, refused))
        needs_id = body.transactional_id is None and version >= self._first_with_ids_of_transactions
        if needs_id and any(map(transactional_producer, entries.values())):
            entries, refused = {}, refused_for_all(body, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return self._append(request, client, entries, refused, {})

    def _admit(self, request: Request, entries: Entries) -> AppendResults | Pending[AppendResults]:
        """Return the partitions that cannot take part in the transaction."""
        asked: dict[ProducerIdentity, dict[TopicPartition, int]] = {}
        for topic_partition, records in entries.items():
            producer = transactional_producer(records)
            if producer is not None:
                *identity, sequence = producer
                asked.setdefault(ProducerIdentity(*identity), {})[topic_partition] = sequence
        adds = request.api_version >= FIRST_VERSION_THAT_ADDS_PARTITIONS
        outcome: AppendResults | Pending[AppendResults] = {}
        for each, sequences in asked.items():
            errors = self._participation.admit(request.body.transactional_id, each, sequences, adds=adds)
            outcome = then(outcome, partial(with_refusals, errors))
        return outcome

    def _append(
        self, request: Request, client: Client, entries: Entries, refused: AppendResults, not_admitted: AppendResults
    ) -> Body | Pending[Body]:
        body = request.body
        if not_admitted:
            entries = {each: records for each, records in entries.items() if each not in not_admitted}
            refused = refused | not_admitted
        results = self._replica_manager.append(
            entries,
            required_acks=body.acks,
            timeout_ms=body.timeout_ms,
            remembers_producers=request.api_version >= self._first_that_remembers_producers,
        )
        leaders = None
        if request.api_version >= FIRST_VERSION_WITH_LEADERS:
            leaders = CurrentLeaders(self._replica_manager.partitions, self._metadata_cache, client)
        return then(results, partial(answer, request, refused, leaders, self._first_with_invalid_records))

    def _split_refused(self, request: Request) -> tuple[Entries, AppendResults]:
        """Split into the partitions to append to, and those refused before they reach a log."""
        entries: Entries = {}
        refused: AppendResults = {}
        partitions_here = self._replica_manager.partitions
        for topic, partitions in request.body.topics:
            is_internal = topic in INTERNAL_TOPICS and request.client_id != ADMIN_CLIENT_ID
            for partition, records in partitions:
                topic_partition = TopicPartition(topic, partition)
                if records is None:
                    raise KafkaProtocolError(f"Produce to {topic}-{partition} has null records")
                if request.api_version >= FIRST_VERSION_WITH_RECORD_BATCHES and not is_one_batch_of_magic_2(records):
                    if self._first_with_invalid_records:
                        asked = f"Produce v{request.api_version} to {topic}-{partition}"
                        raise KafkaProtocolError(f"{asked} must hold one record batch of magic 2")
                    refused[topic_partition] = failed_append(ErrorCode.INVALID_RECORD)
                elif not self._first_with_invalid_records and has_several_batches_of_magic_2(records):
                    refused[topic_partition] = failed_append(ErrorCode.INVALID_RECORD)
                elif is_internal and partitions_here.any(topic_partition) is not None:
                    refused[topic_partition] = failed_append(ErrorCode.INVALID_TOPIC_EXCEPTION)
                elif request.api_version < FIRST_VERSION_WITH_ZSTD and (error := self._error_of_format(records)):
                    refused[topic_partition] = failed_append(error)
                else:
                    entries[topic_partition] = records
        return entries, refused

    def _error_of_format(self, records: memoryview) -> ErrorCode:
        """The error of records in a format that came after the version of their request, or after the release."""
        if is_zstd_batch(records):
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        is_known = self._knows_batches or all(
            view.magic < NEWEST_MAGIC for view in scan_batches(records, 0, len(records))
        )
        return ErrorCode.NONE if is_known else ErrorCode.CORRUPT_MESSAGE

    def _refused_for_acks(self, asked: Iterable[TopicPartition]) -> AppendResults:
        """As kafka 2.0.1: an unknown partition gets its own error, before that of the acks."""
        known = self._replica_manager.partitions
        return {
            topic_partition: failed_append(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if known.any(topic_partition) is None
                else ErrorCode.INVALID_REQUIRED_ACKS
            )
            for topic_partition in asked
        }


def has_several_batches_of_magic_2(records: memoryview) -> bool:
    """Whether records begin with a batch of magic 2, and have another one behind it."""
    return len(records) > MAGIC_AT and records[MAGIC_AT] == NEWEST_MAGIC and not is_one_batch_of_magic_2(records)


def with_refusals(errors: Errors | Pending[Errors], known: AppendResults) -> AppendResults | Pending[AppendResults]:
    """Add the refusals of partitions that cannot take part in a transaction."""
    return then(errors, lambda errors: known | {each: failed_append(error) for each, error in errors.items()})


def refusals(client: Client, body: Body) -> AppendResults:
    """Return the partitions that the client may not write to.

    Each batch counts, not only the last one, as in kafka 2.0.1 (CVE-2018-17196).
    """
    may_write = client.decisions(Operation.WRITE, ResourceType.TOPIC)
    has_transaction = has_idempotent = False
    error = ErrorCode.NONE
    for topic, partitions in body.topics:
        if not may_write[topic]:
            error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for _, records in partitions:
            is_transactional, is_idempotent = kinds_of_producers(records)
            has_transaction |= is_transactional
            has_idempotent |= is_idempotent
    id_of_transaction = body.transactional_id
    if has_transaction and (
        id_of_transaction is None or not client.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, id_of_transaction)
    ):
        return refused_for_all(body, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if has_idempotent and not client.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME):
        return refused_for_all(body, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not error:
        return {}
    refused = refused_for_all(body, error)
    return {each: result for each, result in refused.items() if not may_write[each.topic]}


def refused_for_all(body: Body, error: ErrorCode) -> AppendResults:
    return {
        TopicPartition(topic, partition): failed_append(error)
        for topic, partitions in body.topics
        for partition, _ in partitions
    }


def answer(
    request: Request,
    refused: AppendResults,
    leaders: CurrentLeaders | None,
    first_with_invalid_records: int,
    results: AppendResults,
) -> Body | None:
    """Make the response, each partition once, in the order of the request; None for acks=0."""
    if refused:
        results = {**results, **refused}
    if request.body.acks == ACKS_NONE:
        failed = [f"{tp}: {result.error.name}" for tp, result in results.items() if result.error]
        if failed:
            raise CloseConnectionError(f"acks=0 produce failed ({', '.join(failed)})")
        return None
    version = request.api_version
    topics: dict[str, list[Any]] = {}
    for topic, partitions in request.body.topics:
        for partition, _ in partitions:
            result = results.pop((topic, partition), None)  # type: ignore[call-overload]
            if result is None:
                continue  # named twice
            error, info, log_start_offset, message, record_errors, is_invalid = result
            rows = topics.setdefault(topic, [])
            if error is ErrorCode.NONE and info is not None:
                rows.append(
                    (partition, error, info.first_offset, info.log_append_time_ms, log_start_offset, [], None, None)
                )
            else:
                code = known_code(ApiKey.PRODUCE, version, error)
                if code is not error and error is ErrorCode.TRANSACTION_ABORTABLE:
                    message = NOT_ADDED
                if is_invalid and version < first_with_invalid_records:
                    log_start_offset = NO_OFFSET
                elif is_invalid and code is ErrorCode.CORRUPT_MESSAGE:
                    code = ErrorCode.INVALID_RECORD  # as kafka 2.4: a retry would not help
                if isinstance(topic, UnknownTopicById):
                    code, message = ErrorCode.UNKNOWN_TOPIC_ID, None
                leader = None
                if leaders is not None and code is ErrorCode.NOT_LEADER_FOR_PARTITION:
                    leader = leaders.of(TopicPartition(topic, partition))
                appended = (NO_OFFSET, NO_OFFSET) if info is None else (info.first_offset, info.log_append_time_ms)
                rows.append((partition, code, *appended, log_start_offset, record_errors, message, leader))
    return new(PRODUCE_RESPONSE, (list(topics.items()), NOT_THROTTLED, () if leaders is None else leaders.endpoints))
