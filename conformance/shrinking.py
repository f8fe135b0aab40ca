"""Makes a conversation that is answered differently as small as it gets: fewer steps, then less in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from minibroker.conformance.steps import Batch, Joined, ProducerOf, Script, SessionOf, Step, Told

MAX_TRIALS = 250


def shrunk(script: Script, is_different: Callable[[Script], bool]) -> Script:
    """The smallest script found that still makes a difference."""
    left = MAX_TRIALS

    def accepts(candidate: Script) -> bool:
        nonlocal left
        left -= 1
        return left > 0 and is_different(candidate)

    script = fewer_steps(script, accepts)
    has_changed = True
    while has_changed and left > 0:
        has_changed = False
        for number, step in enumerate(script):
            for smaller in smaller_steps(step):
                candidate = [*script[:number], smaller, *script[number + 1 :]]
                if accepts(candidate):
                    script, has_changed = candidate, True
                    break
    return script


def fewer_steps(script: Script, accepts: Callable[[Script], bool]) -> Script:
    """Take away stretches of steps, long ones first; the first step creates the topics and stays."""
    size = max(1, len(script) // 2)
    while True:
        position, has_changed = 1, False
        while position < len(script):
            candidate = [*script[:position], *script[position + size :]]
            if accepts(candidate):
                script, has_changed = candidate, True
            else:
                position += size
        if size == 1 and not has_changed:
            return script
        size = max(1, size // 2)


def essential_steps(script: Script) -> Script:
    """The last step, the first one, which creates the topics, and those whose answers the last one uses."""
    last = script[-1]
    kept, used = [last], set(used_by(last.body))
    for step in reversed(script[:-1]):
        is_awaited = last.kind in ("look", "take") and step.kind == "park" and step.connection == last.connection
        if step is script[0] or is_awaited or step.name in used:
            kept.append(step)
            used |= set(used_by(step.body))
    return kept[::-1]


def used_by(value: Any) -> Iterator[str]:
    """The names of the steps whose answers are put into a request."""
    if isinstance(value, Told | SessionOf | ProducerOf):
        yield value.step
    elif isinstance(value, Batch):
        yield from used_by(value.producer)
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from used_by(each)


def smaller_steps(step: Step) -> Iterator[Step]:
    """The step with one thing less: a topic, a partition, a record, a config."""
    topics = step.body.get("topics")
    if not topics:
        return
    for smaller in without_one(topics):
        if smaller:
            yield replace(step, body={**step.body, "topics": smaller})
    for number, topic in enumerate(topics):
        for place, part in enumerate(topic):
            for smaller in smaller_parts(part):
                changed = (*topic[:place], smaller, *topic[place + 1 :])
                yield replace(step, body={**step.body, "topics": [*topics[:number], changed, *topics[number + 1 :]]})


def smaller_parts(part: Any) -> Iterator[Any]:
    if not isinstance(part, list):
        return
    yield from without_one(part)
    for number, row in enumerate(part):
        if isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], Batch | Joined):
            for records in smaller_records(row[1]):
                yield [*part[:number], (row[0], records), *part[number + 1 :]]


def smaller_records(records: Batch | Joined) -> Iterator[Batch | Joined]:
    if isinstance(records, Joined):
        for parts in without_one(records.parts):
            if parts:
                yield replace(records, parts=parts)
        return
    for rows in without_one(records.rows):
        if rows:
            yield replace(records, rows=rows)
    if records.codec:
        yield replace(records, codec=0)


def without_one(items: Any) -> Iterator[Any]:
    for number in range(len(items)):
        yield items[:number] + items[number + 1 :]
