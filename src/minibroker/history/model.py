"""A history in memory: what each process sent and polled, in which transaction, and what was answered.

A reader of a file calls the methods of `History` in the order of the file. Times are of the file too: the number of a
line, or the nanoseconds of a transcript. So an operation that ended before another began has a lower number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import NamedTuple

Value = str | int | None  # None: a record of which only the offset is known
AFTER_ALL = 2**63 - 1  # the time of what did not happen


class HistoryError(Exception):
    """The file is not a history, or is damaged; one line that names the place and the next step."""


def agree(one: Value, other: Value) -> bool:
    """Whether two views of a record may be of the same one."""
    return one == other or one is None or other is None


class Outcome(IntEnum):
    """How an operation ended."""

    OK = 0
    FAILED = 1  # without effect
    UNKNOWN = 2  # it may have had its effect, or may still have it


class Transaction:
    """All that a process sends and polls from a begin to its end; FAILED unless its commit was asked for."""

    __slots__ = ("_is_in_doubt", "began", "commit_asked", "ended", "outcome", "process")

    def __init__(self, process: Process, at: int) -> None:
        self.process = process
        self.began = at
        self.commit_asked = AFTER_ALL
        self.ended = AFTER_ALL
        self.outcome = Outcome.FAILED
        self._is_in_doubt = False  # a commit was asked for twice, and the first one may have had its effect

    def ask_commit(self, at: int) -> None:
        """Note that a commit was asked for; from now on its records may be seen."""
        self.commit_asked = min(at, self.commit_asked)
        self._is_in_doubt = self.outcome is Outcome.UNKNOWN
        self.outcome = Outcome.UNKNOWN

    def end_commit(self, at: int, outcome: Outcome) -> None:
        self.ended = at
        if not (outcome is Outcome.FAILED and self._is_in_doubt):
            self.outcome = outcome

    def abort(self, at: int) -> None:
        self.ended = at
        self.outcome = Outcome.FAILED


class Send:
    """One record on its way to a partition; the partition is None as long as it is unknown."""

    __slots__ = ("began", "ended", "offset", "outcome", "partition", "process", "topic", "transaction", "value")

    def __init__(
        self,
        process: Process,
        topic: str,
        partition: Partition | None,
        value: Value,
        at: int,
        transaction: Transaction | None,
    ) -> None:
        self.process = process
        self.topic = topic
        self.partition = partition
        self.value = value
        self.offset: int | None = None  # as acknowledged
        self.began = at
        self.ended = AFTER_ALL
        self.outcome = Outcome.UNKNOWN
        self.transaction = transaction

    @property
    def may_be_seen_from(self) -> int:
        """The time before which no read_committed poll may return it."""
        return self.began if self.transaction is None else self.transaction.commit_asked

    def end(self, at: int, outcome: Outcome, offset: int | None = None) -> None:
        self.ended = at
        self.outcome = outcome
        self.offset = offset


class Run(NamedTuple):
    """Records that a poll returned one after the other, of one partition, without a gap in their offsets."""

    partition: Partition
    first: int
    last: int


class Poll:
    """A poll that returned records."""

    __slots__ = ("began", "committed_only", "ended", "process", "runs", "transaction")

    def __init__(self, process: Process, began: int, ended: int, *, committed_only: bool) -> None:
        self.process = process
        self.began = began
        self.ended = ended
        self.committed_only = committed_only
        self.transaction = process.transaction
        self.runs: list[Run] = []


class Moved(NamedTuple):
    """A consumer was placed: only the given positions hold from now on."""

    positions: dict[Partition, int]
    keeps_others: bool


class Sight(NamedTuple):
    """A record as the first poll returned it, and the first poll that returns only committed records."""

    value: Value
    poll: Poll
    committed: Poll | None


class Partition:
    """Everything that is known of one partition."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number
        self.sends: list[Send] = []
        self.seen: dict[int, Sight] = {}
        self.conflicts: list[tuple[int, Value, Poll]] = []  # values that differ from the one seen first
        self.deleted_below = 0
        self.read_from: int | None = None  # the lowest offset that a consumer began at; None if none did
        self.is_awaited = False  # a consumer was there to read it
        self.is_cut = False  # some of what was sent or polled is not in the file

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    def read_begins(self, offset: int) -> None:
        self.read_from = offset if self.read_from is None else min(offset, self.read_from)
        self.await_reads()

    def await_reads(self) -> None:
        self.is_awaited = True

    def cut(self) -> None:
        self.is_cut = True

    def delete_below(self, offset: int) -> None:
        self.deleted_below = max(offset, self.deleted_below)

    def see(self, offset: int, value: Value, poll: Poll) -> None:
        committed = poll if poll.committed_only else None
        sight = self.seen.get(offset)
        if sight is None:
            self.seen[offset] = Sight(value, poll, committed)
            return
        if sight.value is None and value is not None:
            self.seen[offset] = sight._replace(value=value)
        elif not agree(value, sight.value):
            self.conflicts.append((offset, value, poll))
            return
        if committed is not None and sight.committed is None:
            self.seen[offset] = self.seen[offset]._replace(committed=committed)


class Process:
    """Operations that follow each other: of a thread of a test, or of a connection of a client."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transaction: Transaction | None = None  # the one in hand
        self.sends: list[Send] = []
        self.reading: list[Poll | Moved] = []
        self._reads: set[Partition] = set()  # where it has begun to read since it was last placed

    def read(self, poll: Poll) -> None:
        """Note a poll. One of unknown beginning counts as from the beginning of the log."""
        self.reading.append(poll)
        for run in poll.runs:
            if run.partition not in self._reads:
                self._reads.add(run.partition)
                run.partition.read_begins(0)

    def move(self, moved: Moved) -> None:
        self.reading.append(moved)
        if not moved.keeps_others:
            self._reads.clear()
        self._reads.update(moved.positions)

    def begin(self, at: int) -> Transaction:
        self.transaction = Transaction(self, at)
        return self.transaction

    def leave_transaction(self) -> None:
        """Let what follows be outside the transaction, whatever becomes of it."""
        self.transaction = None


class History:
    """The operations of all processes. `place` makes of a time what a reader of the file finds."""

    def __init__(self, place: Callable[[int], str], *, skew: int = 0) -> None:
        self.place = place
        self.skew = skew  # times of several clocks that differ by less have no order
        self.operations = 0
        self.processes: dict[str, Process] = {}
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.unplaced: list[Send] = []
        self.subscribed: set[str] = set()
        self.notes: list[str] = []  # what could not be judged, in lines for people

    def process(self, name: str) -> Process:
        found = self.processes.get(name)
        if found is None:
            found = self.processes[name] = Process(name)
        return found

    def partition(self, topic: str, number: int) -> Partition:
        found = self.partitions.get((topic, number))
        if found is None:
            found = self.partitions[topic, number] = Partition(topic, number)
        return found

    def send(
        self, process: Process, topic: str, number: int | None, value: Value, at: int, transaction: Transaction | None
    ) -> Send:
        """Begin a send."""
        partition = None if number is None else self.partition(topic, number)
        send = Send(process, topic, partition, value, at, transaction)
        (self.unplaced if partition is None else partition.sends).append(send)
        process.sends.append(send)
        self.operations += 1
        return send

    def end_send(self, send: Send, at: int, outcome: Outcome, number: int | None, offset: int | None) -> None:
        if send.partition is None and number is not None:
            send.partition = self.partition(send.topic, number)
        send.end(at, outcome, offset)

    def poll(
        self,
        process: Process,
        began: int,
        ended: int,
        records: Iterable[tuple[Partition, int, Value]],
        *,
        committed_only: bool,
    ) -> None:
        """Note the records that a poll returned, in their order."""
        poll = Poll(process, began, ended, committed_only=committed_only)
        runs = poll.runs
        open_runs: dict[Partition, tuple[int, int]] = {}
        for partition, offset, value in records:
            partition.see(offset, value, poll)
            first, last = open_runs.get(partition, (offset, offset - 1))
            if offset != last + 1:
                runs.append(Run(partition, first, last))
                first = offset
            open_runs[partition] = (first, offset)
        runs += [Run(partition, first, last) for partition, (first, last) in open_runs.items()]
        self.operations += 1
        if runs:
            process.read(poll)

    def move(
        self,
        process: Process,
        positions: dict[Partition, int],
        *,
        awaited: Iterable[Partition] = (),
        keeps_others: bool = False,
    ) -> None:
        """Note that a consumer was assigned or sought; earlier reads say nothing about later ones."""
        process.move(Moved(positions, keeps_others))
        self.operations += 1
        for partition, offset in positions.items():
            partition.read_begins(offset)
        for partition in awaited:
            partition.await_reads()

    def subscribe(self, process: Process, topics: Iterable[str]) -> None:
        """Note that a group will assign partitions of these topics."""
        self.subscribed.update(topics)
        self.move(process, {})

    def finish(self) -> History:
        """Give each send of unknown partition to the one in which its value was seen. Call it at the end."""
        wanted = {(send.topic, send.value) for send in self.unplaced if send.partition is None}
        homes: dict[tuple[str, Value], Partition] = {}
        for partition in self.partitions.values():
            if partition.topic in self.subscribed:
                partition.await_reads()
            for sight in partition.seen.values() if wanted else ():
                if (partition.topic, sight.value) in wanted:
                    homes.setdefault((partition.topic, sight.value), partition)
        for send in self.unplaced:
            if send.partition is None:
                send.partition = homes.get((send.topic, send.value))
            if send.partition is not None:
                send.partition.sends.append(send)
        self.unplaced = []
        return self
