"""The partitions that this broker leads, as share groups read them: deliveries, acknowledgements, the ends of locks.

As kafka 4.4 SharePartitionManager and DelayedShareFetch. What becomes of records is stored before it is answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetch import read_rows
from minibroker.broker.replica.fetched_partition import FetchedPartition
from minibroker.broker.replica.leading import Leading
from minibroker.broker.replica.partition_read import FetchParams, FetchRow
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.share.dead_letters import DeadLetters
from minibroker.broker.wings.share.partition import NO_OFFSET, Acknowledgement, Archived, Limits, Run, SharePartition
from minibroker.broker.wings.share.states import Key, ShareStates
from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, READ_COMMITTED, READ_UNCOMMITTED
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.timing_wheel import Timer, TimerTask
from minibroker.storage.files.records_file import FileSlice
from minibroker.storage.index.transaction_index import AbortedTxn

MOST_BYTES = 55 * 1024 * 1024  # of an answer, whatever a client asks for
DURATION = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?")

Outcome = ErrorCode | Pending[ErrorCode]


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


class Lock(TimerTask):
    """Ends the locks of a partition's records when their time is up."""

    __slots__ = ("_expire",)

    def __init__(self, expire: Callable[[], None]) -> None:
        super().__init__()
        self._expire = expire

    def on_timeout(self) -> None:
        self._expire()


class SharedPartitions:
    """Serves the partitions that groups share."""

    def __init__(
        self,
        replicas: ReplicaManager,
        states: ShareStates,
        dead_letters: DeadLetters,
        *,
        configs: GroupConfigs,
        clock: Clock,
        timer: Timer,
    ) -> None:
        self._replicas = replicas
        self._states = states
        self._dead_letters = dead_letters
        self._configs = configs
        self._clock = clock
        self._timer = timer
        self._locks: dict[Key, Lock] = {}
        self._names: dict[Key, TopicPartition] = {}

    # -- a partition ------------------------------------------------------------------------------------------

    def limits(self, group_id: str) -> Limits:
        value = partial(self._configs.value, group_id)
        return Limits(
            value(MAX_RECORD_LOCKS),
            value(RECORD_LOCK_MS),
            value(DELIVERY_COUNT_LIMIT),
            renews=self._configs.is_on(group_id, RENEWS),
        )

    def _opened(self, topic_partition: TopicPartition, key: Key) -> tuple[Leading, SharePartition]:
        """The partition's role, and its state for the group, with a start offset. Raises KafkaError."""
        led = self._replicas.partitions.led(topic_partition)
        shared = self._states.get(key).partition
        self._names[key] = topic_partition
        if shared.start_offset == NO_OFFSET:
            shared.begin(self._first_offset(key.group_id, led))
            self._save(key, led)
        shared.skip_to(led.log.log_start_offset)
        return led, shared

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

    def _save(self, key: Key, led: Leading) -> Outcome:
        return self._states.save(key, led.leader_epoch)

    def _watch_locks(self, key: Key, shared: SharePartition) -> None:
        """Wake up at the end of the first lock."""
        deadline_ms = shared.first_deadline_ms()
        lock = self._locks.get(key)
        if deadline_ms is None:
            if lock is not None:
                self._timer.cancel(lock)
            return
        if lock is None:
            lock = self._locks[key] = Lock(partial(self._expire, key))
        if not lock.is_pending or lock.deadline_ms != deadline_ms:
            self._timer.add(lock, deadline_ms)

    def _expire(self, key: Key) -> None:
        kept, name = self._states.find(key), self._names[key]
        if kept is None:
            return
        archived = kept.partition.expire(self.limits(key.group_id), self._clock.monotonic_ms())
        self._changed(key, name, kept.partition, archived)

    def _changed(self, key: Key, name: TopicPartition, shared: SharePartition, archived: Sequence[Archived]) -> Outcome:
        """Store a change, have dead letters written, and let others have what was given back."""
        try:
            led = self._replicas.partitions.led(name)
            self._states.check(key)
        except KafkaError as error:
            return error.code
        outcome = self._save(key, led)
        self._dead_letters.put(key.group_id, name, archived)
        self._watch_locks(key, shared)
        self._replicas.fetch_purgatory.check_and_complete(name)
        return outcome

    # -- what members say -------------------------------------------------------------------------------------

    def acknowledge(
        self, name: TopicPartition, key: Key, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> Outcome:
        """Take what a member says of its records: all, or nothing at an error. Raises KafkaError."""
        self._replicas.partitions.led(name)
        kept = self._states.find(key)
        self._states.check(key)
        if kept is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        limits = self.limits(key.group_id)
        archived = kept.partition.acknowledge(member_id, acknowledgements, limits, self._clock.monotonic_ms())
        return self._changed(key, name, kept.partition, archived)

    def release(self, keys: Iterable[Key], member_id: str) -> None:
        """Give back what a member holds of these partitions, whose session has ended; locks give back the rest."""
        for key in keys:
            kept = self._states.find(key)
            if kept is None or key not in self._names:
                continue
            archived = kept.partition.release(member_id, self.limits(key.group_id))
            if archived is not None:
                self._changed(key, self._names[key], kept.partition, archived)

    def rest(self, group_id: str) -> None:
        """Note that no member of the group has a session here."""
        for _, partition in self.shared_by(group_id):
            partition.reload()

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
                _, shared = self._opened(name, key)
            except KafkaError as error:
                found.append((key, error.code))
                continue
            if shared.can_acquire(limits):
                rows.append((key, FetchRow(name, shared.next_offset, NO_OFFSET, max_bytes)))
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
            if isinstance(each, ErrorCode):
                delivered.append(Delivered(key, each))
                continue
            if each.error is not ErrorCode.NONE or not isinstance(each.records, FileSlice) or left <= 0:
                if each.error is not ErrorCode.NONE:
                    delivered.append(Delivered(key, each.error))
                continue
            kept = self._states.find(key)
            if kept is None:
                continue
            data = each.records.read()
            views = list(scan_batches(data, 0, len(data)))
            acquired = kept.partition.acquire(
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
                kept.partition.archive(aborted)
                acquired = list(without(acquired, aborted))
                self._changed(key, each.topic_partition, kept.partition, ())
            self._watch_locks(key, kept.partition)
            if acquired:
                left -= sum(run.size for run in acquired)
                delivered.append(Delivered(key, ErrorCode.NONE, cut(data, views, acquired), acquired))
        return delivered

    # -- for administrators, and those who look ---------------------------------------------------------------

    def lag(self, name: TopicPartition, shared: SharePartition) -> int:
        """The records that are not done yet."""
        role = self._replicas.partitions.any(name)
        if role is None or shared.start_offset == NO_OFFSET:
            return -1
        return max(0, role.log.high_watermark - shared.start_offset - shared.done_count())

    def leader_epoch(self, name: TopicPartition) -> int:
        role = self._replicas.partitions.any(name)
        return role.leader_epoch if isinstance(role, Leading) else 0

    def begin(self, name: TopicPartition, key: Key, offset: int) -> Outcome:
        """Have a group begin anew at this offset. Raises KafkaError."""
        led = self._replicas.partitions.led(name)
        kept = self._states.get(key)
        self._names[key] = name
        kept.partition.begin(offset)
        return self._states.save(key, led.leader_epoch, begins=True)

    def forget(self, key: Key) -> Outcome:
        """Delete the state of a partition. Raises KafkaError."""
        lock = self._locks.pop(key, None)
        if lock is not None:
            self._timer.cancel(lock)
        self._names.pop(key, None)
        return self._states.delete(key)

    def shared_by(self, group_id: str) -> Iterator[tuple[TopicPartition, SharePartition]]:
        """The partitions that a group shares here, in order."""
        named = ((self._names.get(key), key) for key in self._states.keys_of(group_id))
        for name, key in sorted((name, key) for name, key in named if name is not None):
            kept = self._states.find(key)
            if kept is not None:
                yield name, kept.partition


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
