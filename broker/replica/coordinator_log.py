"""The internal topic in which a coordinator keeps its state: appends to it, and reads it when this broker leads it.

The hash of a group's or a transactional id's name gives its partition, as in Kafka, so that both can use the same data
directory. The broker itself appends (`is_from_client=False`): it may write internal topics, and a transactional commit
needs no sequence numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep.background import Steps
from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import build_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.java_hash import abs_of, java_hash
from minibroker.protocol.primitives import TopicPartition, new
from minibroker.protocol.record import NO_OFFSET, NO_SEQUENCE, Headers, Record
from minibroker.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log

Contents = tuple[bytes, bytes | None, Headers]  # key, value and headers of a record

RETRY_SECONDS = 1.0  # after an error of the disk
COMMIT_POLL_SECONDS = 0.005
LOAD_BYTES = 5 * 1024 * 1024  # read at a time


def partition_of_name(name: str, partition_count: int) -> int:
    """The partition that keeps a group or transactional id."""
    return abs_of(java_hash(name)) % partition_count


class Appended(NamedTuple):
    """An append: the offset of its first record, -1 for none; and its error, which may wait for `required_acks`."""

    offset: int
    error: ErrorCode | Pending[ErrorCode]


class CoordinatorLog:
    """One internal topic; `partition_count` is None until it exists."""

    def __init__(
        self,
        topic: str,
        *,
        replica_manager: ReplicaManager,
        partition_count: Callable[[], int | None],
        clock: Clock,
        codec: Codec,
        required_acks: int,
        timeout_ms: int,
    ) -> None:
        self.topic = topic
        self._replica_manager = replica_manager
        self._partition_count = partition_count
        self._clock = clock
        self._codec = codec
        self._required_acks = required_acks
        self._timeout_ms = timeout_ms

    @property
    def log_manager(self) -> LogManager:
        return self._replica_manager.log_manager

    def partition_for(self, name: str) -> int | None:
        """The partition of a group or transactional id; None until the topic exists."""
        count = self._partition_count()
        return None if count is None else partition_of_name(name, count)

    def end_for(self, name: str) -> int:
        """The end of the log that keeps a group or transactional id; 0 if this broker does not lead it."""
        partition = self.partition_for(name)
        try:
            return 0 if partition is None else self.log_of(partition).log_end_offset
        except KafkaError:
            return 0

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which this broker leads the partition. Raises KafkaError."""
        return self._replica_manager.partitions.led(TopicPartition(self.topic, partition)).leader_epoch

    def log_of(self, partition: int) -> Log:
        """The partition's log, for its format and its end. Raises KafkaError."""
        return self._replica_manager.partitions.led(TopicPartition(self.topic, partition)).log

    def append(
        self,
        name: str,
        batches: Iterable[Iterable[Contents]],
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> Appended:
        """Append the batches of a group or transactional id at once, in the topic's format, which may have no headers.

        The error is NOT_LEADER_FOR_PARTITION without a leader here, UNSUPPORTED_FOR_MESSAGE_FORMAT for the batches of a
        producer in an old format, or that of the append.
        """
        partition = self.partition_for(name)
        try:
            if partition is None:
                raise KafkaError(ErrorCode.NOT_LEADER_FOR_PARTITION)
            log = self.log_of(partition)
        except KafkaError:
            return Appended(NO_OFFSET, ErrorCode.NOT_LEADER_FOR_PARTITION)
        magic, offset = log.config.magic, log.log_end_offset
        if magic < 2 and producer_id != NO_PRODUCER_ID:
            return Appended(NO_OFFSET, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        now_ms = self._clock.wall_ms()
        data = bytearray()
        for contents in batches:
            data += build_records(
                [new(Record, (number, now_ms, *each, NO_SEQUENCE)) for number, each in enumerate(contents)],
                magic=magic,
                base_offset=0,
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                is_transactional=producer_id != NO_PRODUCER_ID,
            )
        topic_partition = log.topic_partition
        results = self._replica_manager.append(
            {topic_partition: memoryview(data)},
            required_acks=self._required_acks,
            timeout_ms=self._timeout_ms,
            is_from_client=False,
        )
        return Appended(offset, then(results, lambda results: results[topic_partition].error))

    def read_batches(
        self, partition: int, load_bytes: int = LOAD_BYTES, start: int = 0
    ) -> Iterator[tuple[memoryview | bytes, BatchView]]:
        """Yield each batch of the log from the one with the offset `start`, with its buffer. Raises KafkaError.

        Beyond the high watermark too, which a new leader learns late: what clients were acknowledged may be there. So
        is what is appended while batches are read, such as a marker of another coordinator. As kafka 2.0.1
        GroupMetadataManager.doLoadGroupsAndOffsets and TransactionStateManager.loadTransactionMetadata.
        """
        log = self.log_of(partition)
        offset = max(start, log.log_start_offset)
        while offset < log.log_end_offset:
            records = log.read(offset, load_bytes, min_one_message=True).records
            data = records if isinstance(records, bytes) else records.read()
            if not data:
                return
            for view in scan_batches(data, 0, len(data)):
                if view.next_offset > offset:
                    yield data, view
                offset = max(offset, view.next_offset)


class OwnedPartitions:
    """The partitions of a coordinator's topic that this broker leads, each loaded before it is served.

    `load` returns the steps of loading one, whose last one takes what was read; `unload` drops that. `run_steps` runs
    the steps, between which other tasks may run.

    With `waits_for_commit` a partition is served once all that was read is committed: where a repeated request is
    answered without an append, the answer must not count on a record that may be lost.
    """

    def __init__(
        self,
        log: CoordinatorLog,
        *,
        load: Callable[[int], Iterator[None]],
        unload: Callable[[int], None],
        run_steps: Callable[[Steps], None],
        waits_for_commit: bool = False,
    ) -> None:
        self._log = log
        self._waits_for_commit = waits_for_commit
        self._topic = log.topic
        self._partition_for = log.partition_for
        self._load = load
        self._unload = unload
        self._run_steps = run_steps
        self._loaded: set[int] = set()
        self._loading: dict[int, object] = {}  # each with what stands for the attempt

    def refusal(self, name: str) -> ErrorCode:
        """Return NONE, or why this broker does not coordinate the group or transactional id.

        Once its log directory is offline it coordinates nothing: the log may have what an append was refused for, and
        the next start goes on from there. Kafka 2.0.1 without another directory halts.
        """
        partition = self._partition_for(name)
        if self._log.log_manager.is_offline:
            return ErrorCode.NOT_COORDINATOR
        if partition in self._loaded:
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if partition in self._loading else ErrorCode.NOT_COORDINATOR

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def on_leadership(self, topic_partition: TopicPartition, is_leader: bool) -> None:
        """Load the partition, or unload it; others than those of the topic do not matter."""
        if topic_partition.topic != self._topic:
            return
        partition = topic_partition.partition
        self._loading.pop(partition, None)
        if partition in self._loaded:
            self._loaded.remove(partition)
            self._unload(partition)
        if is_leader:
            self._loading[partition] = attempt = object()
            self._run_steps(self._serve(partition, attempt))

    def _serve(self, partition: int, attempt: object) -> Steps:
        for pause_seconds in self._load_again(partition):
            yield pause_seconds
            if self._loading.get(partition) is not attempt:
                return  # it was lost meanwhile
        del self._loading[partition]
        self._loaded.add(partition)

    def _load_again(self, partition: int) -> Steps:
        """Load a partition until the disk lets it be read: a broker without it would show that nothing was stored."""
        while True:
            try:
                yield from self._load(partition)
                break
            except OSError as error:
                self._log.log_manager.on_storage_error(error)
                yield RETRY_SECONDS
            while self._log.log_manager.is_offline:
                yield RETRY_SECONDS
        if self._waits_for_commit:
            yield from self._until_committed(partition)

    def _until_committed(self, partition: int) -> Steps:
        try:
            log = self._log.log_of(partition)
        except KafkaError:  # it is led no more
            return
        end = log.log_end_offset
        while log.high_watermark < end:
            yield COMMIT_POLL_SECONDS
