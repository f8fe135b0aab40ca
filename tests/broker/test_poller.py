"""When the poller calls those whose bytes have arrived."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from typing import NamedTuple

import pytest
import trio
import trio.testing

from minibroker.broker.network import arrivals
from minibroker.broker.network import poller as poller_module
from minibroker.broker.network.poller import Poller
from minibroker.broker.upkeep.afterwards import Afterwards
from minibroker.storage import real_time
from tests.without_linux import SELECT

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def arrivals_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poller waits by the epoll of Linux, or by the kqueue of another system."""
    if request.param == "kqueue":
        monkeypatch.setattr(arrivals, "select", SELECT)


BOTH_SYSTEMS = pytest.mark.parametrize(
    "arrivals_by", ["epoll", pytest.param("kqueue", marks=pytest.mark.pure)], indirect=True
)


@pytest.fixture
def sockets() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


class Reading:
    """The owner of a socket; calls `on_read` in place of reading, and has nothing to answer."""

    def __init__(self, on_read: Callable[[bool], None] = lambda is_end: None) -> None:
        self._on_read = on_read

    def read(self, is_end: bool) -> bool:
        self._on_read(is_end)
        return False

    def answer(self) -> None:
        raise AssertionError("it has read nothing")

    def send(self) -> None:
        raise AssertionError("it has answered nothing")


async def started(sockets: Pair, nursery: trio.Nursery) -> tuple[Poller, list[bool]]:
    """A poller that waits for the first of the sockets, and its calls for it."""
    calls: list[bool] = []
    poller = Poller()
    poller.register(sockets[0], Reading(calls.append))
    nursery.start_soon(poller.run)
    await trio.testing.wait_all_tasks_blocked()
    return poller, calls


@BOTH_SYSTEMS
@pytest.mark.usefixtures("arrivals_by")
async def test_a_connection_with_bytes_is_called_before_any_task_runs(sockets: Pair, nursery: trio.Nursery) -> None:
    ours, theirs = sockets
    order: list[str] = []
    other, their_other = socket.socketpair()

    async def note_the_task() -> None:
        await trio.lowlevel.wait_readable(other)
        order.append("task")

    def note_the_call(is_end: bool) -> None:
        with pytest.raises(RuntimeError):
            trio.lowlevel.current_task()
        order.append("called")

    poller = Poller()
    poller.register(ours, Reading(note_the_call))
    with other, their_other:
        nursery.start_soon(poller.run)
        nursery.start_soon(note_the_task)
        await trio.testing.wait_all_tasks_blocked()
        their_other.send(b"x")
        theirs.send(b"x")
        await trio.testing.wait_all_tasks_blocked()

    assert order == ["called", "task"]


@BOTH_SYSTEMS
@pytest.mark.usefixtures("arrivals_by")
async def test_the_end_of_a_stream_comes_with_the_bytes_before_it(sockets: Pair, nursery: trio.Nursery) -> None:
    _, calls = await started(sockets, nursery)

    sockets[1].send(b"x")
    await trio.testing.wait_all_tasks_blocked()
    sockets[1].close()
    await trio.testing.wait_all_tasks_blocked()

    assert calls == [False, True]


@BOTH_SYSTEMS
@pytest.mark.usefixtures("arrivals_by")
async def test_a_task_at_work_can_have_others_called(sockets: Pair, nursery: trio.Nursery) -> None:
    _, theirs = sockets
    poller, calls = await started(sockets, nursery)

    theirs.send(b"x")
    assert calls == []
    poller.give_way()

    assert calls == [False]


async def passes_until_asleep(poller: Poller, sockets: Pair, reading: Reading | None = None) -> int:
    """How often the loop goes round after a byte, before it sleeps."""
    ours, theirs = sockets
    poller.register(ours, reading or Reading())
    passes = 0

    class Passes(trio.abc.Instrument):
        def after_io_wait(self, timeout: float) -> None:
            nonlocal passes
            passes += 1

    async with trio.open_nursery() as polling:
        polling.start_soon(poller.run)
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(counting := Passes())
        theirs.send(b"x")
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(counting)
        polling.cancel_scope.cancel()
    return passes


async def test_without_busy_polling_the_loop_sleeps_at_once(sockets: Pair) -> None:
    assert await passes_until_asleep(Poller(), sockets) < 10


@pytest.mark.pure
async def test_with_busy_polling_the_loop_stays_awake_after_bytes(
    sockets: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(poller_module, "CORE_WANTED_SECONDS", 60.0)
    monkeypatch.setattr(os, "sched_yield", lambda: None)  # others take milliseconds, each time
    start = time.perf_counter()

    assert await passes_until_asleep(Poller(busy_poll_seconds=0.2), sockets) > 50
    assert time.perf_counter() - start >= 0.2


@pytest.mark.pure
async def test_an_awake_poller_calls_connections_without_a_pass_of_the_loop(
    sockets: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []

    def yield_to_others() -> None:
        if len(calls) == 1:
            sockets[1].send(b"x")

    monkeypatch.setattr(poller_module, "CORE_WANTED_SECONDS", 60.0)
    monkeypatch.setattr(poller_module, "TASKS_SECONDS", 60.0)
    monkeypatch.setattr(os, "sched_yield", yield_to_others)

    assert await passes_until_asleep(Poller(busy_poll_seconds=0.2), sockets, Reading(calls.append)) < 10
    assert len(calls) == 2


async def test_an_awake_poller_sleeps_when_other_processes_want_the_core(
    sockets: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def yield_to_others() -> None:
        time.sleep(poller_module.CORE_WANTED_SECONDS / 3)

    monkeypatch.setattr(os, "sched_yield", yield_to_others)

    assert await passes_until_asleep(Poller(busy_poll_seconds=60.0), sockets) < 20


class Connections:
    """Connections that answer each byte; `done` is the order of what they do, and `before_answer` is called first."""

    def __init__(self, count: int) -> None:
        self.done: list[str] = []
        self.before_answer: Callable[[int], object] = lambda number: None
        self.afterwards = Afterwards()
        self.poller = Poller(now_ms=lambda: 0, afterwards=self.afterwards)
        self.pairs = [socket.socketpair() for _ in range(count)]
        for number, (ours, _) in enumerate(self.pairs):
            ours.setblocking(False)
            self.poller.register(ours, Numbered(number, self))

    def ask(self, count: int) -> list[str]:
        """Have so many ask, let the poller call, and return what was done."""
        self.done.clear()
        for _, theirs in self.pairs[:count]:
            theirs.send(b"x")
        self.poller.give_way()
        return list(self.done)

    def close(self) -> None:
        for pair in self.pairs:
            for sock in pair:
                sock.close()


class Numbered(NamedTuple):
    """One of the connections of `Connections`."""

    number: int
    all: Connections

    def read(self, is_end: bool) -> bool:
        self.all.done.append(f"read {self.number}")
        return True

    def answer(self) -> None:
        self.all.before_answer(self.number)
        self.all.done.append(f"answered {self.number}")

    def send(self) -> None:
        self.all.done.append(f"sent {self.number}")


@pytest.fixture
def answering() -> Iterator[Callable[[int], Connections]]:
    with ExitStack() as at_end:

        def make(count: int) -> Connections:
            return at_end.enter_context(closing(Connections(count)))

        yield make


@pytest.fixture
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the poller's clock, which stands still."""
    now = [0.0]
    monkeypatch.setattr(real_time, "perf_counter", lambda: now[0])
    return now


def steps(*numbers: int) -> list[str]:
    """The steps taken for these connections, one after the other."""
    return [f"{step} {number}" for step in ("read", "answered", "sent") for number in numbers]


@pytest.mark.parametrize("count", [3, poller_module.TOGETHER + 2])
def test_so_many_connections_are_read_then_answered_then_sent_to(
    answering: Callable[[int], Connections], seconds: list[float], count: int
) -> None:
    together = poller_module.TOGETHER

    assert answering(count).ask(count) == steps(*range(count)[:together]) + steps(*range(count)[together:])


def test_an_answer_does_not_wait_for_others_that_take_long(
    answering: Callable[[int], Connections], seconds: list[float]
) -> None:
    five = answering(5)

    def take_long(number: int) -> None:
        seconds[0] += 0.6 * poller_module.TOGETHER_SECONDS

    five.before_answer = take_long

    in_twos = ["answered 0", "answered 1", "sent 0", "sent 1", "answered 2", "answered 3", "sent 2", "sent 3"]
    assert five.ask(5)[5:] == [*in_twos, "answered 4", "sent 4"]


def test_a_connection_is_no_longer_called_once_another_has_ended_it(
    answering: Callable[[int], Connections],
) -> None:
    many = answering(poller_module.TOGETHER + 1)

    def end_the_last(number: int) -> None:
        if number == 0:
            many.poller.unregister(many.pairs[-1][0])

    many.before_answer = end_the_last

    assert f"read {poller_module.TOGETHER}" not in many.ask(poller_module.TOGETHER + 1)


def test_work_that_answers_set_off_is_done_after_they_were_sent(
    answering: Callable[[int], Connections],
) -> None:
    two = answering(2)
    two.before_answer = lambda number: two.afterwards.call(partial(two.done.append, f"followed {number}"))

    assert two.ask(2) == [*steps(0, 1), "followed 0", "followed 1"]
    assert two.ask(1) == [*steps(0), "followed 0"]


def test_work_that_answers_set_off_is_done_before_more_is_read(
    answering: Callable[[int], Connections],
) -> None:
    many = answering(poller_module.TOGETHER + 2)

    def set_off(number: int) -> None:
        if number == 0:
            many.afterwards.call(partial(many.done.append, "followed 0"))

    many.before_answer = set_off
    done = many.ask(poller_module.TOGETHER + 2)

    assert done.index(f"sent {poller_module.TOGETHER - 1}") + 1 == done.index("followed 0")
    assert done.index("followed 0") + 1 == done.index(f"read {poller_module.TOGETHER}")


async def test_no_connection_is_called_after_the_end(sockets: Pair) -> None:
    _, theirs = sockets
    async with trio.open_nursery() as polling:
        _, calls = await started(sockets, polling)
        theirs.send(b"x")
        await trio.testing.wait_all_tasks_blocked()
        polling.cancel_scope.cancel()
    theirs.send(b"y")
    await trio.testing.wait_all_tasks_blocked()

    assert calls == [False]


async def test_a_read_gets_the_end_of_the_stream(sockets: Pair, nursery: trio.Nursery) -> None:
    _, theirs = sockets
    _, calls = await started(sockets, nursery)

    theirs.close()
    await trio.testing.wait_all_tasks_blocked()

    assert calls == [True]
