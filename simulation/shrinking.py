"""Makes the plan of a finding smaller: fewest clients and faults that still lead to one of its kind.

And finds the event after which it could not be averted any more.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection

from minibroker.simulation.plan import Plan
from minibroker.simulation.run import run
from minibroker.simulation.world import World

Fails = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Fails, seconds: float) -> Plan:
    """Leave out what can be, larger parts first, for so long at most."""
    deadline = time.monotonic() + seconds
    size = max(1, len(plan.events) // 2)
    while size:
        start, is_smaller = 0, False
        while start < len(plan.events):
            if time.monotonic() > deadline:
                return plan
            smaller = plan.without(plan.events[start : start + size])
            if fails(smaller):
                plan, is_smaller = smaller, True
            else:
                start += size
        size = size if is_smaller and size == 1 else size // 2
    return plan


def places_of(plan: Plan, whole: Plan) -> list[int]:
    """The places that the events of a smaller plan have in the whole one."""
    return [index for index, each in enumerate(whole.events) if each in plan.events]


def only(plan: Plan, places: Collection[int]) -> Plan:
    """The plan with the events at these places alone."""
    return plan.without([each for index, each in enumerate(plan.events) if index not in places])


SHOWN_EVENTS = 12


def cause_of(plan: Plan, kind: str, events: int) -> list[str]:
    """The last events up to the one after which a finding comes though the faults end. The whole run has `events`.

    Whether the faults end after one event or after the next changes all that follows, so this is a boundary, and there
    may be others.
    """
    harmless, fatal = 0, events
    while fatal - harmless > 1:
        middle = (harmless + fatal) // 2
        is_found = any(each.kind == kind for each in run(plan, cut_at=middle).findings)
        harmless, fatal = (harmless, middle) if is_found else (middle, fatal)
    last: deque[str] = deque(maxlen=SHOWN_EVENTS)

    def note(world: World, event: tuple[object, ...]) -> None:
        if world.events <= fatal:
            last.append(f"{world.seconds():.3f} {world.events} {described(event)}")

    run(plan, cut_at=fatal, on_event=note)
    return list(last)


def described(event: tuple[object, ...]) -> str:
    """An event in a line: bytes by their number, history by its row."""
    texts = [f"{len(each)} bytes" if isinstance(each, bytes | bytearray) else str(each) for each in event]
    return " ".join(texts)[:160]
