"""Loads a partition of `__consumer_offsets` from its start: the groups, and the offsets of each.

As kafka 2.0.1 GroupMetadataManager.loadGroupsAndOffsets: the last record of a key counts, and offsets of a transaction
wait for its marker. A tombstone removes the key from open transactions too, as the removal did that wrote it. The
loader skips unreadable records and batches, and logs one line; Kafka would load none of the partition's groups.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from minibroker.broker.group.group import Group
from minibroker.broker.group.group_kind import AnyGroup, GroupKind
from minibroker.broker.group.offsets import GroupOffsets
from minibroker.protocol.batches import BatchView, iter_all_records
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.group_records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    UnreadableRecordError,
    read_group,
    read_key,
    read_offset,
)
from minibroker.protocol.record import Record
from minibroker.protocol.text import counted

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 100 * 1024 * 1024  # once decompressed


class OffsetLoader:
    """Reads the batches of one partition, in their order; `groups` returns the result.

    `kinds` read the records of groups that are not classic: LoadedGroups is what they see of it.
    """

    def __init__(self, partition_name: str, kinds: Iterable[GroupKind] = ()) -> None:
        self._partition_name = partition_name
        self._kinds = list(kinds)
        self._records: dict[str, GroupRecord] = {}  # of classic groups
        self._others: dict[str, AnyGroup] = {}
        self._offsets: defaultdict[str, GroupOffsets] = defaultdict(GroupOffsets)
        self._groups_of_producer: defaultdict[int, set[str]] = defaultdict(set)
        self._unreadable_count = 0
        self._first_unreadable = ""

    def read(self, batches: Iterator[tuple[memoryview | bytes, BatchView]]) -> Iterator[None]:
        """Read all batches, a buffer in each step; if reading the log fails, those before count."""
        last: object = None
        try:
            for buffer, batch in batches:
                if last is not None and buffer is not last:
                    yield
                last = buffer
                self._read_batch(buffer, batch)
        except KafkaError as error:
            logger.error("cannot read %s any further: %s", self._partition_name, error)
        if self._unreadable_count:
            logger.warning(
                "%s: skipped %s, the first %s",
                self._partition_name,
                counted(self._unreadable_count, "unreadable record"),
                self._first_unreadable,
            )

    def groups(self) -> list[AnyGroup]:
        """Return the stored groups, and the groups that have only offsets."""
        stored: list[AnyGroup] = [
            Group.from_record(group_id, record, self._offsets[group_id]) for group_id, record in self._records.items()
        ]
        return [
            *stored,
            *self._others.values(),
            *(
                Group.from_record(group_id, None, offsets)
                for group_id, offsets in self._offsets.items()
                if group_id not in self._records and group_id not in self._others and not offsets.is_empty
            ),
        ]

    def other(self, group_id: str, make: Callable[[str, GroupOffsets], AnyGroup] | None) -> Any:
        """The group of a kind beside classic; if there is none, `make` one in place of a classic one, else None."""
        if group_id not in self._others and make is not None:
            self._others[group_id] = make(group_id, self._offsets[group_id])
            self._records.pop(group_id, None)
        return self._others.get(group_id)

    def drop_other(self, group_id: str) -> None:
        """Forget a group whose last record is a tombstone; its committed offsets stay."""
        self._others.pop(group_id).offsets.forget_idle_producers()

    def _read_batch(self, buffer: memoryview | bytes, batch: BatchView) -> None:
        try:
            records = list(iter_all_records(buffer, batch, max_decompressed_bytes=MAX_BATCH_BYTES))
            if batch.is_control:
                self._end_transaction(batch.producer_id, records)
                return
        except KafkaError as error:
            self._skip(batch.base_offset, str(error))
            return
        for record in records:
            try:
                self._take(record, batch)
            except UnreadableRecordError as error:
                self._skip(record.offset, str(error))

    def _take(self, record: Record, batch: BatchView) -> None:
        for kind in self._kinds:
            if kind.read(record, self):
                return
        key = read_key(record.key)
        if isinstance(key, GroupKey):
            self._take_group(key.group_id, record)
        elif batch.is_transactional:
            self._take_transactional(key, record, batch)
        elif record.value is None:
            self._offsets[key.group_id].remove([key.topic_partition])
        else:
            self._offsets[key.group_id].load(key.topic_partition, read_offset(record), batch.base_offset)

    def _take_group(self, group_id: str, record: Record) -> None:
        if record.value is None:
            self._records.pop(group_id, None)
            self._offsets[group_id].forget_idle_producers()
        else:
            self._records[group_id] = read_group(record)
            self._others.pop(group_id, None)

    def _take_transactional(self, key: OffsetKey, record: Record, batch: BatchView) -> None:
        offsets, producer_id = self._offsets[key.group_id], batch.producer_id
        if record.value is None:
            offsets.unload_transactional(producer_id, key.topic_partition)
        else:
            offsets.load_transactional(producer_id, key.topic_partition, read_offset(record), batch.base_offset)
            self._groups_of_producer[producer_id].add(key.group_id)

    def _end_transaction(self, producer_id: int, records: list[Record]) -> None:
        if records:  # compaction leaves empty batches
            is_commit = read_control_type(records[0].key) is ControlType.COMMIT
            for group_id in self._groups_of_producer.pop(producer_id, ()):
                self._offsets[group_id].complete_transaction(producer_id, is_commit=is_commit)

    def _skip(self, offset: int, reason: str) -> None:
        if not self._unreadable_count:
            self._first_unreadable = f"at offset {offset}: {reason}"
        self._unreadable_count += 1
