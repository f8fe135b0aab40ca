"""Writes the markers that end a transaction in each of its partitions, and completes its committed offsets.

As kafka 2.0.1 KafkaApis.handleWriteTxnMarkersRequest: for this broker's coordinator, and for another broker's that
sends WriteTxnMarkers. The append of a marker moves the log's last stable offset, and completes the fetches that wait
for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.append import AppendResults
from minibroker.broker.replica.leading import ACKS_ALL
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.marker_channels import Errors, Marker, MarkerChannels
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.transaction_records import EPOCHS_PER_TRANSACTION

APPEND_TIMEOUT_MS = 30_000  # request.timeout.ms of Kafka's brokers


class OffsetsCompletion(Protocol):
    """Applies or drops a transaction's offset commits in these partitions of `__consumer_offsets`."""

    def __call__(self, producer_id: int, offsets_partitions: Iterable[int], /, *, is_commit: bool) -> None: ...


class MarkerWriter:
    """Appends markers by `replica_manager`, or has other leaders append them by `channels`; completes offsets by
    `complete_offsets`.

    `leader_of` returns the leader of a partition, None for one that is gone.
    """

    def __init__(
        self,
        replica_manager: ReplicaManager,
        clock: Clock,
        *,
        broker_id: int,
        leader_of: Callable[[TopicPartition], int | None],
        channels: MarkerChannels,
        complete_offsets: OffsetsCompletion,
    ) -> None:
        self._replica_manager = replica_manager
        self._clock = clock
        self._broker_id = broker_id
        self._leader_of = leader_of
        self._channels = channels
        self._complete_offsets = complete_offsets

    def send(self, marker: Marker) -> Errors | Pending[Errors]:
        """Write the marker to all partitions, by their leaders; return the errors by partition, or a Pending of them.

        LEADER_NOT_AVAILABLE for those without a leader that this broker reaches, or whose leader does not know yet that
        it leads. A partition that is gone has UNKNOWN_TOPIC_OR_PARTITION.
        """
        by_leader: defaultdict[int | None, set[TopicPartition]] = defaultdict(set)
        for topic_partition in marker.partitions:
            by_leader[self._leader_of(topic_partition)].add(topic_partition)
        gone = by_leader.pop(None, set())
        outcomes = [self._send_to(leader, marker._replace(partitions=led)) for leader, led in by_leader.items()]
        errors: Errors | Pending[Errors] = dict.fromkeys(gone, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for outcome in outcomes:
            errors = then(errors, partial(with_errors, outcome))
        return errors

    def _send_to(self, leader: int | None, marker: Marker) -> Errors | Pending[Errors]:
        if leader is None or leader == NO_LEADER:
            return dict.fromkeys(marker.partitions, ErrorCode.LEADER_NOT_AVAILABLE)
        written = self.write(marker) if leader == self._broker_id else self._channels.send(leader, marker)
        return then(written, unless_unknown)

    def write(self, marker: Marker) -> Errors | Pending[Errors]:
        """Append the marker to each partition here; return the errors by partition, or a Pending of them.

        UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_FOR_MESSAGE_FORMAT, INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, and the other errors of an append with acks=all.
        """
        batch = self._batch(marker)
        late = set(filter(partial(self._is_late, marker), marker.partitions))
        results = self._replica_manager.append(
            {topic_partition: memoryview(bytearray(batch)) for topic_partition in marker.partitions - late},
            required_acks=ACKS_ALL,
            timeout_ms=APPEND_TIMEOUT_MS,
            is_from_client=False,
        )
        refused = dict.fromkeys(late, ErrorCode.INVALID_PRODUCER_EPOCH)
        return then(results, lambda results: refused | self._on_appended(marker, results))

    def _is_late(self, marker: Marker, topic_partition: TopicPartition) -> bool:
        """Whether a marker of transactions v2 has the epoch of the open transaction, and so ends an earlier one."""
        if marker.transaction_version < EPOCHS_PER_TRANSACTION:
            return False
        partition = self._replica_manager.partitions.any(topic_partition)
        if partition is None or partition.log is None:
            return False
        return partition.log.producer_state.is_in_transaction(marker.producer_id, marker.producer_epoch)

    def _batch(self, marker: Marker) -> bytearray:
        return build_end_txn_marker(
            ControlType.COMMIT if marker.is_commit else ControlType.ABORT,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._clock.wall_ms(),
        )

    def _on_appended(self, marker: Marker, results: AppendResults) -> Errors:
        errors = {topic_partition: result.error for topic_partition, result in results.items()}
        offsets_partitions = [
            topic_partition.partition
            for topic_partition, error in errors.items()
            if error is ErrorCode.NONE and topic_partition.topic == GROUP_METADATA_TOPIC
        ]
        if offsets_partitions:
            self._complete_offsets(marker.producer_id, offsets_partitions, is_commit=marker.is_commit)
        return errors


def with_errors(outcome: Errors | Pending[Errors], known: Errors) -> Errors | Pending[Errors]:
    return then(outcome, lambda errors: known | errors)


def unless_unknown(errors: Errors) -> Errors:
    """The errors of a leader, which may learn later than this broker that it leads; then the marker is to come again.

    As kafka 2.0.1 TransactionMarkerRequestCompletionHandler.
    """
    return {
        each: ErrorCode.LEADER_NOT_AVAILABLE if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error
        for each, error in errors.items()
    }
