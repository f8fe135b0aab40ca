"""An offset store on the logs of a real data directory, without a broker around it."""

from __future__ import annotations

from pathlib import Path

from minibroker.broker.cluster.metadata_cache import GROUP_METADATA_TOPIC
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.offset_loader import LoadedGroup
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep.background import Background
from minibroker.protocol.batches import BatchView, iter_all_records, scan_batches
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log

NOW_MS = 1_500_000_000_000
PRODUCER, EPOCH = 7, 0
# A partition as Apache Kafka 2.0.1 left it: two commits of a "simple" group, of which the second names an expiry; a
# group "readers" that came to one member, committed 7 plainly and 100 in a transaction, 200 in one that was aborted,
# and became empty.
KAFKA_LOG = bytes.fromhex(
    "00000000000000000000006b00000000023c83414c000000000000000001a1fe1224a2000001a1fe1224a2ffffffffffffffffffff000000"
    "0000000001720000002e0001000673696d706c650007666c696768747300000000380001000000000000002a0000000001a1fe1224a00000"
    "01a2221ea8a0000000000000000001000000af000000000275200371000000000001000001a1fe1224b6000001a1fe1224b6ffffffffffff"
    "ffffffff00000000000000027c0000002e0001000673696d706c650007666c696768747300000000420001000000000000002b00056e6f74"
    "6564000001a1fe1224b6000001a1fe12383e007c0000022e0001000673696d706c650007666c696768747300000001420001000000000000"
    "002b00056e6f746564000001a1fe1224b6000001a1fe12383e0000000000000000030000011a0000000002bff6577d000000000000000001"
    "a1fe1224fe000001a1fe1224feffffffffffffffffffffffffffff00000001ce03000000160002000772656164657273aa0300010008636f"
    "6e73756d657200000001000572616e6765002b7265616465722d32336161613165302d306365342d343965662d613664392d333062646264"
    "33316566653200000001002b7265616465722d32336161613165302d306365342d343965662d613664392d33306264626433316566653200"
    "06726561646572000a2f3132372e302e302e31000493e00000afc80000001d0003000000010007666c69676874730000000000000000ffff"
    "ffff00000000001f0000000000010007666c6967687473000000020000000000000001000000000000000000000000040000006c00000000"
    "029dfc62f6000000000000000001a1fe122582000001a1fe122582ffffffffffffffffffff00000000000000017400000030000100077265"
    "61646572730007666c69676874730000000138000100000000000000070000000001a1fe122582000001a2221ea982000000000000000005"
    "0000006c000000000237607157001000000000000001a1fe1227a0000001a1fe1227a0000000000000000000000000000000000001740000"
    "003000010007726561646572730007666c69676874730000000038000100000000000000640000000001a1fe1227a0000001a2221eaba000"
    "0000000000000006000000420000000002afedaced003000000000000001a1fe1227ab000001a1fe1227ab00000000000000000000ffffff"
    "ff000000012000000008000000010c0000000000000000000000000000070000006c0000000002029d1e5c001000000000000001a1fe1227"
    "c3000001a1fe1227c3000000000000000000000000000000000001740000003000010007726561646572730007666c696768747300000000"
    "38000100000000000000c80000000001a1fe1227c3000001a2221eabc30000000000000000080000004200000000027e649dbc0030000000"
    "00000001a1fe1227c7000001a1fe1227c700000000000000000000ffffffff000000012000000008000000000c0000000000000000000000"
    "000000090000005b0000000002dee7b06a000000000000000001a1fe1229bd000001a1fe1229bdffffffffffffffffffffffffffff000000"
    "01520000001600020007726561646572733000010008636f6e73756d657200000002ffffffff0000000000"
)


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
        for partition in range(partitions):
            self.replica_manager.become_leader(partition_of(partition), leader_epoch=0, replicas=[0])
        self.log = CoordinatorLog(
            GROUP_METADATA_TOPIC,
            replica_manager=self.replica_manager,
            create_topic=lambda: partitions,
            partition_count=lambda: partitions or None,
            required_acks=self.config.offsets_commit_required_acks,
            timeout_ms=self.config.offsets_commit_timeout_ms,
        )
        self.store = OffsetStore(self.log, self.config, self.clock)

    def close(self) -> None:
        self.log_manager.close()

    def reopened(self) -> StoreOnDisk:
        self.close()
        return StoreOnDisk(self.directory, **self._arguments)  # type: ignore[arg-type]

    def load(self) -> dict[str, LoadedGroup]:
        return {group.group_id: group for group in self.store.load()}

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

    def bytes_of(self, partition: int = 0) -> bytes:
        return b"".join(
            bytes(data[view.position : view.end_position]) for data, view in self.log.read_batches(partition)
        )

    def append(self, records: bytes | bytearray, partition: int = 0) -> None:
        """Append batches as they come, written by somebody else."""
        assert self.log.append(partition, bytearray(records)) is ErrorCode.NONE

    def end_transaction(self, *, is_commit: bool, producer_id: int = PRODUCER, partition: int = 0) -> None:
        """Append the marker that ends the producer's transaction."""
        control_type = ControlType.COMMIT if is_commit else ControlType.ABORT
        self.append(
            build_end_txn_marker(
                control_type, producer_id=producer_id, producer_epoch=EPOCH, coordinator_epoch=0, timestamp_ms=NOW_MS
            ),
            partition,
        )


def partition_of(number: int) -> TopicPartition:
    return TopicPartition(GROUP_METADATA_TOPIC, number)


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
