"""How a request waits: `Pending`, a value that is not known yet, from the purgatory to the connection.

A function that cannot answer at once returns a Pending. During the wait no task or coroutine runs for it. The event
that ends the wait (an append, a follower's fetch, the last member to join, a deadline) resolves the Pending, and every
step added by `then` runs in that call, down to the connection's send. A value that is known stays a plain value: only
the function `then` distinguishes the two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import trio

logger = logging.getLogger(__name__)

T = TypeVar("T")
U = TypeVar("U")


class Abandonable(Protocol):
    """The source of a Pending, which can stop its work if the value is no longer needed."""

    def abandon(self) -> object: ...


class Pending(Generic[T]):
    """A value that one follower takes: a step (`then`), a connection (`when_known`) or a task (`wait`).

    Abandoning a Pending without a `source` does not stop its work: a decided transaction is completed, and an appended
    commit counts, even if the client has hung up.
    """

    __slots__ = ("_error", "_follow", "_following", "_recover", "_source", "_value", "is_known")

    def __init__(self, source: Abandonable | None = None) -> None:
        self.is_known = False
        self._source = source
        self._value: T | None = None
        self._error: Exception | None = None
        self._follow: Callable[..., Any] | None = None
        self._recover: Callable[[Exception], Any] | None = None
        self._following: Pending[Any] | None = None

    def resolve(self, value: T | Pending[T]) -> None:
        """Make the value known, or take over that of another Pending. Only the first call counts."""
        if isinstance(value, Pending):
            self._source = value
            value.when_known(partial(self._take, value))
        elif not self.is_known:
            self._value = value
            self._become_known()

    def fail(self, error: Exception) -> None:
        """End without a value: `result` and `wait` raise `error`."""
        if self.is_known:
            return
        self._error = error
        if self._follow is None and self._following is None:
            logger.error("a Pending without a follower failed: a defect of minibroker", exc_info=error)
        self._become_known()

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
        """Return a Pending of the result of `follow` on the value, or of `recover` on an error, else of the error."""
        assert self._follow is None, "a Pending has one follower"
        following: Pending[U] = Pending(self)
        self._follow, self._recover, self._following = follow, recover, following
        if self.is_known:
            self._become_known()
        return following

    def recovered(self, recover: Callable[[Exception], T | Pending[T]]) -> Pending[T]:
        """Return a Pending of the value, or of the result of `recover` on an error."""
        return self.then(lambda value: value, recover)

    def when_known(self, call: Callable[[], object]) -> None:
        """Call `call` once, as soon as `result` is available."""
        assert self._follow is None, "a Pending has one follower"
        self._follow = call
        if self.is_known:
            self._become_known()

    def abandon(self) -> None:
        """Give up the value, and let the source end the wait; the steps still run if a value comes."""
        if self.is_known:
            return
        if self._following is None:
            self._follow = ignore
        if self._source is not None:
            self._source.abandon()

    async def wait(self) -> T:
        """Wait for the value in this task; abandon it if the task is cancelled. Raises as `result`."""
        if not self.is_known:

            def leave(_: object) -> trio.lowlevel.Abort:
                self.abandon()
                return trio.lowlevel.Abort.SUCCEEDED

            self.when_known(partial(trio.lowlevel.reschedule, trio.lowlevel.current_task()))
            await trio.lowlevel.wait_task_rescheduled(leave)
        return self.result()

    def _become_known(self) -> None:
        self.is_known = True
        follow, recover, following = self._follow, self._recover, self._following
        self._follow = self._recover = self._following = None
        if following is None:
            if follow is not None:
                follow()
            return
        try:
            if self._error is None:
                assert follow is not None
                value = follow(self._value)
            elif recover is not None:
                value = recover(self._error)
            else:
                following.fail(self._error)
                return
        except Exception as error:
            following.fail(error)
        else:
            following.resolve(value)

    def _take(self, other: Pending[T]) -> None:
        try:
            value = other.result()
        except Exception as error:
            self.fail(error)
        else:
            self.resolve(value)


def ignore() -> None:
    """The follower of an abandoned Pending: its value, or its error, concerns no client any more."""


def then(outcome: T | Pending[T], follow: Callable[[T], U | Pending[U]]) -> U | Pending[U]:
    """Return the result of `follow` on the value: at once if it is known, else a Pending of it."""
    return outcome.then(follow) if type(outcome) is Pending else follow(cast(T, outcome))
