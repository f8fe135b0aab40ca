"""The partitions that this broker leads, as share groups read them: deliveries, acknowledgements, the ends of locks.

As kafka 4.4 SharePartitionManager and DelayedShareFetch. What becomes of records is stored before it is answered.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from minibroker.broker.group.group_configs import (
    AUTO_OFFSET_RESET,
    DELIVERY_COUNT_LIMIT,
    ISOLATION_LEVEL,
    MAX_RECORD_LOCKS,
    RECORD_LOCK_MS,
    RENEWS,
    GroupConfigs,
)
from minibroker.broker.pending import Pending, Timeout, then
from minibroker.broker.replica.fetch import read_rows
from minibroker.broker.replica.fetched_partition import FetchedPartition
from minibroker.broker.replica.leading import Leading
from minibroker.broker.replica.other_broker import Row
from minibroker.broker.replica.partition_read import FetchParams, FetchRow
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.share.asking import Asking, error_of
from minibroker.broker.wings.share.dead_letters import DeadLetters
from minibroker.broker.wings.share.partition import (
    NO_OFFSET,
    Acknowledgement,
    Archived,
    Limits,
    Run,
    SharePartition,
    State,
)
from minibroker.broker.wings.share.states import Key, Outcome, rows_of
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, READ_COMMITTED, READ_UNCOMMITTED
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.timing_wheel import Timer
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.transaction_index import AbortedTxn

MOST_BYTES = 55 * 1024 * 1024  # of an answer, whatever a client asks for
DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")
# What a client of the partition's leader gets in place of the errors of states (as kafka 4.4 SharePartition).
OF_LEADER = {
    ErrorCode.NONE: ErrorCode.NONE,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_FOR_PARTITION,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_FOR_PARTITION,
}

logger = logging.getLogger(__name__)


class Asked(NamedTuple):
    """A ShareFetch in hand, of a member of a group."""

    group_id: str
    member_id: str
    rows: Sequence[tuple[TopicPartition, Key]]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    is_limited: bool  # to max_records; else a batch comes whole


class Delivered(NamedTuple):
    """The records of one partition for a member: data, and which of them it has."""

    key: Key
    error: ErrorCode
    records: Any = b""
    acquired: Sequence[Run] = ()


class Shared:
    """A partition that this broker leads, as one group shares it."""

    def __init__(self, name: TopicPartition, leader_epoch: int) -> None:
        self.name = name
        self.leader_epoch = leader_epoch
        self.state_epoch = 0
        self.partition = SharePartition()
        self.is_open = False  # once its state has been read, and its start is stored
        self.error = ErrorCode.NONE  # of the reading
        self.lock: Timeout | None = None
        self.archived: list[Archived] = []  # records whose dead letters the next write puts before
        self.waiting: list[Pending[ErrorCode]] = []  # for the end of the next write
        self.is_writing = False
        self.is_left = False  # by the last member: to be read anew


NOTHING: Mapping[Key, Shared] = {}


class SharedPartitions:
    """Serves the partitions that groups share. A state has one write in flight; what has come meanwhile is the next."""

    def __init__(
        self,
        replicas: ReplicaManager,
        asking: Asking,
        dead_letters: DeadLetters,
        *,
        configs: GroupConfigs,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._replicas = replicas
        self._asking = asking
        self._dead_letters = dead_letters
        self._configs = configs
        self._clock = clock
        self._timer = timer
        self._groups: dict[str, dict[Key, Shared]] = {}
        asking.when_changed(self._forget)

    # -- a partition ------------------------------------------------------------------------------------------

    def limits(self, group_id: str) -> Limits:
        value = partial(self._configs.value, group_id)
        return Limits(
            value(MAX_RECORD_LOCKS),
            value(RECORD_LOCK_MS),
            value(DELIVERY_COUNT_LIMIT),
            renews=self._configs.is_on(group_id, RENEWS),
        )

    def _find(self, key: Key) -> Shared | None:
        return self._groups.get(key.group_id, NOTHING).get(key)

    def _opened(self, name: TopicPartition, key: Key) -> Shared | None:
        """The partition for the group; None while its state is being read. Raises KafkaError."""
        led = self._replicas.partitions.led(name)
        shared = self._find(key)
        if shared is not None and shared.leader_epoch != led.leader_epoch:
            self._drop(key, shared)
            shared = None
        if shared is None:
            shared = self._groups.setdefault(key.group_id, {})[key] = Shared(name, led.leader_epoch)
            self._read(key, shared)
        if shared.error is not ErrorCode.NONE:
            self._drop(key, shared)
            raise KafkaError(shared.error)
        if shared.is_left or not shared.is_open:
            return None
        shared.partition.skip_to(led.log.log_start_offset)
        return shared

    def _read(self, key: Key, shared: Shared) -> None:
        """Have a state read, and begin to share a partition that has no start yet."""

        def take(row: Row) -> Outcome:
            if row.error_code:
                return of_leader(error_of(row))
            shared.state_epoch, partition = row.state_epoch, shared.partition
            if row.start_offset == NO_OFFSET:
                try:
                    partition.begin(self._first_offset(key.group_id, self._replicas.partitions.led(shared.name)))
                except KafkaError as error:
                    return error.code
                return self._save(key, shared)
            partition.begin(row.start_offset)
            partition.load(Run(first, last, State(state), count) for first, last, state, count in row.state_batches)
            partition.note_saved()
            return ErrorCode.NONE

        def open_it(error: ErrorCode) -> None:
            shared.error = error
            shared.is_open = error is ErrorCode.NONE

        row = self._asking.state(ApiKey.READ_SHARE_GROUP_STATE, key, leader_epoch=shared.leader_epoch)
        opened = then(then(row, take), open_it)
        if isinstance(opened, Pending):
            opened.then(lambda _: self._replicas.fetch_purgatory.check_and_complete(shared.name))

    def _first_offset(self, group_id: str, led: Leading) -> int:
        """Return where a group begins to read, by its config."""
        log, reset = led.log, self._configs.text(group_id, AUTO_OFFSET_RESET)
        if reset == "earliest":
            return log.log_start_offset
        parts = DURATION.fullmatch(reset)
        if parts is None:
            return log.high_watermark
        days, hours, minutes, seconds = (float(each or 0) for each in parts.groups())
        ago_ms = int(1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds))
        found = log.fetch_offset_by_timestamp(self._clock.wall_ms() - ago_ms)
        return log.high_watermark if found is None else found.offset

    def _forget(self, key: Key) -> None:
        shared = self._find(key)
        if shared is not None:
            self._drop(key, shared)

    def _drop(self, key: Key, shared: Shared) -> None:
        """Forget what is known of a partition; its state is read anew when a member fetches."""
        if shared.lock is not None:
            self._timer.cancel(shared.lock)
        if self._find(key) is shared:
            del self._groups[key.group_id][key]
            if not self._groups[key.group_id]:
                del self._groups[key.group_id]

    def _save(self, key: Key, shared: Shared) -> Outcome:
        """Have what has changed stored; return the error once that is done, and what was in flight before."""
        partition = shared.partition
        if not (partition.unsaved or partition.is_start_unsaved or shared.archived):
            return ErrorCode.NONE
        waiting = Pending[ErrorCode]()
        shared.waiting.append(waiting)
        if not shared.is_writing:
            self._write(key, shared)
        return waiting.outcome()

    def _write(self, key: Key, shared: Shared) -> None:
        partition = shared.partition
        waiting, shared.waiting = shared.waiting, []
        archived, shared.archived = shared.archived, []
        shared.is_writing = True
        ask = partial(
            self._asking.state,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            key,
            state_epoch=shared.state_epoch,
            leader_epoch=shared.leader_epoch,
            start_offset=partition.start_offset if partition.is_start_unsaved else NO_OFFSET,
            delivery_complete_count=partition.done_count(),
            state_batches=rows_of(run for run in partition.unsaved if run.last >= partition.start_offset),
        )
        partition.note_saved()
        written = then(self._dead_letters.put(key.group_id, shared.name, archived), lambda _: ask())
        then(written, partial(self._on_written, key, shared, waiting))

    def _on_written(self, key: Key, shared: Shared, waiting: list[Pending[ErrorCode]], row: Row) -> None:
        shared.is_writing = False
        error = of_leader(error_of(row))
        if error is not ErrorCode.NONE:
            logger.warning("the state of %s cannot be stored, and is read again: %s", key, error_of(row).name)
            waiting += shared.waiting
            shared.waiting = []
        elif shared.waiting:
            self._write(key, shared)
        if error is not ErrorCode.NONE or (shared.is_left and not shared.is_writing):
            self._drop(key, shared)
            self._replicas.fetch_purgatory.check_and_complete(shared.name)
        for each in waiting:
            each.resolve(error)

    def on_leadership(self, topic_partition: TopicPartition, is_leader: bool) -> None:
        """Forget what groups share of a partition that another broker leads."""
        for key, shared in [each for group in self._groups.values() for each in group.items()]:
            if shared.name == topic_partition:
                self._drop(key, shared)

    def _watch_locks(self, key: Key, shared: Shared) -> None:
        """Wake up at the end of the first lock."""
        deadline_ms = shared.partition.first_deadline_ms()
        if deadline_ms is None:
            if shared.lock is not None:
                self._timer.cancel(shared.lock)
            return
        if shared.lock is None:
            shared.lock = Timeout(partial(self._expire, key, shared))
        if not shared.lock.is_pending or shared.lock.deadline_ms != deadline_ms:
            self._timer.add(shared.lock, deadline_ms)

    def _expire(self, key: Key, shared: Shared) -> None:
        archived = shared.partition.expire(self.limits(key.group_id), self._clock.monotonic_ms())
        self._changed(key, shared, archived)

    def _changed(self, key: Key, shared: Shared, archived: Sequence[Archived]) -> Outcome:
        """Store a change, have dead letters written, and let others have what was given back."""
        shared.archived += archived
        outcome = self._save(key, shared)
        self._watch_locks(key, shared)
        self._replicas.fetch_purgatory.check_and_complete(shared.name)
        return outcome

    # -- what members say -------------------------------------------------------------------------------------

    def acknowledge(
        self, name: TopicPartition, key: Key, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> Outcome:
        """Take what a member says of its records: all, or nothing at an error. Raises KafkaError."""
        led = self._replicas.partitions.led(name)
        shared = self._find(key)
        if shared is None or not shared.is_open or shared.leader_epoch != led.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        limits = self.limits(key.group_id)
        archived = shared.partition.acknowledge(member_id, acknowledgements, limits, self._clock.monotonic_ms())
        return self._changed(key, shared, archived)

    def release(self, keys: Iterable[Key], member_id: str) -> None:
        """Give back what a member holds of these partitions, whose session has ended; locks give back the rest."""
        for key in keys:
            shared = self._find(key)
            archived = None if shared is None else shared.partition.release(member_id, self.limits(key.group_id))
            if shared is not None and archived is not None:
                self._changed(key, shared, archived)

    def rest(self, group_id: str) -> None:
        """Note that no member of the group has a session here: others may change its states."""
        for key, shared in list(self._groups.get(group_id, NOTHING).items()):
            shared.is_left = True
            if not shared.is_writing:
                self._drop(key, shared)

    # -- deliveries -------------------------------------------------------------------------------------------

    def fetch(self, asked: Asked) -> list[Delivered] | Pending[list[Delivered]]:
        """Deliver records, once there are `min_bytes` of them, or the time is up."""
        if asked.max_records <= 0 or not asked.rows:
            return []
        delayed = DelayedShareFetch(self, asked)
        found = self.readable(asked)
        if asked.max_wait_ms <= 0 or is_enough(asked, found):
            return self.deliver(asked, found)
        self._replicas.fetch_purgatory.try_complete_else_watch(
            delayed, [name for name, _ in asked.rows], self._clock.monotonic_ms()
        )
        return delayed.pending.outcome()

    def readable(self, asked: Asked) -> list[tuple[Key, FetchedPartition | ErrorCode]]:
        """Read what could be delivered now; or the error of a partition."""
        limits = self.limits(asked.group_id)
        found: list[tuple[Key, FetchedPartition | ErrorCode]] = []
        rows: list[tuple[Key, FetchRow]] = []
        max_bytes = min(max(asked.max_bytes, 0), MOST_BYTES)
        for name, key in asked.rows:
            try:
                shared = self._opened(name, key)
            except KafkaError as error:
                found.append((key, error.code))
                continue
            if shared is not None and shared.partition.can_acquire(limits):
                rows.append((key, FetchRow(name, shared.partition.next_offset, NO_OFFSET, max_bytes)))
        is_committed = self._configs.text(asked.group_id, ISOLATION_LEVEL) == "read_committed"
        isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        params = FetchParams(CONSUMER_REPLICA_ID, 0, 0, max_bytes, False, isolation)
        fetched = read_rows(self._replicas.partitions, params, [row for _, row in rows])
        return [*found, *((key, each) for (key, _), each in zip(rows, fetched, strict=True))]

    def deliver(self, asked: Asked, found: Sequence[tuple[Key, FetchedPartition | ErrorCode]]) -> list[Delivered]:
        """Give the member what was found."""
        limits, left = self.limits(asked.group_id), asked.max_records
        delivered = []
        for key, each in found:
            if isinstance(each, ErrorCode) or each.error is not ErrorCode.NONE:
                delivered.append(Delivered(key, each if isinstance(each, ErrorCode) else each.error))
                continue
            shared = self._find(key)
            if not isinstance(each.records, FileSlice) or left <= 0 or shared is None or not shared.is_open:
                continue
            try:
                data = each.records.read()
            except OSError as error:
                delivered.append(Delivered(key, self._replicas.partitions.failed_read(error)))
                continue
            views = list(scan_batches(data, 0, len(data)))
            acquired = shared.partition.acquire(
                asked.member_id,
                [(view.base_offset, view.last_offset) for view in views],
                max_records=left,
                is_limited=asked.is_limited,
                batch_size=max(asked.batch_size, 1),
                limits=limits,
                now_ms=self._clock.monotonic_ms(),
            )
            aborted = list(aborted_ranges(views, each.aborted_transactions or ()))
            if aborted:
                shared.partition.archive(aborted)
                acquired = list(without(acquired, aborted))
                self._changed(key, shared, ())
            self._watch_locks(key, shared)
            if acquired:
                left -= sum(run.size for run in acquired)
                delivered.append(Delivered(key, ErrorCode.NONE, cut(data, views, acquired), acquired))
        return delivered

    # -- for those who look -----------------------------------------------------------------------------------

    def shared_by(self, group_id: str) -> list[Shared]:
        """The partitions that a group shares here, in order."""
        return sorted(self._groups.get(group_id, NOTHING).values(), key=lambda shared: shared.name)


class DelayedShareFetch(DelayedOperation):
    """A ShareFetch that waits for records: for new ones, or for some that others give back."""

    __slots__ = ("_asked", "_found", "_partitions", "pending")

    def __init__(self, partitions: SharedPartitions, asked: Asked) -> None:
        super().__init__(asked.max_wait_ms)
        self.pending: Pending[list[Delivered]] = Pending(self)
        self._partitions = partitions
        self._asked = asked
        self._found: list[tuple[Key, FetchedPartition | ErrorCode]] | None = None  # what completes it

    def try_complete(self) -> bool:
        found = self._partitions.readable(self._asked)
        if is_enough(self._asked, found):
            self._found = found
            return self.force_complete()
        return False

    def on_complete(self) -> None:
        try:
            found = self._partitions.readable(self._asked) if self._found is None else self._found
            self.pending.resolve(self._partitions.deliver(self._asked, found))
        except Exception as error:  # fails this fetch, not the append that completes it
            self.pending.fail(error)


def of_leader(error: ErrorCode) -> ErrorCode:
    return OF_LEADER.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def is_enough(asked: Asked, found: Sequence[tuple[Key, FetchedPartition | ErrorCode]]) -> bool:
    """Whether a fetch is answered at once: a partition has an error, or there are enough bytes."""
    size_bytes = 0
    for _, each in found:
        if isinstance(each, ErrorCode) or each.error is not ErrorCode.NONE:
            return True
        size_bytes += each.size_bytes
    return size_bytes >= max(asked.min_bytes, 1)


def cut(data: Any, views: Sequence[BatchView], acquired: Sequence[Run]) -> Any:
    """The batches from that of the first acquired record to that of the last."""
    first, last = acquired[0].first, acquired[-1].last
    within = [view for view in views if view.last_offset >= first and view.base_offset <= last]
    return memoryview(data)[within[0].position : within[-1].end_position] if within else b""


def aborted_ranges(views: Sequence[BatchView], aborted: Sequence[AbortedTxn]) -> Iterator[tuple[int, int]]:
    """The batches of aborted transactions."""
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    producers: set[int] = set()
    for view in views:
        while waiting and waiting[0].first_offset <= view.last_offset:
            producers.add(waiting.pop(0).producer_id)
        if view.is_control:
            producers.discard(view.producer_id)
        elif view.is_transactional and view.producer_id in producers:
            yield view.base_offset, view.last_offset


def without(runs: Sequence[Run], ranges: Sequence[tuple[int, int]]) -> Iterator[Run]:
    """The runs without the records of these ranges, which are in order."""
    for run in runs:
        first = run.first
        for begin, end in ranges:
            if begin <= run.last and end >= first:
                if first < begin:
                    yield run._replace(first=first, last=begin - 1)
                first = end + 1
        if first <= run.last:
            yield run._replace(first=first)
