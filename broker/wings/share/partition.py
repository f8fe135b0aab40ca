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
from enum import IntEnum
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError

NO_OFFSET = -1


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
    """Records of the same state. `member_id`, and the times by the broker's clock, are those of the last delivery."""

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


class Limits(NamedTuple):
    """The configs of a group that bound its deliveries."""

    max_in_flight: int
    lock_ms: int
    delivery_count_limit: int


class Archived(NamedTuple):
    """Records that are not delivered any more: rejected, or else delivered too often."""

    run: Run
    is_rejected: bool


class Acknowledgement(NamedTuple):
    """Of the records of a range; `kinds` is one for all, or one for each."""

    first: int
    last: int
    kinds: Sequence[int]


class SharePartition:
    """The records of one partition for one group. Changes note the runs that are to be stored in `unsaved`."""

    def __init__(self, start_offset: int = NO_OFFSET, runs: Iterable[Run] = ()) -> None:
        self.start_offset = start_offset
        self._runs = list(runs)
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
        self.is_start_unsaved = True

    def skip_to(self, log_start_offset: int) -> None:
        """Drop the records that are no longer in the log."""
        if log_start_offset <= self.start_offset:
            return
        self._split_at(log_start_offset)
        self._runs = [run for run in self._runs if run.first >= log_start_offset]
        self.start_offset = log_start_offset
        self._next = max(self._next, log_start_offset)
        self.is_start_unsaved = True

    def load(self, run: Run) -> None:
        """Have these records in this state, as they were stored."""
        first = max(run.first, self.start_offset)
        if run.last < first:
            return
        if first > self._next:  # those between were not delivered, or given back
            self._runs.append(Run(self._next, first - 1, State.AVAILABLE, 0))
            self._next = first
        self._update(first, min(run.last, self._next - 1), lambda each: run._replace(first=each.first, last=each.last))
        if run.last >= self._next:
            self._runs.append(run._replace(first=self._next))
            self._next = run.last + 1
        self._advance()

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

        At least one batch, unless `is_limited`: then `max_records` at most.
        """
        if not batches:
            return []
        acquired: list[Run] = []
        left = max_records
        until_ms = now_ms + limits.lock_ms
        first, last = batches[0][0], batches[-1][1]
        self._split_at(first)
        self._split_at(last + 1)
        for place, run in enumerate(self._runs):
            if left <= 0:
                break
            if run.state is not State.AVAILABLE or not first <= run.first <= last:
                continue
            if is_limited and run.size > left:
                self._split_at(run.first + left)
                run = self._runs[place]
            taken = self._taken(run, member_id, now_ms, until_ms)
            self._runs[place] = taken
            acquired.append(taken)
            left -= taken.size
        for batch_first, batch_last in batches:
            if left <= 0 or batch_last < self._next or self.in_flight >= limits.max_in_flight:
                continue
            end = min(batch_last, max(batch_first, self._next) + left - 1) if is_limited else batch_last
            taken = self._taken(Run(self._next, end, State.AVAILABLE, 0), member_id, now_ms, until_ms)
            self._runs.append(taken)
            self._next = end + 1
            left -= taken.size
            if (
                acquired
                and acquired[-1].last + 1 == taken.first
                and acquired[-1].delivery_count == 1
                and acquired[-1].size + taken.size <= batch_size
            ):
                acquired[-1] = acquired[-1]._replace(last=taken.last)
            else:
                acquired.append(taken)
        return acquired

    def _taken(self, run: Run, member_id: str, now_ms: int, until_ms: int) -> Run:
        return Run(run.first, run.last, State.ACQUIRED, run.delivery_count + 1, member_id, now_ms, until_ms)

    # -- what becomes of them ---------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: Limits, now_ms: int
    ) -> list[Archived]:
        """Take what a member says of its records: all, or nothing at an error. Return the archived ones.

        Raises KafkaError: INVALID_REQUEST, INVALID_RECORD_STATE.
        """
        pieces: list[Acknowledgement] = []
        for each in acknowledgements:
            if each.last < self.start_offset:
                continue  # done before
            if each.first >= self._next or not self._runs:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE, "Batch record not found. The base offset is not found in the cache."
                )
            if each.last >= self._next:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Batch record not found. The last offset in request is past acquired records.",
                )
            for piece in pieces_of(each, self.start_offset):
                self._check(member_id, piece, pieces[-1].last if pieces else NO_OFFSET)
                pieces.append(piece)
        archived: list[Archived] = []
        for first, last, (kind,) in pieces:
            change = self._change(Kind(kind), limits, now_ms, archived)
            self._update(first, last, change, is_saved=kind != Kind.RENEW)
        self._advance()
        return archived

    def _check(self, member_id: str, piece: Acknowledgement, end: int) -> None:
        for run in self._within(piece.first, piece.last):
            if run.state is not State.ACQUIRED or piece.first <= end:
                what = "offset" if piece.first == piece.last else "batch"
                raise KafkaError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"The {what} cannot be acknowledged. The {what} is not acquired.",
                )
            if run.member_id != member_id:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of offset")

    def _change(self, kind: Kind, limits: Limits, now_ms: int, archived: list[Archived]) -> Callable[[Run], Run]:
        def change(run: Run) -> Run:
            if kind is Kind.RENEW:
                return run._replace(until_ms=now_ms + limits.lock_ms)
            if kind is Kind.ACCEPT:
                return run._replace(state=State.ACKNOWLEDGED)
            if kind is Kind.RELEASE and run.delivery_count < limits.delivery_count_limit:
                return run._replace(state=State.AVAILABLE)
            after = run._replace(state=State.ARCHIVED)
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
        merged: list[Run] = []
        for run in self._runs[done:]:
            if merged and merged[-1]._replace(first=0, last=0) == run._replace(first=0, last=0):
                merged[-1] = merged[-1]._replace(last=run.last)
            else:
                merged.append(run)
        self._runs = merged


def pieces_of(acknowledgement: Acknowledgement, start_offset: int) -> Iterator[Acknowledgement]:
    """The ranges of one kind, of the records that are not done yet."""
    first, last, kinds = acknowledgement
    if len(kinds) == 1:
        yield Acknowledgement(max(first, start_offset), last, kinds)
        return
    begin = 0
    for place in range(1, len(kinds) + 1):
        if place == len(kinds) or kinds[place] != kinds[begin]:
            if first + place - 1 >= start_offset:
                yield Acknowledgement(max(first + begin, start_offset), first + place - 1, (kinds[begin],))
            begin = place
