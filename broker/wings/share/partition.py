"""A partition that a share group reads: which of its records are in flight, and with whom. Pure: no clock, no IO.

    available     to be delivered (again)
    acquired      held by a member until its lock ends
    acknowledged  done
    archived      not to be delivered any more: rejected, or delivered too often

Records are kept in runs of the same state, from the start offset, before which all are done, to the end offset, behind
which none has been delivered. As kafka 4.4 SharePartition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError

NO_OFFSET = -1
NOT_FOUND = "Batch record not found. "


class State(IntEnum):
    """The values are those of `__share_group_state`."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


DONE = (State.ACKNOWLEDGED, State.ARCHIVED)


class Kind(IntEnum):
    """The words of a member for records that it holds."""

    GAP = 0  # there is no record
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Run(NamedTuple):
    """Records of the same state. `member_id`, and the times by the broker's clock, are those of acquired ones."""

    first: int
    last: int
    state: State
    delivery_count: int
    member_id: str = ""
    since_ms: int = 0
    until_ms: int = 0

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def given_back(self, state: State) -> Run:
        """The records in that state, held by nobody."""
        return Run(self.first, self.last, state, self.delivery_count)


class Limits(NamedTuple):
    """The configs of a group that bound its deliveries."""

    max_in_flight: int
    lock_ms: int
    delivery_count_limit: int
    renews: bool = True  # whether a member may renew its locks

    @property
    def careful_from(self) -> int:
        """After so many deliveries records come in fewer at a time."""
        return max(2, -(-self.delivery_count_limit // 2))


class Archived(NamedTuple):
    """Records that are not delivered any more: rejected, or else delivered too often."""

    run: Run
    is_rejected: bool


class Acknowledgement(NamedTuple):
    """Of the records of a range; `kinds` is one for all, or one for each."""

    first: int
    last: int
    kinds: Sequence[int]


@dataclass(slots=True)
class InFlightBatch:
    """Records that were delivered together. `is_split` once their states may differ: as kafka 4.4 InFlightBatch."""

    first: int
    last: int
    is_split: bool = False

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class SharePartition:
    """The records of one partition for one group. Changes note the runs that are to be stored in `unsaved`."""

    def __init__(self, start_offset: int = NO_OFFSET, runs: Iterable[Run] = ()) -> None:
        self.start_offset = start_offset
        self._runs = list(runs)
        self._batches = [InFlightBatch(run.first, run.last) for run in self._runs]
        self._next = max((run.last + 1 for run in self._runs), default=start_offset)
        self.unsaved: list[Run] = []
        self.is_start_unsaved = False

    @property
    def runs(self) -> Sequence[Run]:
        return self._runs

    @property
    def in_flight(self) -> int:
        """The number of records that count against the limit."""
        return self._next - self.start_offset

    @property
    def next_offset(self) -> int:
        """The first record that may be delivered."""
        return next((run.first for run in self._runs if run.state is State.AVAILABLE), self._next)

    @property
    def end_offset(self) -> int:
        """The first offset that has not been delivered."""
        return self._next

    def done_count(self) -> int:
        """The records from the start offset on whose delivery is done."""
        return sum(run.size for run in self._runs if run.state in DONE)

    def first_deadline_ms(self) -> int | None:
        return min((run.until_ms for run in self._runs if run.state is State.ACQUIRED), default=None)

    def can_acquire(self, limits: Limits) -> bool:
        """Whether a record that was released waits, or a new one would not be one too many."""
        return self.next_offset < self._next or self.in_flight < limits.max_in_flight

    def note_saved(self) -> None:
        """Note that all of it is stored."""
        self.unsaved.clear()
        self.is_start_unsaved = False

    # -- the start --------------------------------------------------------------------------------------------

    def begin(self, offset: int) -> None:
        """Share the records from this offset on, and forget all before."""
        self.start_offset = self._next = offset
        self._runs.clear()
        self._batches.clear()
        self.is_start_unsaved = True

    def skip_to(self, log_start_offset: int) -> None:
        """Drop the records that are no longer in the log."""
        if log_start_offset <= self.start_offset:
            return
        self._split_at(log_start_offset)
        self._runs = [run for run in self._runs if run.first >= log_start_offset]
        self.start_offset = log_start_offset
        self._next = max(self._next, log_start_offset)
        self._drop_batches()
        self.is_start_unsaved = True

    def load(self, runs: Iterable[Run]) -> None:
        """Have records in these states, as they were stored. The state of a record that is known counts more, if it
        was delivered more often, or is more final (as kafka 4.4 PersisterStateBatchCombiner)."""
        for run in runs:
            first = max(run.first, self.start_offset)
            if run.last < first:
                continue
            if first > self._next:  # those between were not delivered, or given back
                self._add(Run(self._next, first - 1, State.AVAILABLE, 0))

            def later(each: Run, run: Run = run) -> Run:
                is_later = (run.delivery_count, run.state) >= (each.delivery_count, each.state)
                return run._replace(first=each.first, last=each.last) if is_later else each

            self._update(first, min(run.last, self._next - 1), later)
            if run.last >= self._next:
                self._add(run._replace(first=self._next))
        self._advance()

    def _add(self, run: Run) -> None:
        self._runs.append(run)
        self._batches.append(InFlightBatch(run.first, run.last))
        self._next = run.last + 1

    # -- deliveries -------------------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        batches: Sequence[tuple[int, int]],
        *,
        max_records: int,
        is_limited: bool,
        batch_size: int,
        limits: Limits,
        now_ms: int,
    ) -> list[Run]:
        """Give a member the available records of these batches (first and last offsets); return them.

        At least one batch, unless `is_limited`: then `max_records` at most. Records of batches that were delivered
        often come in fewer and fewer at a time, and alone at last, so that one of them that ends its reader does not
        use up the deliveries of the others.
        """
        if not batches or max_records <= 0:
            return []
        acquired: list[Run] = []
        first, last = batches[0][0], batches[-1][1]
        left = min(max_records, limits.max_in_flight - self.in_flight)
        if left <= 0:  # none but those that were released
            left, last = min(max_records, self._next - self.next_offset), min(last, self._next - 1)
        self._archive_missing(self.next_offset, first - 1)

        def take(begin: int, end: int) -> int:
            self._update(begin, end, lambda run: self._taken(run, member_id, now_ms, limits), is_saved=False)
            acquired.append(self._run_at(begin)._replace(first=begin, last=end))
            return end - begin + 1

        for batch in self._batches_within(first, last):
            begin, end = max(first, batch.first, self.start_offset), min(last, batch.last)
            runs = [
                run._replace(first=max(run.first, begin), last=min(run.last, end))
                for run in self._within(begin, end)
                if run.state is State.AVAILABLE
            ]
            if left <= 0 or not runs:
                continue
            is_careful = any(run.delivery_count >= limits.careful_from for run in runs)
            if is_careful and acquired:
                return acquired
            is_whole = (begin, end) == (batch.first, batch.last) and not (is_limited and batch.size > left)
            if is_whole and not batch.is_split and not is_careful:
                left -= take(begin, end)
                continue
            batch.is_split = True
            for begin, end in some_of(runs, batch.size, limits, left if is_limited else 0):
                left -= take(begin, end)
            if is_careful:
                return acquired
        if left > 0 and last >= self._next:
            begin, wanted = self._next, self._next + left - 1
            until = next((each for _, each in batches if each >= wanted), last)
            for piece, end in self._new_batches(begin, until, batches, until + 1 if is_limited else batch_size):
                self._add(Run(piece, end, State.AVAILABLE, 0))
                self._batches[-1].is_split = is_limited and end > wanted
                take(piece, min(end, wanted) if is_limited else end)
        return acquired

    def _archive_missing(self, first: int, last: int) -> None:
        """Never deliver these, which were to be, and are no longer in the log: it was compacted."""
        gone = [run for run in self._within(first, last) if run.state is State.AVAILABLE]
        if gone:
            self.archive((max(run.first, first), min(run.last, last)) for run in gone)

    def _new_batches(
        self, first: int, last: int, batches: Sequence[tuple[int, int]], batch_size: int
    ) -> Iterator[tuple[int, int]]:
        """Cut records that were not delivered yet before a batch, where the piece has `batch_size` records or more."""
        for begin, _ in batches:
            if first + batch_size <= begin <= last:
                yield first, begin - 1
                first = begin
        yield first, last

    def _taken(self, run: Run, member_id: str, now_ms: int, limits: Limits) -> Run:
        return Run(
            run.first, run.last, State.ACQUIRED, run.delivery_count + 1, member_id, now_ms, now_ms + limits.lock_ms
        )

    # -- what becomes of them ---------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: Limits, now_ms: int
    ) -> list[Archived]:
        """Take what a member says of its records: all, or nothing at an error. Return the archived ones.

        Raises KafkaError: INVALID_REQUEST, INVALID_RECORD_STATE.
        """
        before, unsaved = list(self._runs), len(self.unsaved)
        archived: list[Archived] = []
        try:
            for each in acknowledgements:
                if each.last >= self.start_offset:  # else done before
                    self._acknowledge(member_id, each, limits, now_ms, archived)
        except KafkaError:
            self._runs = before
            del self.unsaved[unsaved:]
            raise
        self._advance()
        return archived

    def _acknowledge(
        self, member_id: str, said: Acknowledgement, limits: Limits, now_ms: int, archived: list[Archived]
    ) -> None:
        """Take one acknowledgement. A batch has one state until a part of it is acknowledged. Raises KafkaError."""
        is_known = any(self._batches_within(said.first, said.last))
        if not self._batches or not (is_known or said.first >= self._next):
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE, NOT_FOUND + "The request batch offsets are not found in the cache."
            )
        for what, offset in (("first", said.first), ("last", said.last)):
            if offset >= self._next:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{NOT_FOUND}The {what} offset in request is past acquired records."
                )
        for batch in self._batches_within(max(said.first, self.start_offset), said.last):
            if not batch.is_split:
                held = self._run_at(max(batch.first, self.start_offset))
                if held.state is not State.ACQUIRED:
                    raise not_acquired("batch", "in the acquired state")
                if held.member_id != member_id:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")
            is_whole = said.first <= batch.first and batch.last <= said.last and batch.first >= self.start_offset
            batch.is_split |= not is_whole or len(said.kinds) > 1
            begin, end = max(said.first, batch.first, self.start_offset), min(said.last, batch.last)
            for piece in pieces_of(said, begin, end):
                kind = Kind(piece.kinds[0])
                for run in self._within(piece.first, piece.last):
                    if run.state is not State.ACQUIRED:
                        raise not_acquired("offset", "acquired")
                    if run.member_id != member_id:
                        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")
                    if kind is Kind.RENEW and not limits.renews:
                        raise KafkaError(
                            ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group."
                        )
                change = self._change(kind, limits, now_ms, archived)
                self._update(piece.first, piece.last, change, is_saved=kind is not Kind.RENEW)

    def _change(self, kind: Kind, limits: Limits, now_ms: int, archived: list[Archived]) -> Callable[[Run], Run]:
        def change(run: Run) -> Run:
            if kind is Kind.RENEW:
                return run._replace(until_ms=now_ms + limits.lock_ms)
            if kind is Kind.ACCEPT:
                return run.given_back(State.ACKNOWLEDGED)
            if kind is Kind.RELEASE and run.delivery_count < limits.delivery_count_limit:
                return run.given_back(State.AVAILABLE)
            after = run.given_back(State.ARCHIVED)
            if kind is not Kind.GAP:
                archived.append(Archived(after, is_rejected=kind is Kind.REJECT))
            return after

        return change

    def expire(self, limits: Limits, now_ms: int) -> list[Archived]:
        """End the locks whose time is up; return the archived records."""
        archived: list[Archived] = []
        change = self._change(Kind.RELEASE, limits, now_ms, archived)
        for run in [each for each in self._runs if each.state is State.ACQUIRED and each.until_ms <= now_ms]:
            self._update(run.first, run.last, change)
        self._advance()
        return archived

    def release(self, member_id: str, limits: Limits) -> list[Archived] | None:
        """Give back what a member holds that has left; return the archived records, None if it held nothing."""
        held = [each for each in self._runs if each.state is State.ACQUIRED and each.member_id == member_id]
        archived: list[Archived] = []
        for run in held:
            self._update(run.first, run.last, self._change(Kind.RELEASE, limits, 0, archived))
        self._advance()
        return archived if held else None

    def archive(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Never deliver these: records of aborted transactions."""
        for first, last in ranges:
            for batch in self._batches_within(first, last):
                batch.is_split |= batch.first < first or batch.last > last
            self._update(max(first, self.start_offset), last, lambda run: run._replace(state=State.ARCHIVED))
        self._advance()

    # -- runs -------------------------------------------------------------------------------------------------

    def saved(self) -> list[Run]:
        """The runs as they are stored: a record in flight is as it was before its delivery."""
        found = []
        for run in self._runs:
            if run.state is State.ACQUIRED:
                run = run._replace(state=State.AVAILABLE, delivery_count=run.delivery_count - 1)
            if run.delivery_count or run.state is not State.AVAILABLE:
                found.append(run)
        return found

    def _within(self, first: int, last: int) -> Iterator[Run]:
        for run in self._runs[max(0, self._place(first)) :]:
            if run.first > last:
                return
            if run.last >= first:
                yield run

    def _batches_within(self, first: int, last: int) -> Iterator[InFlightBatch]:
        place = bisect_right(self._batches, first, key=lambda batch: batch.first) - 1
        for batch in self._batches[max(0, place) :]:
            if batch.first > last:
                return
            if batch.last >= first:
                yield batch

    def _drop_batches(self) -> None:
        """Forget the batches before the start."""
        place = bisect_right(self._batches, self.start_offset - 1, key=lambda batch: batch.last)
        del self._batches[:place]

    def _run_at(self, offset: int) -> Run:
        return self._runs[max(0, self._place(offset))]

    def _place(self, offset: int) -> int:
        return bisect_right(self._runs, offset, key=lambda run: run.first) - 1

    def _split_at(self, offset: int) -> None:
        """Have a run begin at this offset."""
        place = self._place(offset)
        if place < 0:
            return
        run = self._runs[place]
        if run.first < offset <= run.last:
            self._runs[place : place + 1] = run._replace(last=offset - 1), run._replace(first=offset)

    def _update(self, first: int, last: int, change: Callable[[Run], Run], *, is_saved: bool = True) -> None:
        self._split_at(first)
        self._split_at(last + 1)
        for place in range(max(0, self._place(first)), len(self._runs)):
            run = self._runs[place]
            if run.first > last:
                break
            if run.first >= first:
                self._runs[place] = changed = change(run)
                if is_saved:
                    self.unsaved.append(changed)

    def _advance(self) -> None:
        """Move the start offset over records that are done, and make neighbours of the same state one run."""
        done = 0
        while done < len(self._runs) and self._runs[done].state in DONE:
            done += 1
        if done:
            self.start_offset = self._runs[done - 1].last + 1
            self.is_start_unsaved = True
            self._drop_batches()
        merged: list[Run] = []
        for run in self._runs[done:]:
            if merged and merged[-1]._replace(first=0, last=0) == run._replace(first=0, last=0):
                merged[-1] = merged[-1]._replace(last=run.last)
            else:
                merged.append(run)
        self._runs = merged


def some_of(runs: Iterable[Run], size: int, limits: Limits, most: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges that are delivered of runs that wait in a batch of `size` records.

    `most` is 0, or the number of records that may come. As kafka 4.4 SharePartition.acquireSubsetBatchRecords.
    """
    taken = fewer = 0
    for run in runs:
        is_last_delivery = run.delivery_count == limits.delivery_count_limit - 1 > 1
        if is_last_delivery and taken:
            return
        if run.delivery_count >= limits.careful_from and not fewer:
            fewer = max(1, size >> (run.delivery_count - limits.careful_from + 1))
        end = min((each for each in (int(is_last_delivery), fewer, most) if each > taken), default=taken + run.size + 1)
        yield run.first, min(run.last, run.first + end - taken - 1)
        taken += run.size
        if taken >= end:
            return


def pieces_of(said: Acknowledgement, first: int, last: int) -> Iterator[Acknowledgement]:
    """Yield the acknowledgement of these records as ranges of one kind."""
    if len(said.kinds) == 1:
        yield Acknowledgement(first, last, said.kinds)
        return
    for kind, offsets in groupby(range(first, last + 1), key=lambda offset: said.kinds[offset - said.first]):
        begin, *rest = offsets
        yield Acknowledgement(begin, rest[-1] if rest else begin, (kind,))


def not_acquired(what: str, state: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, f"The {what} cannot be acknowledged. The {what} is not {state}.")
