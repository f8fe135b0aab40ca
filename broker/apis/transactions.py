"""The APIs of transactional producers, and WriteTxnMarkers of other coordinators.

InitProducerId, TxnOffsetCommit v0-v6 · AddPartitionsToTxn, EndTxn v0-v5 · AddOffsetsToTxn v0-v4 · WriteTxnMarkers
v0-v2.
Behavior: as kafka 2.0.1 KafkaApis; AddPartitionsToTxn adds none if one of the partitions does not exist.
Version notes: InitProducerId v3 has the producer's previous identity (KIP-360), v4 knows PRODUCER_FENCED, which the
others know from v2; TxnOffsetCommit v3 has the group member that consumed the records (KIP-447); AddPartitionsToTxn v4
is of other brokers, which add partitions to several transactions, or ask whether they are in them; of transactions v2
(KIP-890) are EndTxn v5, which has the epoch of the next one, and TxnOffsetCommit v5, which adds the group's partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.known_errors import known_code
from minibroker.broker.apis.offsets import unknown_topic
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.features import Features
from minibroker.broker.cluster.metadata_cache import INTERNAL_TOPICS, MetadataCache
from minibroker.broker.config.profiles import EVERYTHING, Habit, Profile
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.member import MemberIdentity
from minibroker.broker.group.offsets import Commit
from minibroker.broker.pending import Pending, then
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.coordinator import Identified, TransactionCoordinator
from minibroker.broker.transaction.marker_channels import Errors, Marker
from minibroker.broker.transaction.markers import MarkerWriter
from minibroker.broker.transaction.participation import Participation
from minibroker.broker.transaction.transaction import NO_PRODUCER, ProducerIdentity
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC, OffsetRecord
from minibroker.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
    WriteTxnMarkersResponse,
)
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import NO_SEQUENCE
from minibroker.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation
from minibroker.protocol.transaction_records import EPOCHS_PER_TRANSACTION

FIRST_VERSION_WITH_EPOCHS: int = EndTxnResponse.field("producer_epoch").first
FIRST_VERIFIED_COMMIT = API_TABLE[ApiKey.TXN_OFFSET_COMMIT].last_of_2_0 + 1  # as kafka 3.6
FIRST_COMMIT_THAT_ADDS = 5
FIRST_VERSION_OF_BROKERS: int = AddPartitionsToTxnRequest.field("transactions").first  # clients stay below
ADDED_ROW = AddPartitionsToTxnResponse.row("transactions")

Body = Any
MarkersOfProducer = dict[int, Errors]


class TransactionApis:
    """Handlers of the APIs that change a transaction."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        markers: MarkerWriter,
        groups: GroupCoordinator,
        metadata_cache: MetadataCache,
        clock: Clock,
        participation: Participation,
        features: Features,
        profile: Profile = EVERYTHING,
    ) -> None:
        self._first_verified_commit = profile.first_of(FIRST_VERIFIED_COMMIT)
        self._adds_missing_partitions = Habit.ADDS_MISSING_PARTITIONS in profile.habits
        self._participation = participation
        self._features = features
        self._coordinator = coordinator
        self._markers = markers
        self._groups = groups
        self._metadata_cache = metadata_cache
        self._clock = clock

    def routes(self) -> Routes:
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets_to_txn,
            ApiKey.END_TXN: self.end_txn,
            ApiKey.WRITE_TXN_MARKERS: self.write_txn_markers,
            ApiKey.TXN_OFFSET_COMMIT: self.txn_offset_commit,
        }

    def init_producer_id(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        if body.transactional_id is None and not client.may(
            Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        expected: ProducerIdentity | None = ProducerIdentity(body.producer_id, body.producer_epoch)
        if expected == NO_PRODUCER:
            expected = None
        elif body.producer_id == NO_PRODUCER_ID or body.producer_epoch == NO_PRODUCER_EPOCH:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)  # one without the other
        if body.transactional_id is not None and (body.enable_2pc or body.keep_prepared_txn):  # which are off, as there
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if body.enable_2pc else ErrorCode.UNSUPPORTED_VERSION
            return InitProducerIdResponse(error_code=code)

        def answer(result: Identified) -> Body:
            producer_id, epoch = result.producer
            error = known_code(ApiKey.INIT_PRODUCER_ID, request.api_version, result.error)
            return InitProducerIdResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)

        outcome = self._coordinator.initialize(body.transactional_id, body.transaction_timeout_ms, expected)
        return then(outcome, answer)

    def add_partitions_to_txn(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        if request.api_version >= FIRST_VERSION_OF_BROKERS:
            return self._add_for_brokers(request)
        partitions = partitions_of(body.topics)
        refused = {each: error for each in partitions if (error := self._refusal(client, each)) is not None}
        if refused:
            errors = {each: refused.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
            return AddPartitionsToTxnResponse(topics=rows_of(errors))
        outcome = self._coordinator.add_partitions(body.transactional_id, producer_of(body), partitions.keys())

        def answer(error: ErrorCode) -> Body:
            error = known_code(ApiKey.ADD_PARTITIONS_TO_TXN, request.api_version, error)
            return AddPartitionsToTxnResponse(topics=rows_of(dict.fromkeys(partitions, error)))

        return then(outcome, answer)

    def _add_for_brokers(self, request: Request) -> Body | Pending[Body]:
        """Add partitions to several transactions, or look whether they are there; answer each by itself."""
        rows: list[Body] = []
        outcome: Body | Pending[Body] = AddPartitionsToTxnResponse(transactions=rows)
        for row in request.body.transactions:
            outcome = then(outcome, partial(self._add_row, row, rows))
        return outcome

    def _add_row(self, row: Body, rows: list[Body], answer: Body) -> Body | Pending[Body]:
        partitions = partitions_of(row.topics)
        missing = [each for each in partitions if not self._exists(each)]

        def add(errors: Errors) -> Body:
            rows.append(ADDED_ROW(row.transactional_id, rows_of(errors)))
            return answer

        if missing:
            errors = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            return add(errors | dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if row.verify_only:
            return add(self._coordinator.verify(row.transactional_id, producer_of(row), partitions.keys()))
        outcome = self._coordinator.add_partitions(
            row.transactional_id, producer_of(row), partitions.keys(), EPOCHS_PER_TRANSACTION
        )
        return then(outcome, lambda error: add(dict.fromkeys(partitions, error)))

    def _refusal(self, client: Client, topic_partition: TopicPartition) -> ErrorCode | None:
        topic = topic_partition.topic
        if topic in INTERNAL_TOPICS or not client.may(Operation.WRITE, ResourceType.TOPIC, topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        may_miss = self._adds_missing_partitions and topic in self._metadata_cache.topics
        return None if may_miss or self._exists(topic_partition) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _exists(self, topic_partition: TopicPartition) -> bool:
        topic = self._metadata_cache.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def add_offsets_to_txn(self, request: Request, client: Client) -> Body | Pending[Body]:
        """Add the group's partition of `__consumer_offsets` to the transaction."""
        body = request.body
        partition = self._offsets_partition(body.group_id)
        outcome = self._coordinator.add_partitions(body.transactional_id, producer_of(body), frozenset({partition}))
        return then(outcome, partial(answer_with, request))

    def _offsets_partition(self, group_id: str) -> TopicPartition:
        return TopicPartition(GROUP_METADATA_TOPIC, self._groups.partition_for(group_id))

    def end_txn(self, request: Request, client: Client) -> Body | Pending[Body]:
        body = request.body
        has_epochs = request.api_version >= FIRST_VERSION_WITH_EPOCHS
        if has_epochs and not self._features.allows_transactions_v2:
            return EndTxnResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)

        def answer(result: Identified) -> Body:
            error = known_code(ApiKey.END_TXN, request.api_version, result.error)
            producer_id, epoch = result.producer
            return EndTxnResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)

        outcome = self._coordinator.end(
            body.transactional_id,
            producer_of(body),
            is_commit=body.is_commit,
            client_version=EPOCHS_PER_TRANSACTION if has_epochs else 0,
        )
        return then(outcome, answer)

    def txn_offset_commit(self, request: Request, client: Client) -> Body | Pending[Body]:
        """Commit offsets that count once the transaction commits; refuse those of unknown partitions."""
        body = request.body
        now_ms = self._clock.wall_ms()
        commits = {
            TopicPartition(topic, row.partition): OffsetRecord(
                row.offset, row.leader_epoch, row.metadata or "", now_ms, None
            )
            for topic, partitions in body.topics
            for row in partitions
        }
        refused = {each: unknown_topic(each.topic) for each in commits if not self._exists(each)}
        for topic_partition in refused:
            del commits[topic_partition]

        version = request.api_version

        def answer(errors: Errors) -> Body:
            known = {each: known_code(ApiKey.TXN_OFFSET_COMMIT, version, error) for each, error in errors.items()}
            return TxnOffsetCommitResponse(topics=rows_of(known | refused))

        if not commits:
            return answer({})
        identity = MemberIdentity(body.member_id, body.group_instance_id, body.generation_id)
        commit = Commit(body.group_id, identity, commits, {}, body.producer_id, body.producer_epoch)

        def store(errors: Errors) -> Body | Pending[Body]:
            error = next(iter(errors.values()), ErrorCode.NONE)
            if error is ErrorCode.NOT_ENOUGH_REPLICAS:
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if error is not ErrorCode.NONE:
                return answer(commit.ended_with(error))
            return then(self._groups.offsets.commit_transactional(commit), answer)

        if version < self._first_verified_commit:
            return store({})
        refusal = self._groups.offsets.admit_transactional(body.group_id)
        if refusal is not ErrorCode.NONE:
            return answer(commit.ended_with(refusal))
        sequences = {self._offsets_partition(body.group_id): NO_SEQUENCE}
        adds = version >= FIRST_COMMIT_THAT_ADDS
        return then(self._participation.admit(body.transactional_id, producer_of(body), sequences, adds=adds), store)

    def write_txn_markers(self, request: Request, client: Client) -> Body | Pending[Body]:
        """Write the markers of another coordinator, one after the other; answer by producer id, as Kafka does.

        Raises KafkaError(UNKNOWN_SERVER_ERROR) for a negative producer id or epoch.
        """
        if any(row.producer_id < 0 or row.producer_epoch < 0 for row in request.body.markers):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker has a negative producer id or epoch")
        outcome: MarkersOfProducer | Pending[MarkersOfProducer] = {}
        for row in request.body.markers:
            partitions = frozenset(partitions_of(row.topics))
            of_producer = row.producer_id, row.producer_epoch, row.coordinator_epoch
            marker = Marker(*of_producer, row.is_commit, partitions, row.transaction_version)
            outcome = then(outcome, partial(self._write_marker, marker))
        return then(outcome, markers_answer)

    def _write_marker(self, marker: Marker, known: MarkersOfProducer) -> MarkersOfProducer | Pending[MarkersOfProducer]:
        def add(errors: Errors) -> MarkersOfProducer:
            if errors:
                known.setdefault(marker.producer_id, {}).update(errors)
            return known

        return then(self._markers.write(marker), add)


def answer_with(request: Request, error: ErrorCode) -> Body:
    """The answer of an API that has an error code and nothing else."""
    code = known_code(request.api_key, request.api_version, error)
    return API_TABLE[request.api_key].response(error_code=code)


def producer_of(body: Body) -> ProducerIdentity:
    return ProducerIdentity(body.producer_id, body.producer_epoch)


def partitions_of(topics: Iterable[Any]) -> dict[TopicPartition, None]:
    """The partitions, each once, in the order of the request."""
    return {TopicPartition(name, partition): None for name, partitions in topics for partition in partitions}


def rows_of(errors: Errors) -> list[Any]:
    """Group errors by topic, for a response: the partitions of each topic and their errors."""
    topics: dict[str, list[Any]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(topic, []).append((partition, error))
    return list(topics.items())


def markers_answer(errors: MarkersOfProducer) -> Body:
    return WriteTxnMarkersResponse(
        markers=[(producer_id, rows_of(by_partition)) for producer_id, by_partition in errors.items()]
    )
