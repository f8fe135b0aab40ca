"""The internal topic in which a coordinator keeps its state: appends to it, and reads it again at the start.

The hash of a group's or a transactional id's name gives its partition, as in Kafka, so that both can use the same data
directory. The broker itself appends (`is_from_client=False`): it may write internal topics, and a transactional commit
needs no sequence numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import LONG_NAME
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log

LOAD_BYTES = 5 * 1024 * 1024  # read at a time
NAMES_REMEMBERED = 1024  # groups and transactional ids of which the hash is known


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, as a signed 32-bit integer."""
    return _remembered_hash(text) if len(text) <= LONG_NAME else _java_hash(text)


def _java_hash(text: str) -> int:
    value = 0
    units = memoryview(text.encode("utf-16", "surrogatepass")).cast("H")[1:]  # native byte order, after a mark
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


_remembered_hash = lru_cache(maxsize=NAMES_REMEMBERED)(_java_hash)


class CoordinatorLog:
    """One internal topic. `create_topic` creates it at its first use; `partition_count` is None until then."""

    def __init__(
        self,
        topic: str,
        *,
        replica_manager: ReplicaManager,
        create_topic: Callable[[], int],
        partition_count: Callable[[], int | None],
        required_acks: int,
        timeout_ms: int,
    ) -> None:
        self.topic = topic
        self._replica_manager = replica_manager
        self._create_topic = create_topic
        self._existing_partitions = partition_count
        self._required_acks = required_acks
        self._timeout_ms = timeout_ms

    def ensure_topic(self) -> int:
        """Create the topic if it does not exist; return its number of partitions. Raises KafkaError."""
        return self._existing_partitions() or self._create_topic()

    def partition_for(self, name: str) -> int | None:
        """The partition of a group or transactional id; None until the topic exists."""
        count = self._existing_partitions()
        return None if count is None else abs_of(java_hash(name)) % count

    def partitions(self) -> range:
        return range(self._existing_partitions() or 0)

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which this broker leads the partition. Raises KafkaError."""
        return self._replica_manager.partitions.led(TopicPartition(self.topic, partition)).leader_epoch

    def log_of(self, partition: int) -> Log:
        """The partition's log, for its format and its end. Raises KafkaError."""
        return self._replica_manager.partitions.led(TopicPartition(self.topic, partition)).log

    def append(self, partition: int, records: bytearray) -> ErrorCode | Pending[ErrorCode]:
        """Append one batch or more; return the outcome, or a Pending of it while `required_acks` are missing."""
        topic_partition = TopicPartition(self.topic, partition)
        results = self._replica_manager.append(
            {topic_partition: memoryview(records)},
            required_acks=self._required_acks,
            timeout_ms=self._timeout_ms,
            is_from_client=False,
        )
        return then(results, lambda results: results[topic_partition].error)

    def read_batches(
        self, partition: int, load_bytes: int = LOAD_BYTES
    ) -> Iterator[tuple[memoryview | bytes, BatchView]]:
        """Yield each batch from the log's start to its high watermark, with its buffer. Raises KafkaError."""
        log = self.log_of(partition)
        offset, end = log.log_start_offset, log.high_watermark
        while offset < end:
            records = log.read(offset, load_bytes, max_offset=end, min_one_message=True).records
            data = records if isinstance(records, bytes) else records.read()
            if not data:
                return
            for view in scan_batches(data, 0, len(data)):
                if view.next_offset > offset:
                    yield data, view
                offset = max(offset, view.next_offset)


def abs_of(value: int) -> int:
    """As kafka 2.0.1 Utils.abs: 0 for the least integer, which has no positive counterpart."""
    return 0 if value == -(2**31) else abs(value)
