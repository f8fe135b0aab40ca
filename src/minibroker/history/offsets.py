"""Does each offset have one record, and each record one offset?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from minibroker.history.findings import DUPLICATE, INCONSISTENT_OFFSET, Actor, Finding, found, shown
from minibroker.history.logs import Judged, Log
from minibroker.history.model import Outcome, Value, agree


def check_offsets(judged: Judged) -> Iterator[Finding]:
    for log in judged.logs.values():
        yield from inconsistent(judged, log)
        yield from duplicates(judged, log)


def inconsistent(judged: Judged, log: Log) -> Iterator[Finding]:
    """Polls that disagree about an offset, or polls with an acknowledged send, or two acknowledged sends."""
    views: dict[int, dict[Value, Actor]] = defaultdict(dict)
    partition = log.partition
    for offset, value, poll in partition.conflicts:
        first = partition.seen[offset]
        views[offset].setdefault(first.value, first.poll)
        views[offset].setdefault(value, poll)
    for offset, send in log.acknowledged.items():
        sight = partition.seen.get(offset)
        if sight is not None and not agree(sight.value, send.value) and judged.outcome(send) is Outcome.OK:
            views[offset].setdefault(sight.value, sight.poll)
            views[offset].setdefault(send.value, send)
    for offset, one, other in log.conflicts:
        if judged.outcome(one) is judged.outcome(other) is Outcome.OK:
            views[offset].setdefault(one.value, one)
            views[offset].setdefault(other.value, other)
    for offset, by_value in sorted(views.items()):
        views_named = ", ".join(f"{shown(value)} to {judged.named(by)}" for value, by in by_value.items())
        text = f"{partition} offset {offset} was {views_named}"
        yield found(INCONSISTENT_OFFSET, partition, [offset], by_value, by_value.values(), text)


def duplicates(judged: Judged, log: Log) -> Iterator[Finding]:
    """Values at more offsets than they were sent to."""
    partition = log.partition
    for value, offsets in repeated_values(judged, log).items():
        if len(offsets) > 1:
            send = next(log.repeated[offset] for offset in offsets if offset in log.repeated)
            polls = [partition.seen[offset].poll for offset in offsets if offset in partition.seen]
            where = ", ".join(map(str, offsets))
            text = f"{partition} has {shown(value)} of {judged.named(send)} at the offsets {where}"
            yield found(DUPLICATE, partition, offsets, [value], [send, *polls], text)


def repeated_values(judged: Judged, log: Log) -> dict[Value, list[int]]:
    """The offsets of each value that is where its sends did not write it, with those where they did."""
    by_value: dict[Value, list[int]] = defaultdict(list)
    for offset in log.repeated:
        by_value[log.partition.seen[offset].value].append(offset)
    for offset, send in [*log.writers.items(), *log.acknowledged.items()] if by_value else ():
        if send.value in by_value and offset not in by_value[send.value] and judged.outcome(send) is not Outcome.FAILED:
            by_value[send.value].append(offset)
    return {value: sorted(offsets) for value, offsets in by_value.items()}
