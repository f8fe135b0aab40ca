"""The partitions that share groups read, kept in `__share_group_state` as kafka 4.4 ShareCoordinatorShard keeps them.

A snapshot has all of a partition's state, and an update what has changed since; after some updates the next record is
a snapshot. A partition of the topic is cut off before the oldest snapshot that counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from minibroker.broker.pending import Pending
from minibroker.broker.replica.coordinator_log import CoordinatorLog, OwnedPartitions
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.share.partition import NO_OFFSET, Run, SharePartition, State
from minibroker.protocol.batches import iter_all_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import UnreadableRecordError
from minibroker.protocol.primitives import topic_id_text
from minibroker.protocol.record import Record
from minibroker.protocol.share_group_records import STATE_RECORDS, ShareSnapshotValue, ShareUpdateValue, StateRecordType

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 100 * 1024 * 1024  # once decompressed
STORED = (State.AVAILABLE, State.ACKNOWLEDGED, State.ARCHIVED)


class Key(NamedTuple):
    """A partition of a topic, as one group shares it."""

    group_id: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        """The name by which the coordinator of its state is found."""
        return f"{self.group_id}:{topic_id_text(self.topic_id)}:{self.partition}"


class Kept:
    """The state of a partition, and what its records have numbered."""

    def __init__(self, partition: SharePartition, created_ms: int) -> None:
        self.partition = partition
        self.created_ms = created_ms
        self.snapshot_epoch = -1  # no record yet
        self.state_epoch = 0
        self.updates = 0  # since the snapshot
        self.snapshot_offset = -1


class ShareStates:
    """All state that is coordinated here."""

    def __init__(self, log: CoordinatorLog, clock: Clock, *, updates_per_snapshot: int, run_steps: object) -> None:
        self._log = log
        self._clock = clock
        self._updates_per_snapshot = updates_per_snapshot
        self._kept: dict[Key, Kept] = {}
        self._owned = OwnedPartitions(log, load=self._load, unload=self._unload, run_steps=run_steps)  # type: ignore[arg-type]
        self.on_leadership = self._owned.on_leadership

    def check(self, key: Key) -> None:
        """Raises KafkaError where this broker does not coordinate the state, or does not yet."""
        refusal = self._owned.refusal(str(key))
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)

    def find(self, key: Key) -> Kept | None:
        return self._kept.get(key)

    def get(self, key: Key) -> Kept:
        """The state; a new one without a start offset. Raises KafkaError."""
        self.check(key)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = Kept(SharePartition(), self._clock.wall_ms())
        return kept

    def keys_of(self, group_id: str) -> list[Key]:
        return [each for each in self._kept if each.group_id == group_id]

    # -- records ----------------------------------------------------------------------------------------------

    def save(self, key: Key, leader_epoch: int, *, begins: bool = False) -> ErrorCode | Pending[ErrorCode]:
        """Store what has changed; with `begins`, a new epoch of the state."""
        kept = self._kept[key]
        partition = kept.partition
        if not (begins or partition.unsaved or partition.is_start_unsaved):
            return ErrorCode.NONE
        kept.state_epoch += begins and kept.snapshot_epoch >= 0
        is_snapshot = begins or kept.snapshot_epoch < 0 or kept.updates >= self._updates_per_snapshot
        done = partition.done_count()
        if is_snapshot:
            kept.snapshot_epoch += 1
            kept.updates = 0
            now_ms = self._clock.wall_ms()
            number, value = (
                StateRecordType.SNAPSHOT,
                ShareSnapshotValue(
                    snapshot_epoch=kept.snapshot_epoch,
                    state_epoch=kept.state_epoch,
                    leader_epoch=leader_epoch,
                    start_offset=partition.start_offset,
                    delivery_complete_count=done,
                    create_timestamp=kept.created_ms,
                    write_timestamp=now_ms,
                    state_batches=rows_of(partition.saved()),
                ),
            )
        else:
            kept.updates += 1
            number, value = (
                StateRecordType.UPDATE,
                ShareUpdateValue(
                    snapshot_epoch=kept.snapshot_epoch,
                    leader_epoch=leader_epoch,
                    start_offset=partition.start_offset if partition.is_start_unsaved else NO_OFFSET,
                    delivery_complete_count=done,
                    state_batches=rows_of(run for run in partition.unsaved if run.last >= partition.start_offset),
                ),
            )
        contents = STATE_RECORDS.key(number, *key), STATE_RECORDS.value(number, value), ()
        appended = self._log.append(str(key), [[contents]])
        if appended.error is ErrorCode.NONE or isinstance(appended.error, Pending):
            partition.note_saved()
            if is_snapshot:
                kept.snapshot_offset = appended.offset
                self._cut_off(key)
        return appended.error

    def delete(self, key: Key) -> ErrorCode | Pending[ErrorCode]:
        """Forget a partition's state, and store that."""
        self.check(key)
        if self._kept.pop(key, None) is None:
            return ErrorCode.NONE
        return self._log.append(str(key), [[(STATE_RECORDS.key(StateRecordType.SNAPSHOT, *key), None, ())]]).error

    def _cut_off(self, key: Key) -> None:
        """Delete the records before the oldest snapshot in the partition of `key`."""
        number = self._log.partition_for(str(key))
        if number is None:
            return
        name_of = self._log.partition_for
        same = [each.snapshot_offset for other, each in self._kept.items() if name_of(str(other)) == number]
        log = self._log.log_of(number)
        oldest = min(min(same), log.high_watermark)
        if oldest - log.log_start_offset >= self._updates_per_snapshot:
            log.delete_records(oldest)

    # -- the log ----------------------------------------------------------------------------------------------

    def _load(self, number: int) -> Iterator[None]:
        found: dict[Key, Kept] = {}
        unreadable = 0
        last: object = None
        try:
            for buffer, batch in self._log.read_batches(number):
                if last is not None and buffer is not last:
                    yield
                last = buffer
                if batch.is_control:
                    continue
                for record in iter_all_records(buffer, batch, max_decompressed_bytes=MAX_BATCH_BYTES):
                    try:
                        take(found, record)
                    except UnreadableRecordError:
                        unreadable += 1
        except KafkaError as error:
            logger.error("cannot read %s-%d any further: %s", self._log.topic, number, error)
        if unreadable:
            logger.warning("%s-%d: skipped %d unreadable records", self._log.topic, number, unreadable)
        for kept in found.values():
            kept.partition.note_saved()
        self._kept |= found

    def _unload(self, number: int) -> None:
        for key in [each for each in self._kept if self._log.partition_for(str(each)) == number]:
            del self._kept[key]


def take(found: dict[Key, Kept], record: Record) -> None:
    """Take a record of the log."""
    read = STATE_RECORDS.read(record)
    if read is None:
        return
    key, value = Key(*read.names), read.value
    if value is None:
        found.pop(key, None)
        return
    if read.type == StateRecordType.SNAPSHOT:
        kept = found[key] = Kept(SharePartition(value.start_offset), value.create_timestamp)
        kept.snapshot_epoch, kept.state_epoch = value.snapshot_epoch, value.state_epoch
        kept.snapshot_offset = record.offset
    else:
        if key not in found:
            return  # before the first snapshot that is left
        kept = found[key]
        kept.updates += 1
        if value.start_offset != NO_OFFSET:
            if kept.partition.start_offset == NO_OFFSET:
                kept.partition.begin(value.start_offset)
            kept.partition.skip_to(value.start_offset)
    for first, last, state, count in value.state_batches:
        if state not in STORED:
            raise UnreadableRecordError(f"delivery state {state}")
        kept.partition.load(Run(first, last, State(state), count))


def rows_of(runs: Iterable[Run]) -> list[tuple[int, int, int, int]]:
    return [(run.first, run.last, int(run.state), run.delivery_count) for run in runs]
