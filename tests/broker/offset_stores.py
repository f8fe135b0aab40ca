"""An offset store on the logs of a real data directory, without a broker around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.member import MemberIdentity
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.group.offsets import Commit, Errors, GroupOffsets
from minibroker.broker.pending import Pending
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.replica.decisions import LeaderAndIsr, PartitionState
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep.background import Background
from minibroker.protocol.batches import BatchView, iter_all_records, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC, OffsetRecord
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log

NOW_MS = 1_500_000_000_000
PRODUCER, EPOCH = 7, 0
IN_TRANSACTION: dict[str, Any] = {"producer_id": PRODUCER, "producer_epoch": EPOCH}
GROUP = "readers"
PARTITION, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)
RETENTION_MS = 7 * 24 * 3600 * 1000
# A partition as Apache Kafka 2.0.1 left it: two commits of a "simple" group, of which the second names an expiry; a
# group "readers" that came to one member, committed 7 plainly and 100 in a transaction, 200 in one that was aborted,
# and became empty.
KAFKA_LOG = (Path(__file__).parent.parent / "golden" / "kafka-2.0.1-consumer-offsets.log").read_bytes()


class StandingClock(Clock):
    """A wall clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def monotonic_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return self.now_ms


class StoreOnDisk:
    """`store` on `__consumer_offsets` with a few partitions. `reopened` is what a later broker finds."""

    def __init__(
        self, directory: Path, *, partitions: int = 1, topic_configs: dict[str, str] | None = None, **settings: object
    ) -> None:
        self._arguments = {"partitions": partitions, "topic_configs": topic_configs, **settings}
        self._partitions = partitions
        self.directory = directory
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = KafkaConfig({"log.dirs": str(directory), "broker.id": "0", **given})
        self.clock = StandingClock()
        self.log_manager = LogManager(
            directory,
            default_config=self.config.log_config,
            broker_id=0,
            topic_overrides={GROUP_METADATA_TOPIC: {"cleanup.policy": "compact", **(topic_configs or {})}},
        )
        self.log_manager.load(NOW_MS)
        self.background = Background()
        self.replica_manager = ReplicaManager(
            config=self.config,
            log_manager=self.log_manager,
            timer=Timer(start_ms=0),
            clock=self.clock,
            background=self.background,
        )
        leads = PartitionState(0, 0, (0,), (0,))
        self.replica_manager.partitions.apply(
            LeaderAndIsr(0, 0, {partition_of(partition): leads for partition in range(partitions)})
        )
        self.log = CoordinatorLog(
            GROUP_METADATA_TOPIC,
            replica_manager=self.replica_manager,
            partition_count=lambda: partitions or None,
            clock=self.clock,
            codec=Codec(self.config.offsets_topic_compression_codec),
            required_acks=self.config.offsets_commit_required_acks,
            timeout_ms=self.config.offsets_commit_timeout_ms,
        )
        self.store = OffsetStore(self.log, self.config)

    def close(self) -> None:
        self.log_manager.close()

    def commit(self, *numbers: int, group: str = GROUP, into: GroupOffsets | None = None, **producer: int) -> ErrorCode:
        """Commit these offsets one after the other for PARTITION; the last outcome."""
        offsets = GroupOffsets() if into is None else into
        return [self.commit_all({PARTITION: offset(each)}, group, offsets, **producer) for each in numbers][-1]

    def commit_all(
        self,
        records: dict[TopicPartition, OffsetRecord],
        group: str = GROUP,
        into: GroupOffsets | None = None,
        **producer: int,
    ) -> ErrorCode:
        return error_of(self.store.commit(into or GroupOffsets(), commit_of(group, records, **producer)))

    def reopened(self) -> StoreOnDisk:
        self.close()
        return StoreOnDisk(self.directory, **self._arguments)  # type: ignore[arg-type]

    def load(self) -> dict[str, Any]:
        found = [finished(self.store.load(number)) for number in range(self._partitions)]
        return {group.group_id: group for groups in found for group in groups}

    def log_of(self, partition: int = 0) -> Log:
        return self.log.log_of(partition)

    def batches(self, partition: int = 0) -> list[BatchView]:
        return [view for _, view in self.log.read_batches(partition)]

    def records(self, partition: int = 0) -> list[Record]:
        return [
            record
            for data, view in self.log.read_batches(partition)
            for record in iter_all_records(data, view, max_decompressed_bytes=1 << 20)
        ]

    def append(self, records: bytes | bytearray, partition: int = 0) -> None:
        """Append batches as they come, written by somebody else."""
        where = partition_of(partition)
        results = self.replica_manager.append(
            {where: memoryview(bytearray(records))}, required_acks=1, timeout_ms=0, is_from_client=False
        )
        assert not isinstance(results, Pending) and results[where].error is ErrorCode.NONE

    def end_transaction(self, *, is_commit: bool, producer_id: int = PRODUCER, partition: int = 0) -> None:
        """Append the marker that ends the producer's transaction."""
        control_type = ControlType.COMMIT if is_commit else ControlType.ABORT
        self.append(
            build_end_txn_marker(
                control_type, producer_id=producer_id, producer_epoch=EPOCH, coordinator_epoch=0, timestamp_ms=NOW_MS
            ),
            partition,
        )


def finished(steps: Iterator[None]) -> Any:
    """Run steps to their end; return their value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def commit_of(group_id: str, records: dict[TopicPartition, OffsetRecord], **producer: int) -> Commit:
    return Commit(group_id, MemberIdentity(""), dict(records), {}, **producer)


def error_of(outcome: Errors | Pending[Errors]) -> ErrorCode:
    """The error of all partitions of a commit that has ended."""
    assert not isinstance(outcome, Pending)
    (error,) = set(outcome.values())
    return error


def partition_of(number: int) -> TopicPartition:
    return TopicPartition(GROUP_METADATA_TOPIC, number)


def as_read(record: OffsetRecord) -> OffsetRecord:
    """A commit without an expiry of its own as it is read again: the log always names one."""
    return record._replace(expire_timestamp_ms=record.commit_timestamp_ms + RETENTION_MS)


def offset(number: int, *, leader_epoch: int = -1, expire_timestamp_ms: int | None = None) -> OffsetRecord:
    return OffsetRecord(number, leader_epoch, "", NOW_MS, expire_timestamp_ms)


def recorded_batch(base_offset: int) -> bytes:
    """A batch of KAFKA_LOG, as the first of a log."""
    (batch,) = (
        data[view.position : view.end_position] for data, view in views(KAFKA_LOG) if view.base_offset == base_offset
    )
    return bytes(8) + batch[8:]


def views(data: bytes) -> list[tuple[bytes, BatchView]]:
    """Every batch of the bytes of a log."""
    return [(data, view) for view in scan_batches(data, 0, len(data))]
