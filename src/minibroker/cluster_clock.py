"""The clock of a cluster: time passes for all its brokers at once.

Brokers tell by each other's heartbeats who lives. So all are turned in small steps together, and none is ahead of the
others by more than one step: a healthy broker always has had its heartbeat, one that is paused has not, and expires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from minibroker.errors import BrokerError

if TYPE_CHECKING:
    from minibroker.control import Control

BEATS = 6  # of a broker in zookeeper.session.timeout.ms
SMALL_STEPS_SECONDS = 60.0
LARGE_STEPS = 50


class ClusterClock:
    """`Cluster.clock`. Each method raises BrokerError if no broker runs."""

    def __init__(self, controls: Callable[[], Mapping[int, Control]]) -> None:
        self._controls = controls
        self._turned_seconds = 0.0
        self._turned_of: dict[int, float] = {}

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass for all brokers at once; return when everything due in them has happened.

        The first minute goes by in steps of a sixth of zookeeper.session.timeout.ms, and in each of them from deadline
        to deadline: followers go on fetching, and a paused broker expires. The rest goes by in 50 steps at most, in
        each of which what is due happens once. After a step that is longer than replica.lag.time.max.ms followers may
        fetch first: one that still does not leaves the in-sync replicas a moment after the advance.
        Raises BrokerError for a negative time, and beyond 100 years in all.
        """
        left = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if not left >= 0:
            raise BrokerError(f"a clock advances forward only, not by {left} s")
        controls = self._controls()
        if not controls:
            raise BrokerError("no broker of the cluster runs; start one")
        status = next(iter(controls.values())).call("cluster.status")
        small_seconds = status["session_timeout_ms"] / 1000 / BEATS
        small_left = min(left, SMALL_STEPS_SECONDS)
        large_seconds = (left - small_left) / LARGE_STEPS
        with ThreadPoolExecutor(len(controls)) as threads:
            while small_left > 0:
                step = min(small_left, small_seconds)
                self._turn(threads, controls, step, at_once=False)
                small_left -= step
            for _ in range(LARGE_STEPS if large_seconds > 0 else 0):
                self._turn(threads, controls, large_seconds, at_once=True)

    def _turn(
        self, threads: ThreadPoolExecutor, controls: Mapping[int, Control], seconds: float, *, at_once: bool
    ) -> None:
        turns = [
            threads.submit(control.call, "clock.advance", seconds=seconds, at_once=at_once)
            for control in controls.values()
        ]
        for turn in turns:
            turn.result()
        self._turned_seconds += seconds
        for broker_id in controls:
            self._turned_of[broker_id] = self._turned_of.get(broker_id, 0.0) + seconds

    def now(self) -> datetime:
        """The time of the brokers in UTC: real time plus all it was advanced by."""
        for control in self._controls().values():
            return datetime.fromtimestamp(control.call("clock.now") / 1000, UTC)
        raise BrokerError("no broker of the cluster runs; start one")

    def catch_up(self, broker_id: int, *, has_started: bool) -> None:
        """A broker has started, or goes on after a pause: it gets the time that has passed for the others."""
        if has_started:
            self._turned_of[broker_id] = 0.0
        missing = self._turned_seconds - self._turned_of.get(broker_id, 0.0)
        if missing > 0:
            self._controls()[broker_id].call("clock.advance", seconds=missing, at_once=True)
            self._turned_of[broker_id] = self._turned_seconds
