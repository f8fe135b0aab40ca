"""How long a command or a page waits for a broker that is slower than the others: one deadline for all its questions.

Whoever waits for an answer asks `left_seconds`. Without a deadline, which is so outside of commands and pages that
show something, it waits for as long as the question itself allows.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PATIENCE_SECONDS = 4.4  # so that a command shows within 5 s what it has


class Deadline:
    """A time of the monotonic clock."""

    def __init__(self, until: float) -> None:
        self.until = until


_deadline: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


@contextmanager
def limited() -> Iterator[None]:
    """The questions inside have PATIENCE_SECONDS in all; less, if there is a deadline that comes before."""
    token = _deadline.set(Deadline(min(until(), time.monotonic() + PATIENCE_SECONDS)))
    try:
        yield
    finally:
        _deadline.reset(token)


def lift() -> None:
    """Wait from now on for as long as each question allows: the user asked for that, or something is to change."""
    deadline = _deadline.get()
    if deadline is not None:
        deadline.until = math.inf


def until() -> float:
    """The deadline as a time of the monotonic clock; infinite without one."""
    deadline = _deadline.get()
    return math.inf if deadline is None else deadline.until


def left_seconds(at_least: float = 0.0) -> float:
    """The time until the deadline, which may have passed; infinite without one."""
    return max(at_least, until() - time.monotonic())
