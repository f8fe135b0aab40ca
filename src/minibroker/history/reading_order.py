"""Does a consumer go on where it was, until it is assigned anew?"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from minibroker.history.findings import POLL_BACK, POLL_SKIP, Finding, found, shown
from minibroker.history.logs import Judged
from minibroker.history.model import Moved, Partition, Poll, Process, Run
from minibroker.protocol.text import counted


class Position(NamedTuple):
    """The next offset of a consumer, and the poll that left it there; None if it was sought."""

    next: int
    poll: Poll | None


def check_reading_order(judged: Judged) -> Iterator[Finding]:
    for process in judged.history.processes.values():
        yield from polls_in_order(judged, process)


def polls_in_order(judged: Judged, process: Process) -> Iterator[Finding]:
    positions: dict[Partition, Position] = {}
    for step in process.reading:
        if isinstance(step, Moved):
            if not step.keeps_others:
                positions.clear()
            positions |= {partition: Position(offset, None) for partition, offset in step.positions.items()}
            continue
        for run in step.runs:
            position = positions.get(run.partition)
            if position is not None and run.first < position.next:
                yield back(judged, step, run, position)
            elif position is not None and run.first > position.next:
                yield from skipped(judged, step, run, position)
            positions[run.partition] = Position(run.last + 1, step)


def back(judged: Judged, poll: Poll, run: Run, position: Position) -> Finding:
    if position.poll is None:
        before = f"whose position was {position.next}"
    else:
        before = f"which had polled up to offset {position.next - 1} ({judged.history.place(position.poll.ended)})"
    actors = [poll] if position.poll is None else [position.poll, poll]
    text = f"{run.partition} offset {run.first} was polled by {judged.named(poll)}, {before}"
    return found(POLL_BACK, run.partition, [position.next - 1, run.first], (), actors, text)


def skipped(judged: Judged, poll: Poll, run: Run, position: Position) -> Iterator[Finding]:
    visible = judged.visible[run.partition]
    begin = max(position.next, run.partition.deleted_below)
    offsets = visible[bisect_left(visible, begin) : bisect_left(visible, run.first)]
    if not offsets:
        return
    sight = run.partition.seen[offsets[0]]
    others = f"{counted(len(offsets), 'record')} from offset {offsets[0]} {shown(sight.value)} on"
    text = (
        f"{run.partition} offset {run.first} was polled by {judged.named(poll)} at position {position.next},"
        f" past {others} that {judged.named(sight.poll)} polled"
    )
    actors = [each for each in (position.poll, poll, sight.poll) if each is not None]
    yield found(POLL_SKIP, run.partition, offsets, [sight.value], actors, text)
