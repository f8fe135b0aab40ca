"""Finds a page of records that match, from a position on or backwards from one, within a budget of time and records.

A page has one of four ends: it is full, everything was read, the budget is used up (the cursor goes on there), or a
partition failed; the others are read all the same, and so is what lies behind a batch that cannot be read. The ends of
partitions are known before anything is read, and empty ones never are.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from minibroker.any_cluster.batch_fetching import Fetched, Found, Unreadable
from minibroker.console.fetching import fetch
from minibroker.console.matching_records import Search
from minibroker.console.metadata import TopicRow

SECONDS_MAX = 2.0
RECORDS_MAX = 50_000
BYTES_MAX = 64 << 20
WINDOW_OF_SEARCH = 2_000  # offsets that a search goes back at a time
WINDOW_MAX = 20_000
SHRINK = 16


class Page(NamedTuple):
    """`state` is full, end, stopped or failed; `cursor` is where the next page begins, by partition."""

    rows: list[Found]
    state: str
    cursor: dict[int, int]
    scanned: int
    failure: str | None
    unreadable: list[Unreadable]  # of what was looked through for it


@dataclass
class Budget:
    """The most that one page may take."""

    seconds: float = SECONDS_MAX
    records: int = RECORDS_MAX
    data_bytes: int = BYTES_MAX
    scanned: int = 0
    _scanned_bytes: int = 0
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    def spend(self, fetched: Fetched) -> None:
        self.scanned += len(fetched.records)
        self._scanned_bytes += sum(len(each.record.value or b"") for each in fetched.records)

    def renew(self) -> None:
        self._until = time.monotonic() + self.seconds
        self.scanned = self._scanned_bytes = 0

    @property
    def is_spent(self) -> bool:
        return self.scanned >= self.records or self._scanned_bytes >= self.data_bytes or time.monotonic() >= self._until


class Span(NamedTuple):
    """The offsets of a partition that there are to read."""

    start: int
    end: int


@dataclass
class Partition:
    """How far the search has come in a partition: forward at `position`, or backwards down to it."""

    position: int
    span: Span
    matches: list[Found] = field(default_factory=list)
    is_done: bool = False
    unreadable: dict[int, Unreadable] = field(default_factory=dict)  # by where they end
    failure: str | None = None

    def take(self, fetched: Fetched, before: int) -> None:
        """Note what could not be read before that offset; a failure ends the partition here."""
        for each in fetched.unreadable:
            first = min(each.first, self.unreadable.get(each.next, each).first)
            if first < before:
                self.unreadable[each.next] = each._replace(first=first)
        if fetched.failure is not None:
            self.failure = fetched.failure
            self.is_done = True


def merged(matches: list[list[Found]], count: int, *, backwards: bool) -> tuple[list[Found], list[Found]]:
    """The first `count` by time, each partition's in the order of its offsets; and the next one of each partition."""
    sign = -1 if backwards else 1
    heap: list[tuple[int, int, Iterator[Found], Found]] = []

    def push(rest: Iterator[Found]) -> None:
        found = next(rest, None)
        if found is not None:
            heapq.heappush(heap, (sign * found.record.timestamp_ms, found.partition, rest, found))

    for each in matches:
        push(iter(sorted(each, key=lambda found: sign * found.record.offset)))
    rows: list[Found] = []
    while heap and len(rows) < count:
        *_, rest, found = heapq.heappop(heap)
        rows.append(found)
        push(rest)
    return rows, [found for *_, found in heap]


@dataclass
class Scan:
    """The bounds of a page: it begins at `positions`, and `spans` has the offsets that there are."""

    client: Any
    topic: TopicRow
    positions: Mapping[int, int]
    spans: Mapping[int, Span]
    search: Search
    count: int
    committed: bool = False
    budget: Budget = field(default_factory=Budget)

    def partitions(self, *, backwards: bool) -> dict[int, Partition]:
        """The partitions that have something to read in that direction."""
        found = {}
        for at, position in self.positions.items():
            if at not in self.spans:
                continue
            span = self.spans[at]
            begin = min(position, span.end) if backwards else max(position, span.start)
            if begin > span.start if backwards else begin < span.end:
                found[at] = Partition(begin, span)
        return found

    def page(self, partitions: Mapping[int, Partition], *, backwards: bool) -> Page:
        """The records found, and the cursor of the next page."""
        failure = next((f"partition {at}: {each.failure}" for at, each in partitions.items() if each.failure), None)
        unreadable = [each for at in sorted(partitions) for _, each in sorted(partitions[at].unreadable.items())]
        rows, rest = merged([each.matches for each in partitions.values()], self.count, backwards=backwards)
        if backwards:
            cursor = {at: each.position for at, each in partitions.items() if each.position > each.span.start}
            cursor |= {left.partition: left.record.offset + 1 for left in rest}
        else:
            cursor = {at: each.position for at, each in partitions.items() if each.position < each.span.end}
            cursor |= {left.partition: left.record.offset for left in rest}
        return Page(rows, state_of(rows, cursor, self.count, failure), cursor, self.budget.scanned, failure, unreadable)


def read_forward(scan: Scan) -> Page:
    """The first records from these offsets on, oldest first."""
    matches, budget = scan.search.matcher(), scan.budget
    partitions = scan.partitions(backwards=False)
    left_out: set[int] = set()
    while not budget.is_spent:
        open_ones = {at: each.position for at, each in partitions.items() if not each.is_done}
        if not open_ones:
            break
        answers = fetch(scan.client, scan.topic, first_the(left_out, open_ones), committed=scan.committed)
        left_out = without_progress(answers, open_ones)
        for fetched in answers:
            partition = partitions[fetched.partition]
            partition.take(fetched, partition.span.end)
            if len(left_out) == len(answers):
                partition.is_done = True  # leaders that have nothing there: the logs end in a transaction or a marker
            budget.spend(fetched)
            inside = [each for each in fetched.records if each.record.offset < partition.span.end]
            partition.matches += [each for each in inside if matches(each.record)]
            partition.position = fetched.next
            if partition.position >= partition.span.end or len(partition.matches) >= scan.count:
                partition.is_done = True
    return scan.page(partitions, backwards=False)


def read_backwards(scan: Scan) -> Page:
    """The last records before these offsets, newest first."""
    matches, budget = scan.search.matcher(), scan.budget
    partitions = scan.partitions(backwards=True)
    window = scan.count if scan.search.is_open else WINDOW_OF_SEARCH
    while not budget.is_spent:
        open_ones = {at: each for at, each in partitions.items() if not each.is_done}
        if not open_ones:
            break
        lower = {at: max(each.span.start, each.position - window) for at, each in open_ones.items()}
        upper = {at: each.position for at, each in open_ones.items()}
        found, is_whole = read_windows(scan, open_ones, lower, upper)
        if not is_whole:
            has_moved = any(each.position < min(scan.positions[at], each.span.end) for at, each in partitions.items())
            if has_moved or window == 1:
                break
            window = max(1, window // SHRINK)  # large records: without this, a page could never get past them
            budget.renew()
            continue
        for at, partition in open_ones.items():
            partition.matches += [each for each in found.get(at, ()) if matches(each.record)]
            if partition.failure is None or at in found:
                partition.position = lower[at]
            partition.is_done = (
                partition.failure is not None
                or lower[at] <= partition.span.start
                or len(partition.matches) >= scan.count
            )
        window = min(window * 2, WINDOW_MAX)
    return scan.page(partitions, backwards=True)


def read_windows(
    scan: Scan, partitions: Mapping[int, Partition], lower: Mapping[int, int], upper: Mapping[int, int]
) -> tuple[dict[int, list[Found]], bool]:
    """Everything in these offsets, unless the budget ends first: then the last part is False."""
    found: dict[int, list[Found]] = {}
    positions = dict(lower)
    left_out: set[int] = set()
    while positions:
        if scan.budget.is_spent:
            return found, False
        answers = fetch(scan.client, scan.topic, first_the(left_out, positions), committed=scan.committed)
        left_out = without_progress(answers, positions)
        is_over = len(left_out) == len(answers)
        for fetched in answers:
            at = fetched.partition
            partitions[at].take(fetched, upper[at])
            scan.budget.spend(fetched)
            inside = [each for each in fetched.records if each.record.offset < upper[at]]
            if inside:
                found.setdefault(at, []).extend(inside)
            if partitions[at].is_done or fetched.next >= upper[at] or is_over:
                del positions[at]
            else:
                positions[at] = fetched.next
    return found, True


def without_progress(answers: list[Fetched], positions: Mapping[int, int]) -> set[int]:
    """The partitions that returned no batch; if others filled the answer, a batch may still be there (KIP-74)."""
    return {each.partition for each in answers if not each.records and each.next <= positions[each.partition]}


def first_the(left_out: set[int], positions: Mapping[int, int]) -> dict[int, int]:
    """The positions, those first that were left out: the first in a request is sure to get a batch."""
    return dict(sorted(positions.items(), key=lambda each: each[0] not in left_out))


def state_of(rows: list[Found], cursor: Mapping[int, int], count: int, failure: str | None) -> str:
    if failure is not None:
        return "failed"
    if not cursor:
        return "end"
    return "full" if len(rows) >= count else "stopped"


def first_of(topic: TopicRow, spans: Mapping[int, Span], choose: Callable[[Span], int]) -> dict[int, int]:
    """A position in each partition that has something to read."""
    return {at: choose(span) for at, span in spans.items() if span.end > span.start}
