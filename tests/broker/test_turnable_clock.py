"""Turning the clock: everything due happens, in its order, in tasks and threads, before the turn returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio

from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.wings.testing.control import turnable_clock
from minibroker.broker.wings.testing.control.turnable_clock import (
    EXACT_STEPS_MAX,
    LONG_STEPS,
    TURNED_SECONDS_MAX,
    ClockTurner,
    TurnableClock,
    check_advance,
)
from minibroker.purgatory.timing_wheel import TimerTask

DAY = 86_400.0
SOON_SECONDS = 20.0  # of real time: far less than any turn here


class Turned(TurnableClock):
    """The clock that a test runs on, and what happened when."""

    def __init__(self) -> None:
        super().__init__()
        self.turner = ClockTurner(self)
        self.events: list[str] = []
        self.ticks = 0
        self._started: float | None = None

    def start_clock(self) -> None:
        super().start_clock()
        self._started = self.current_time()

    def note(self, what: str) -> None:
        """With the whole seconds that have passed, real time being next to nothing."""
        assert self._started is not None
        self.events.append(f"{what} at {self.current_time() - self._started:.0f}")

    async def after(self, seconds: float, what: str) -> None:
        await trio.sleep(seconds)
        self.note(what)

    async def tick(self, seconds: float) -> None:
        while True:
            await trio.sleep(seconds)
            self.ticks += 1


class Timeout(TimerTask):
    def __init__(self, act: Callable[[], None]) -> None:
        super().__init__()
        self.on_timeout = act  # type: ignore[method-assign]


@pytest.fixture
def turned() -> Iterator[Turned]:
    began = time.monotonic()
    yield Turned()
    assert time.monotonic() - began < SOON_SECONDS


async def test_a_turn_returns_when_all_that_is_due_has_happened(turned: Turned, nursery: trio.Nursery) -> None:
    for seconds in (30, 10, 20, 61):
        nursery.start_soon(turned.after, seconds, "slept")

    await turned.turner.advance(60)
    assert turned.events == ["slept at 10", "slept at 20", "slept at 30"]

    await turned.turner.advance(2)
    assert turned.events[3:] == ["slept at 61"]


async def test_timers_and_sleepers_keep_the_order_of_their_deadlines(turned: Turned, nursery: trio.Nursery) -> None:
    timers = TimerLoop(turned)
    nursery.start_soon(timers.run)
    now_ms = turned.monotonic_ms()
    for seconds in (40, 20, 60):
        timers.timer.add(Timeout(partial(turned.note, "timer")), now_ms + seconds * 1000)
    for seconds in (30, 50, 10):
        nursery.start_soon(turned.after, seconds, "sleeper")

    await turned.turner.advance(61)

    assert turned.events == [f"{'timer' if each % 20 == 0 else 'sleeper'} at {each}" for each in range(10, 61, 10)]


async def test_a_timeout_that_another_has_set_fires_in_the_same_turn(turned: Turned, nursery: trio.Nursery) -> None:
    async def session_then_rebalance() -> None:
        await turned.after(10, "session")
        await turned.after(5, "rebalance")

    nursery.start_soon(session_then_rebalance)
    nursery.start_soon(turned.after, 12, "poll")

    await turned.turner.advance(20)

    assert turned.events == ["session at 10", "poll at 12", "rebalance at 15"]


async def test_a_turn_waits_for_threads_and_for_work_that_follows_them(turned: Turned, nursery: trio.Nursery) -> None:
    async def delete_in_a_thread() -> None:
        await trio.sleep(10)
        await trio.to_thread.run_sync(time.sleep, 0.05)
        await trio.lowlevel.checkpoint()
        turned.note("deleted")

    nursery.start_soon(delete_in_a_thread)
    nursery.start_soon(turned.after, 11, "later")

    await turned.turner.advance(11)

    assert turned.events == ["deleted at 10", "later at 11"]


async def test_a_thread_that_does_not_end_is_not_waited_for(
    turned: Turned, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    monkeypatch.setattr(turnable_clock, "PATIENCE_SECONDS", 0.05)

    nursery.start_soon(partial(trio.to_thread.run_sync, time.sleep, 0.5, abandon_on_cancel=True))
    nursery.start_soon(turned.after, 10, "slept")
    await turned.turner.advance(11)

    assert turned.events == ["slept at 10"]
    assert "did not come to rest" in caplog.text


async def test_a_month_takes_few_steps_and_makes_up_for_no_ticks(turned: Turned, nursery: trio.Nursery) -> None:
    nursery.start_soon(turned.tick, 1)
    nursery.start_soon(turned.after, 200, "first")
    nursery.start_soon(turned.after, 20 * DAY, "late")

    await turned.turner.advance(30 * DAY)

    assert turned.events[0] == "first at 200"
    assert turned.events[1].startswith("late at 1")
    assert 300 <= turned.ticks <= 300 + LONG_STEPS + 2


async def test_a_task_that_sleeps_again_and_again_cannot_make_a_turn_endless(
    turned: Turned, nursery: trio.Nursery
) -> None:
    nursery.start_soon(turned.tick, 0.001)
    began = time.monotonic()

    await turned.turner.advance(60)

    in_real_time = int((time.monotonic() - began) * 1000) + 10
    assert turned.ticks <= EXACT_STEPS_MAX + LONG_STEPS + in_real_time


async def test_both_clocks_are_turned_and_go_on_as_real_ones(turned: Turned) -> None:
    wall_ms, monotonic_ms = turned.turner.now(), turned.monotonic_ms()

    await turned.turner.advance(DAY)
    await turned.turner.advance(0.5)

    for passed_ms in (turned.turner.now() - wall_ms, turned.monotonic_ms() - monotonic_ms):
        assert 0 <= passed_ms - (DAY * 1000 + 500) < 2000
    before_ms = turned.turner.now()
    await trio.sleep(0.01)
    assert turned.turner.now() >= before_ms + 10


async def test_of_two_turns_the_second_begins_when_the_first_is_done(turned: Turned, nursery: trio.Nursery) -> None:
    async def turn() -> None:
        await turned.turner.advance(10)
        turned.note("turned")

    nursery.start_soon(turned.after, 15, "slept")
    async with trio.open_nursery() as turns:
        turns.start_soon(turn)
        turns.start_soon(turn)

    assert turned.events == ["turned at 10", "slept at 15", "turned at 20"]


@pytest.mark.parametrize(
    ("reason", "seconds"),
    [
        ("forward only", [-1]),
        ("not a number", [float("nan"), True, "30", None]),
        ("too far", [float("inf"), TURNED_SECONDS_MAX, 10**400]),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_turn_by_no_time_is_refused(reason: str, seconds: list[Any]) -> None:
    for each in seconds:
        with pytest.raises(ValueError, match=reason):
            check_advance(each, turned_seconds=1.0)
