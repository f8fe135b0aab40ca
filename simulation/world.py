"""The world of a simulation: its processes, its time, and the order in which all of it happens.

One trio run holds every process: brokers and clients. Time jumps to the next deadline, or the next thing on the
timetable, when nothing is left to do. The order of tasks, and all that is drawn, follow from the seed. `World.note`
adds each event to a digest: two runs of a seed are equal if their digests are.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import trio
from trio._core import _run as loop  # its order of tasks, and its queue, are not to be had in another way

from minibroker.broker.time.clock import Clock

MOST_STEPS_AT_ONCE = 20_000
EPOCH_MS = 1_700_000_000_000  # of the simulated wall clock when it starts


class Died(BaseException):
    """The process of the caller has ended: nothing of it may handle this."""


class Process:
    """A broker, or a client. `crash_at` and `failing` count the calls that it makes of its disk.

    `after_step` is called after each of its steps while it lives.
    """

    def __init__(self, name: str, after_step: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.is_blocked = False  # in a call that waits
        self.blocked_until = 0.0
        self.scope = trio.CancelScope()
        self.calls = 0
        self.crash_at = 0  # the number of a call, 0 for none
        self.failing: dict[int, int] = {}  # errno by the number of a call
        self.after_step = after_step

    def end(self) -> None:
        """Run no more."""
        self.is_alive = False
        self.scope.cancel()

    def count_call(self) -> None:
        """Count a call of its disk."""
        self.calls += 1

    def crash_after(self, calls: int) -> None:
        """Die at its disk call of that number from now; 0 for none."""
        self.crash_at = self.calls + calls if calls else 0

    def hold(self, *, is_paused: bool) -> None:
        self.is_paused = is_paused

    @property
    def is_held(self) -> bool:
        """Whether it takes no steps."""
        return self.is_paused or self.is_blocked

    def __repr__(self) -> str:
        return self.name


PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class WallClock(Clock):
    """The clocks of a process. Its wall clock may jump, by `offset_ms`."""

    def __init__(self, offset_ms: int = 0) -> None:
        self.offset_ms = offset_ms

    def jump(self, by_ms: int) -> None:
        self.offset_ms += by_ms

    def wall_ms(self) -> int:
        return EPOCH_MS + self.monotonic_ms() + self.offset_ms


class Timed:
    """Something on the timetable."""

    __slots__ = ("at", "call")

    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at = at
        self.call: Callable[[], object] | None = call  # None once it is not to happen any more

    def cancel(self) -> None:
        self.call = None


class Time(trio.abc.Clock):
    """A clock that jumps when nothing is left to do, with a timetable: what is on it needs no task of its own."""

    def __init__(self, on_move: Callable[[], object]) -> None:
        self._on_move = on_move  # before what is on the timetable
        self.now = 0.0
        self._has_news = False
        self._table: list[tuple[float, int, Timed]] = []  # with numbers in the order in which it was put there
        self._numbers = count()

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Go on to the next moment; trio's loop asks for this where no task can run."""
        if self._has_news:
            self._has_news = False
            return 0.0
        table = self._table
        while table and table[0][2].call is None:
            heappop(table)
        self.now = max(self.now, min(deadline, table[0][0]) if table else deadline)
        self._on_move()
        while table and table[0][0] <= self.now:
            call = heappop(table)[2].call
            if call is not None:
                call()
        return 0.0

    def note_news(self) -> None:
        """Have time stay until the loop has polled once more: something is there for those whom it calls then."""
        self._has_news = True

    def at(self, when: float, call: Callable[[], object]) -> Timed:
        """Call this at that time, in no task."""
        timed = Timed(when, call)
        heappush(self._table, (when, next(self._numbers), timed))
        return timed

    async def sleep(self, seconds: float) -> None:
        """In place of trio.sleep."""
        if seconds <= 0:
            await trio.lowlevel.checkpoint()
            return
        timed = self.at(self.now + seconds, partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))

        def wake_up(_: object) -> trio.lowlevel.Abort:
            timed.cancel()
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(wake_up)


class RunQueue:
    """The tasks that trio runs next. Those of a process that is stopped (SIGSTOP), or in a call that waits, stay where
    they are."""

    def __init__(self, tasks: deque[Any]) -> None:
        self._ready = list(tasks)
        self._held: list[Any] = []

    def append(self, task: Any) -> None:
        process = task.context.get(PROCESS)
        (self._held if process is not None and process.is_held else self._ready).append(task)

    def sort_out(self) -> None:
        """Hold and release tasks, after processes were stopped and woken."""
        tasks, self._held, self._ready = [*self._held, *self._ready], [], []
        for task in tasks:
            self.append(task)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._ready)

    def __len__(self) -> int:
        return len(self._ready)

    def clear(self) -> None:
        self._ready = []


class Steps(trio.abc.Instrument):
    """Tells the world which process takes a step."""

    def __init__(self, world: World) -> None:
        self._world = world

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._world.step(task)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._world.end_step()


OnEvent = Callable[["World", tuple[object, ...]], None]


class OrderOfTasks:
    """In place of trio's generator, which shuffles the tasks of a batch: each draws its place for itself."""

    def __init__(self, world: World) -> None:
        self._world = world

    def shuffle(self, tasks: list[Any]) -> None:
        source = self._world.source
        tasks.sort(key=lambda task: source("order", task.context.get(PROCESS)).random())


class Chance(Random):
    """Draws from the generator of the process that runs."""

    def __init__(self, world: World) -> None:
        super().__init__(0)
        self._world = world

    def random(self) -> float:
        return self._world.random.random()

    def getrandbits(self, bits: int, /) -> int:
        return self._world.random.getrandbits(bits)


class World:
    """`random` is for what happens, never for what is planned. Each process draws from a generator of its own, and so
    does each fault: without one of them the others draw the same, and a run differs only by what has followed from it.

    `cut` is set with the event that has the number `cut_at`, and `on_event` gets each.
    """

    def __init__(self, seed: int, *, cut_at: int = 0, on_event: OnEvent | None = None) -> None:
        self._seed = seed
        self._sources: dict[tuple[str, str], Random] = {}
        self.current: Process | None = None
        self.events = 0
        self.steps = 0
        self.busy = ""  # who took steps without end
        self._scope = trio.CancelScope()  # of the run
        self._moved_at, self._steps_then = -1.0, 0
        self.clock = Time(self._leave)
        self._digest = hashlib.blake2b(digest_size=8)
        self._queue: RunQueue | None = None
        self.cut = trio.Event()
        self._cut_at = cut_at
        self._on_event = on_event
        vars(loop)["_ALLOW_DETERMINISTIC_SCHEDULING"] = True

    @property
    def random(self) -> Random:
        """The generator of the process that runs."""
        return self.source("process", self.current)

    def source(self, kind: str, owner: object) -> Random:
        """Return the generator of an owner, by its name, for a kind of things."""
        key = kind, str(owner)
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = Random(f"world {self._seed} {kind} {owner}")
        return found

    def begin(self, scope: trio.CancelScope) -> None:
        """Take over the loop; call it in the run, which this scope ends."""
        self._scope = scope
        trio.lowlevel.add_instrument(Steps(self))
        runner = loop.GLOBAL_RUN_CONTEXT.runner
        self._queue = RunQueue(runner.runq)
        runner.runq = self._queue  # type: ignore[assignment]

    def step(self, task: trio.lowlevel.Task) -> None:
        """A task takes a step. Ends the run where steps go on without end, and time does not."""
        self.current = task.context.get(PROCESS)
        self.steps += 1
        now = self.clock.now
        if now != self._moved_at:
            self._moved_at, self._steps_then = now, self.steps
        elif self.steps > self._steps_then + MOST_STEPS_AT_ONCE:
            self._steps_then = self.steps
            self.busy = f"{self.current} does not wait in {task.name}"
            self._scope.cancel()

    def end_step(self) -> None:
        """The task's step has ended."""
        process = self.current
        if process is not None and process.is_alive:
            process.after_step()

    def end(self) -> None:
        """End the run."""
        self._scope.cancel()

    def seconds(self) -> float:
        return self.clock.now

    def own_seconds(self) -> float:
        """The time of the process that runs, which is ahead in a call that waits."""
        return self.seconds() if self.current is None else max(self.seconds(), self.current.blocked_until)

    def block(self, until: float) -> None:
        """Have the process that runs stand still until then, in a call that waits.

        What follows in its step happens at once, and as if it were then: nobody else takes a step in between.
        """
        process = self.process()
        process.blocked_until = max(process.blocked_until, until)
        if process.blocked_until > self.seconds() and not process.is_blocked:
            process.is_blocked = True
            self._sort_out()
            self.clock.at(process.blocked_until, partial(self._unblock, process))

    def _unblock(self, process: Process) -> None:
        if process.blocked_until > self.seconds():  # by a later call of the same step
            self.clock.at(process.blocked_until, partial(self._unblock, process))
            return
        process.is_blocked = False
        self._sort_out()

    def note(self, *event: object) -> None:
        """Add an event to the digest of the run."""
        self.events += 1
        self._digest.update(repr(event).encode())
        if self._on_event is not None:
            self._on_event(self, event)
        if self.events == self._cut_at:
            self.cut.set()

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    def process(self) -> Process:
        """The process that runs now. Raises Died for one that has ended."""
        process = self.current
        if process is None:
            raise RuntimeError("no process of the simulation runs")
        if not process.is_alive:
            raise Died(process.name)
        return process

    def enter(self, process: Process) -> None:
        """Count what follows outside of a task as steps of this process, and tasks that it starts as its own."""
        self.current = process
        PROCESS.set(process)

    def _leave(self) -> None:
        """Count what follows as steps of no process."""
        self.current = None
        PROCESS.set(None)

    @contextmanager
    def acting_as(self, process: Process) -> Iterator[None]:
        """Take steps of a process from outside."""
        before, self.current = self.current, process
        token = PROCESS.set(process)
        try:
            yield
        finally:
            PROCESS.reset(token)
            self.current = before

    def pause(self, process: Process, *, is_paused: bool) -> None:
        """Stop a process, or have it go on."""
        process.hold(is_paused=is_paused)
        self._sort_out()

    def _sort_out(self) -> None:
        if self._queue is not None:
            self._queue.sort_out()
        self.clock.note_news()


async def wait_for(is_so: Callable[[], object], waiting: trio.lowlevel.ParkingLot) -> None:
    """Wait until something is so; let others run at least once, as trio's own waits do."""
    if is_so():
        await trio.lowlevel.checkpoint()
    while not is_so():
        await waiting.park()


def wake(waiting: trio.lowlevel.ParkingLot) -> None:
    """Wake the tasks that wait, if any do."""
    if waiting:
        waiting.unpark_all()
