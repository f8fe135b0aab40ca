"""How a request waits: `Pending`, a value that is not known yet, from the purgatory to the connection.

A function that cannot answer at once returns a Pending. During the wait no task or coroutine runs for it. The event
that ends the wait (an append, a follower's fetch, the last member to join, a deadline) resolves the Pending, and every
step added by `then` runs in that call, down to the connection's send. A value that is known stays a plain value: only
the function `then` distinguishes the two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import trio

from minibroker.purgatory.timing_wheel import TimerTask

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K", bound=Hashable)


class Abandonable(Protocol):
    """The source of a Pending, which can stop its work if the value is no longer needed."""

    def abandon(self) -> object: ...


class Pending(Generic[T]):
    """A value that steps work on (`then`), and that one follower takes: a connection (`when_known`) or a task (`wait`).

    Abandoning a Pending without a `source` does not stop its work: a decided transaction is completed, and an appended
    commit counts, even if the client has hung up.
    """

    __slots__ = ("_call", "_error", "_is_ended", "_source", "_steps", "_value", "is_known")

    def __init__(self, source: Abandonable | None = None) -> None:
        self.is_known = False
        self._is_ended = False  # resolved or failed; the value is known after the steps
        self._source = source
        self._steps: tuple[Any, ...] = ()  # the pairs of `then`, flat: thousands of requests may wait
        self._call: Callable[[], object] | None = None
        self._value: Any = None
        self._error: Exception | None = None

    @property
    def source(self) -> Abandonable | None:
        """The maker of the value, if it can be abandoned; None once that has ended."""
        return self._source

    def resolve(self, value: T | Pending[T]) -> None:
        """Make the value known, or take over that of another Pending. Only the first call counts."""
        if not self._is_ended:
            self._end(value, None)

    def fail(self, error: Exception) -> None:
        """End without a value: `result` and `wait` raise `error`."""
        if not self._is_ended:
            self._end(None, error)

    def result(self) -> T:
        """Return the value, once it is known. Raises the error of a failed Pending."""
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def outcome(self) -> T | Pending[T]:
        """Return the value if it is known, else this Pending. Raises as `result`."""
        return self.result() if self.is_known else self

    @overload
    def then(
        self, follow: Callable[[T], Pending[U]], recover: Callable[[Exception], U | Pending[U]] | None = None
    ) -> Pending[U]: ...

    @overload
    def then(
        self, follow: Callable[[T], U | Pending[U]], recover: Callable[[Exception], U | Pending[U]] | None = None
    ) -> Pending[U]: ...

    def then(
        self, follow: Callable[[T], Any], recover: Callable[[Exception], U | Pending[U]] | None = None
    ) -> Pending[U]:
        """Become a Pending of the result of `follow` on the value, or of `recover` on an error, else of the error.

        Return this same Pending, by its new type: a wait is one object, however many steps it has.
        """
        assert self._call is None, "no step comes after the follower"
        self._steps += (follow, recover)
        if self.is_known:
            self.is_known = False
            self._end(self._value, self._error)
        return cast("Pending[U]", self)

    def recovered(self, recover: Callable[[Exception], T | Pending[T]]) -> Pending[T]:
        """Become a Pending of the value, or of the result of `recover` on an error; return it as `then`."""
        return self.then(unchanged, recover)

    def when_known(self, call: Callable[[], object]) -> None:
        """Call `call` once, as soon as `result` is available."""
        assert self._call is None, "a Pending has one follower"
        if self.is_known:
            call()
        else:
            self._call = call

    def abandon(self) -> None:
        """Give up the value, and let the source end the wait; the steps still run if a value comes."""
        if not self.is_known:
            self._call = ignore
            self._abandon_source()

    async def wait(self) -> T:
        """Wait for the value in this task; abandon it if the task is cancelled. Raises as `result`."""
        if not self.is_known:

            def leave(_: object) -> trio.lowlevel.Abort:
                self.abandon()
                return trio.lowlevel.Abort.SUCCEEDED

            self.when_known(partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))
            await trio.lowlevel.wait_task_rescheduled(leave)
        return self.result()

    def _end(self, value: Any, error: Exception | None) -> None:
        """Take the steps, up to one that waits in its turn; without such a step the value is known."""
        self._is_ended = True
        self._source = None  # it refers to this Pending: without the cycle both are freed at once
        while True:
            if isinstance(value, Pending):
                self._source = value
                value.when_known(partial(self._take, value))
                return
            if not self._steps:
                break
            follow, recover, *_ = self._steps
            self._steps = self._steps[2:]
            try:
                if error is None:
                    value = follow(value)
                elif recover is not None:
                    value = recover(error)
                    error = None
            except Exception as raised:
                value, error = None, raised
        self._value, self._error, self.is_known = value, error, True
        call, self._call = self._call, None
        if call is not None:
            call()
        elif error is not None:
            logger.error("a Pending without a follower failed: a defect of minibroker", exc_info=error)

    def _take(self, other: Pending[Any]) -> None:
        self._end(other._value, other._error)

    def _abandon_source(self) -> None:
        """Stop the work of the source; a Pending that a step has returned still brings its value."""
        source, self._source = self._source, None
        if isinstance(source, Pending):
            source._abandon_source()
        elif source is not None:
            source.abandon()


class Timeout(TimerTask):
    """Calls `action` at its deadline."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self._action = action

    def on_timeout(self) -> None:
        self._action()


class Delay(TimerTask):
    """A value that is known from the start, in a `pending` that has it at a time of the timer's clock, in ms."""

    __slots__ = ("_timer", "_value", "pending")

    def __init__(self, timer: Any, until_ms: int, value: Any) -> None:
        super().__init__()
        self.pending: Pending[Any] = Pending(self)
        self._value = value
        self._timer = timer
        timer.add(self, until_ms)

    def on_timeout(self) -> None:
        self.pending.resolve(self._value)

    def abandon(self) -> None:
        self._timer.cancel(self)


def unchanged(value: T) -> T:
    return value


def ignore() -> None:
    """The follower of an abandoned Pending: its value, or its error, concerns no client any more."""


def gather(outcomes: Mapping[K, T | Pending[T]]) -> dict[K, T] | Pending[dict[K, T]]:
    """Return all values by key: at once if they are known, else a Pending of them, which fails with the first error."""
    waiting = {key: each for key, each in outcomes.items() if type(each) is Pending}
    values = cast("dict[K, T]", dict(outcomes))
    if not waiting:
        return values
    gathered: Pending[dict[K, T]] = Pending()
    left = set(waiting)

    def take(key: K) -> None:
        try:
            values[key] = waiting[key].result()
        except Exception as error:
            gathered.fail(error)
        left.discard(key)
        if not left:
            gathered.resolve(values)

    for key, each in waiting.items():
        each.when_known(partial(take, key))
    return gathered.outcome()


def then(outcome: T | Pending[T], follow: Callable[[T], U | Pending[U]]) -> U | Pending[U]:
    """Return the result of `follow` on the value: at once if it is known, else a Pending of it."""
    return outcome.then(follow) if type(outcome) is Pending else follow(cast(T, outcome))
