"""Makes the plan of a finding smaller: fewest clients and faults that still lead to one of its kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from minibroker.simulation.plan import Plan

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
