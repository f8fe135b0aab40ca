"""The partitions that share groups read, kept in `__share_group_state` as kafka 4.4 ShareCoordinatorShard keeps them.

A snapshot has all of a partition's state, and an update what has changed since; after some updates the next record is
a snapshot. A partition of the topic is cut off before the oldest snapshot that counts. Brokers ask for states, and
change them, by the APIs 83 to 87, of which `serve` answers each partition (asking.py asks).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import CoordinatorLog, OwnedPartitions
from minibroker.broker.replica.other_broker import Row
from minibroker.broker.time.clock import Clock
from minibroker.broker.transaction.transaction_log import COORDINATOR_ERRORS
from minibroker.broker.wings.share.partition import NO_OFFSET, Run, SharePartition, State
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.batches import iter_all_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import UnreadableRecordError
from minibroker.protocol.primitives import topic_id_text
from minibroker.protocol.record import Record
from minibroker.protocol.share_group_records import STATE_RECORDS, ShareSnapshotValue, ShareUpdateValue, StateRecordType

logger = logging.getLogger(__name__)

MAX_BATCH_BYTES = 100 * 1024 * 1024  # once decompressed
FENCED_STATE = "The coordinator rejected the request because the state epoch did not match."
STORED = (State.AVAILABLE, State.ACKNOWLEDGED, State.ARCHIVED)


Outcome = ErrorCode | Pending[ErrorCode]


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

    def __init__(self, start_offset: int, created_ms: int) -> None:
        self.partition = SharePartition(start_offset)
        self.created_ms = created_ms
        self.snapshot_epoch = 0
        self.state_epoch = 0
        self.leader_epoch = 0  # of the partition that is shared, as its leader last asked
        self.complete_count = -1  # records behind the start offset that are done, as the leader counts them
        self.updates = 0  # since the snapshot
        self.snapshot_offset = -1


class ShareStates:
    """All state that is coordinated here, by the partition of the topic; in each the oldest snapshot comes first.

    A change that is repeated, since its answer was lost, changes nothing more.
    """

    def __init__(
        self, log: CoordinatorLog, topics: MetadataCache, clock: Clock, *, updates_per_snapshot: int, run_steps: object
    ) -> None:
        self._log = log
        self._topics = topics
        self._clock = clock
        self._updates_per_snapshot = updates_per_snapshot
        self._kept: dict[int, dict[Key, Kept]] = {}
        self._owned = OwnedPartitions(log, load=self._load, unload=self._unload, run_steps=run_steps)  # type: ignore[arg-type]
        self.on_leadership = self._owned.on_leadership
        self._serve: dict[ApiKey, Callable[[Key, Any, dict[Key, Kept]], tuple[Outcome, Mapping[str, Any]]]] = {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE: self._initialize,
            ApiKey.READ_SHARE_GROUP_STATE: self._read,
            ApiKey.WRITE_SHARE_GROUP_STATE: self._write,
            ApiKey.DELETE_SHARE_GROUP_STATE: self._delete,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: self._summarize,
        }

    def serve(self, api_key: ApiKey, key: Key, asked: Any) -> Row | Pending[Row]:
        """Answer a request for one partition: its row of the answer, once what it changes is stored."""
        make_row = partial(API_TABLE[api_key].response.row("results.partitions"), partition=key.partition)
        refusal = self._owned.refusal(str(key))
        number = self._log.partition_for(str(key))
        if refusal is not ErrorCode.NONE or number is None:
            return make_row(error_code=refusal)
        try:
            if key.partition < 0:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number.")
            outcome, fields = self._serve[api_key](key, asked, self._kept[number])
        except KafkaError as error:
            return make_row(error_code=error.code, error_message=error.message)
        return then(outcome, lambda error: make_row(error_code=error, **({} if error else fields)))

    # -- requests ---------------------------------------------------------------------------------------------

    def _initialize(self, key: Key, asked: Any, kept: dict[Key, Kept]) -> tuple[Outcome, Mapping[str, Any]]:
        """Begin a state; one that is there stays, unless the request has a start offset for it."""
        before = kept.get(key)
        if before is not None and 0 <= asked.state_epoch < before.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, FENCED_STATE)
        if before is not None and asked.start_offset == NO_OFFSET:
            return ErrorCode.NONE, {}
        topic = self._topics.topics_by_id.get(key.topic_id)
        if topic is None or key.partition not in self._topics.topics[topic].partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        state = Kept(asked.start_offset, self._clock.wall_ms())
        state.state_epoch = asked.state_epoch
        state.complete_count = -1 if asked.start_offset == NO_OFFSET else 0
        if before is not None:
            state.snapshot_epoch = before.snapshot_epoch + 1
            state.state_epoch = max(asked.state_epoch, before.state_epoch + 1)  # which fences those who had it
        kept[key] = state
        return self._put_snapshot(key, state, kept), {}

    def _read(self, key: Key, asked: Any, kept: dict[Key, Kept]) -> tuple[Outcome, Mapping[str, Any]]:
        """Show a state to the leader of its partition; from then on those before it are refused."""
        if asked.leader_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The leader epoch cannot be a negative number.")
        state = known(kept, key, "Read")
        check_leader(state, asked.leader_epoch)
        outcome: Outcome = ErrorCode.NONE
        if asked.leader_epoch > state.leader_epoch:
            outcome = self._put_update(key, state, asked.leader_epoch, NO_OFFSET, state.complete_count, ())
        partition = state.partition
        return outcome, {
            "state_epoch": state.state_epoch,
            "start_offset": partition.start_offset,
            "state_batches": rows_of(partition.saved()),
        }

    def _write(self, key: Key, asked: Any, kept: dict[Key, Kept]) -> tuple[Outcome, Mapping[str, Any]]:
        state = known(kept, key, "Write")
        check_leader(state, asked.leader_epoch)
        if 0 <= asked.state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH, FENCED_STATE)
        batches = [each for each in asked.state_batches if each[2] in STORED and 0 <= each[0] <= each[1]]
        changed = asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, batches
        if state.updates < self._updates_per_snapshot:
            return self._put_update(key, state, *changed), {}
        change(state, *changed)
        state.snapshot_epoch += 1
        return self._put_snapshot(key, state, kept), {}

    def _delete(self, key: Key, asked: Any, kept: dict[Key, Kept]) -> tuple[Outcome, Mapping[str, Any]]:
        if kept.pop(key, None) is None:
            return ErrorCode.NONE, {}
        return self._append(key, StateRecordType.SNAPSHOT, None)[1], {}

    def _summarize(self, key: Key, asked: Any, kept: dict[Key, Kept]) -> tuple[Outcome, Mapping[str, Any]]:
        state = kept.get(key) or Kept(NO_OFFSET, 0)
        return ErrorCode.NONE, {
            "state_epoch": state.state_epoch,
            "leader_epoch": state.leader_epoch,
            "start_offset": state.partition.start_offset,
            "delivery_complete_count": state.complete_count,
        }

    # -- records ----------------------------------------------------------------------------------------------

    def _put_snapshot(self, key: Key, state: Kept, kept: dict[Key, Kept]) -> Outcome:
        """Store all of a state, and delete the records before the oldest snapshot of its partition."""
        value = ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.partition.start_offset,
            delivery_complete_count=state.complete_count,
            create_timestamp=state.created_ms,
            write_timestamp=self._clock.wall_ms(),
            state_batches=rows_of(state.partition.saved()),
        )
        offset, outcome = self._append(key, StateRecordType.SNAPSHOT, value)
        if offset >= 0:
            state.updates, state.snapshot_offset = 0, offset
            kept[key] = kept.pop(key)  # the last one of them
            self._cut_off(key, next(iter(kept.values())).snapshot_offset)
        return outcome

    def _put_update(
        self, key: Key, state: Kept, leader_epoch: int, start_offset: int, complete_count: int, batches: Sequence[Any]
    ) -> Outcome:
        value = ShareUpdateValue(
            snapshot_epoch=state.snapshot_epoch,
            leader_epoch=max(leader_epoch, state.leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            state_batches=batches,
        )
        offset, outcome = self._append(key, StateRecordType.UPDATE, value)
        if offset >= 0:
            state.updates += 1
            change(state, leader_epoch, start_offset, complete_count, batches)
        return outcome

    def _append(self, key: Key, number: StateRecordType, value: Any) -> tuple[int, Outcome]:
        """Append a record; return its offset, -1 if it is known to have none."""
        contents = STATE_RECORDS.key(number, *key), None if value is None else STATE_RECORDS.value(number, value), ()
        appended = self._log.append(str(key), [[contents]])
        is_appended = isinstance(appended.error, Pending) or appended.error is ErrorCode.NONE
        outcome = then(appended.error, lambda error: COORDINATOR_ERRORS.get(error, error))
        return appended.offset if is_appended else -1, outcome

    def _cut_off(self, key: Key, oldest: int) -> None:
        number = self._log.partition_for(str(key))
        assert number is not None
        log = self._log.log_of(number)
        oldest = min(oldest, log.high_watermark)
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
        self._kept[number] = found

    def _unload(self, number: int) -> None:
        del self._kept[number]


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
        found.pop(key, None)
        state = found[key] = Kept(value.start_offset, value.create_timestamp)
        state.snapshot_epoch, state.state_epoch = value.snapshot_epoch, value.state_epoch
        state.snapshot_offset = record.offset
    else:
        if key not in found:
            return  # before the first snapshot that is left
        state = found[key]
        state.updates += 1
    for _, _, number, _ in value.state_batches:
        if number not in STORED:
            raise UnreadableRecordError(f"delivery state {number}")
    change(state, value.leader_epoch, value.start_offset, value.delivery_complete_count, value.state_batches)


def change(state: Kept, leader_epoch: int, start_offset: int, complete_count: int, batches: Iterable[Any]) -> None:
    """Take what a record, or a request, has changed."""
    partition = state.partition
    state.leader_epoch = max(state.leader_epoch, leader_epoch)
    state.complete_count = complete_count
    if start_offset != NO_OFFSET:
        if partition.start_offset == NO_OFFSET:
            partition.begin(start_offset)
        partition.skip_to(start_offset)
    partition.load(Run(first, last, State(number), count) for first, last, number, count in batches)
    partition.note_saved()


def known(kept: Mapping[Key, Kept], key: Key, what: str) -> Kept:
    state = kept.get(key)
    if state is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{what} operation on uninitialized share partition not allowed.")
    return state


def check_leader(state: Kept, leader_epoch: int) -> None:
    if 0 <= leader_epoch < state.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH, "The leader epoch in the request is older than the epoch on the broker."
        )


def rows_of(runs: Iterable[Run]) -> list[tuple[int, int, int, int]]:
    return [(run.first, run.last, int(run.state), run.delivery_count) for run in runs]
