"""The dead-letter queue of a share group (KIP-1191): records that are not delivered any more go to another topic.

As kafka 4.4 ShareGroupDLQStateManager: headers say where a record was, and why it is here; its key and value are copied
where the group's configs say so. A record goes to the partition of its number, modulo the topic's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from minibroker.broker.cluster.state import TopicState
from minibroker.broker.cluster.topic_changes import NewTopic, result_of
from minibroker.broker.group.group_configs import COPIES_DEAD_LETTERS, DEAD_LETTER_TOPIC, GroupConfigs
from minibroker.broker.parts import BrokerParts
from minibroker.broker.pending import Pending, then
from minibroker.broker.wings.share.asking import Asking
from minibroker.broker.wings.share.partition import Archived, Run
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.conversion import build_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition, new
from minibroker.protocol.record import NO_SEQUENCE, Headers, Record
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.files.storage_errors import map_storage_errors

logger = logging.getLogger(__name__)

READ_BYTES = 1024 * 1024  # of the records that are copied, at a time
MAX_BATCH_BYTES = 100 * 1024 * 1024  # once decompressed
PREFIX = "__dlq.errors."
ENABLED = "errors.deadletterqueue.group.enable"  # of the queue's topic
MAGIC = 2
REJECTED = "The record was rejected by a consumer."
TOO_OFTEN = "The record has reached its delivery count limit."


class DeadLetters:
    """Writes dead letters; one that cannot be written is logged, and lost to the queue."""

    def __init__(self, parts: BrokerParts, asking: Asking, configs: GroupConfigs) -> None:
        self._replicas, self._state, self._admin = parts.replica_manager, parts.state, parts.topic_admin
        self._config, self._clock = parts.config, parts.timers.clock
        self._asking = asking
        self._configs = configs

    def put(self, group_id: str, topic_partition: TopicPartition, archived: Sequence[Archived]) -> Pending[None] | None:
        """Put these records into the group's queue, if it has one; end once they are written, or cannot be."""
        name = self._configs.text(group_id, DEAD_LETTER_TOPIC)
        if not name or not archived:
            return None
        try:
            topic = self._queue(name)
            letters = [letter for each in archived for letter in self._letters(group_id, topic_partition, *each)]
        except KafkaError as error:
            logger.warning("group %s: cannot write dead letters to %s: %s", group_id, name, error)
            return None
        target = TopicPartition(name, topic_partition.partition % len(topic.partitions))
        data = bytes(build_records(letters, magic=MAGIC, base_offset=0))

        def check(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("group %s: cannot write dead letters to %s: %s", group_id, target, error.name)

        return then(self._asking.produce(target, data), check)

    def _queue(self, name: str) -> TopicState:
        """The topic, created if that is asked for. Raises KafkaError where it may not be a queue."""
        prefix = self._config.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"its name does not begin with {prefix}")
        topic = self._state.topics.get(name)
        if topic is None:
            if not self._config.errors_deadletterqueue_auto_create_topics_enable:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "it does not exist")
            counts = self._config.num_partitions, self._config.default_replication_factor
            topic = result_of(self._admin.create_topics([NewTopic(name, *counts, {}, {ENABLED: "true"})])[name])
        if topic.configs.get(ENABLED, "false").lower() != "true":
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"it does not have {ENABLED}=true")
        return topic

    def _letters(self, group_id: str, topic_partition: TopicPartition, run: Run, is_rejected: bool) -> list[Record]:
        now_ms = self._clock.wall_ms()
        copied = self._copied(topic_partition, run) if self._configs.is_on(group_id, COPIES_DEAD_LETTERS) else {}
        letters = []
        for number, offset in enumerate(range(run.first, run.last + 1)):
            record = copied.get(offset)
            headers: Headers = (
                (PREFIX + "topic", topic_partition.topic.encode()),
                (PREFIX + "partition", str(topic_partition.partition).encode()),
                (PREFIX + "offset", str(offset).encode()),
                (PREFIX + "group", group_id.encode()),
                (PREFIX + "delivery.count", str(run.delivery_count).encode()),
                (PREFIX + "message", (REJECTED if is_rejected else TOO_OFTEN).encode()),
            )
            key, value, own = (None, None, ()) if record is None else (record.key, record.value, record.headers)
            letters.append(new(Record, (number, now_ms, key, value, (*own, *headers), NO_SEQUENCE)))
        return letters

    def _copied(self, topic_partition: TopicPartition, run: Run) -> dict[int, Record]:
        """The records of a run that are still in the log, by offset. Raises KafkaError."""
        log = self._replicas.partitions.led(topic_partition).log
        found: dict[int, Record] = {}
        offset = max(run.first, log.log_start_offset)
        while offset <= run.last:
            with map_storage_errors(self._replicas.log_manager):
                records = log.read(offset, READ_BYTES, min_one_message=True).records
                data = records.read() if isinstance(records, FileSlice) else records
            if not data:
                break
            for view in scan_batches(data, 0, len(data)):
                offset = max(offset, view.next_offset)
                if not view.is_control:
                    for record in iter_all_records(data, view, max_decompressed_bytes=MAX_BATCH_BYTES):
                        if run.first <= record.offset <= run.last:
                            found[record.offset] = record
        return found
