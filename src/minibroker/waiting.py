"""Waits until a test's condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from minibroker.errors import BrokerError

POLL_SECONDS = 0.01

T = TypeVar("T")


class WaitError(AssertionError):
    """A condition did not hold in time; the message has what came instead."""


def wait_for(condition: Callable[[], T], *, timeout: float, check: Callable[[], None], scene: Callable[[], str]) -> T:
    """The first result of `condition` that is true.

    After `timeout` seconds raises WaitError, with the last result or error and the `scene`. `check` raises when
    waiting has no more use.
    """
    deadline = time.monotonic() + timeout
    while True:
        cause: Exception | None = None
        try:
            result = condition()
            if result:
                return result
            last = f"returned {result!r}"
        except (AssertionError, BrokerError) as error:
            cause, last = error, f"raised {type(error).__name__}: {error}"
        check()
        if time.monotonic() >= deadline:
            name = getattr(condition, "__name__", repr(condition))
            what = "the condition" if name == "<lambda>" else name
            raise WaitError(f"after {timeout:g} s {what} still {last}\n{scene()}".rstrip()) from cause
        time.sleep(POLL_SECONDS)
