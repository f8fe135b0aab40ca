"""The topic `_schemas`: written by appends that wait for all replicas, read up to its end before each answer.

So the registry has no state but what the topic says: records that another program has written count at once, and a
topic that was deleted leaves an empty registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from minibroker.broker.cluster.topic_changes import NewTopic, result_of
from minibroker.broker.parts import BrokerParts
from minibroker.broker.pending import Pending
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.replica.leading import ACKS_ALL
from minibroker.broker.wings.registry.records import TOPIC, Contents
from minibroker.protocol.batches import iter_all_records
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.log.log import Log

TIMEOUT_MS = 30_000
MAX_BATCH_BYTES = 1 << 26  # once decompressed
CONFIGS: Mapping[str, str] = {"cleanup.policy": "compact"}


class SchemaLog:
    """`contents` is what the topic says; call `read` first."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._topic = CoordinatorLog(
            TOPIC,
            replica_manager=parts.replica_manager,
            partition_count=partial(parts.metadata_cache.partition_count, TOPIC),
            clock=parts.timers.clock,
            codec=Codec.NONE,
            required_acks=ACKS_ALL,
            timeout_ms=TIMEOUT_MS,
        )
        self._led: tuple[Log, int] | None = None  # and in which epoch: another leader may have written meanwhile
        self._offset = 0  # of the next record to read
        self.contents = Contents()

    def read(self) -> Contents:
        """Read what was appended since the last time. Raises KafkaError."""
        count = self._parts.metadata_cache.partition_count(TOPIC)
        if count not in (None, 1):
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"{TOPIC} has {count} partitions; it must have one")
        led = None if count is None else (self._topic.log_of(0), self._topic.leader_epoch(0))
        if led != self._led:
            self._led, self._offset, self.contents = led, 0, Contents()
        if led is not None:
            for data, view in self._topic.read_batches(0, start=self._offset):
                if not view.is_control:
                    for record in iter_all_records(data, view, max_decompressed_bytes=MAX_BATCH_BYTES):
                        if record.offset >= self._offset:
                            self.contents.apply(record.key, record.value)
                self._offset = view.next_offset
        return self.contents

    def create(self) -> None:
        """Make the topic, unless it is there. Raises KafkaError."""
        if self._parts.metadata_cache.partition_count(TOPIC) is None:
            is_alone = self._parts.options.cluster_dir is None
            replicas = 1 if is_alone else self._parts.config.default_replication_factor
            result_of(self._parts.topic_admin.create_topics([NewTopic(TOPIC, 1, replicas, {}, CONFIGS)])[TOPIC])

    async def write(self, records: Mapping[bytes, bytes | None]) -> None:
        """Append records in one batch; return once all replicas have them, and they were read. Raises KafkaError."""
        self.create()
        rows = [(key, value, ()) for key, value in records.items()]
        error = self._topic.append(TOPIC, [rows]).error
        code = await error.wait() if isinstance(error, Pending) else error
        if code != ErrorCode.NONE:
            raise KafkaError(code)
        self.read()
