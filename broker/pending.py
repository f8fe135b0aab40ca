"""How a request waits: `Pending`, a value that is not known yet, from the purgatory to the connection.

What cannot be answered at once returns a Pending. Nothing runs meanwhile, no task and no coroutine. What ends the wait
(an append, a follower's fetch, the last member to join, a deadline) resolves it, and every step that `then` has added
runs in that call, down to the connection's send. A plain value stays a plain value all the way: only `then`, the
function, looks at which of the two it has.
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
    """What a Pending comes from, where it need not go on once its value is of no use."""

    def abandon(self) -> object: ...


class Pending(Generic[T]):
    """A value that one follower takes: a step (`then`), a connection (`when_known`) or a task (`wait`).

    A value that has no `source` comes whether or not it is wanted: a transaction that was decided is completed, a
    commit that was appended counts, even if the client has hung up.
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
        """Make the value known, or let it be that of another Pending. Only the first counts."""
        if isinstance(value, Pending):
            self._source = value
            value.when_known(partial(self._take, value))
        elif not self.is_known:
            self._value = value
            self._become_known()

    def fail(self, error: Exception) -> None:
        """Make it known that there is no value: `result` and `wait` raise `error`."""
        if self.is_known:
            return
        self._error = error
        if self._follow is None and self._following is None:
            logger.error("a value that nothing waits for failed: a defect of minibroker", exc_info=error)
        self._become_known()

    def result(self) -> T:
        """The value, once it is known. Raises what it failed with."""
        if self._error is not None:
            raise self._error
        return cast(T, self._value)

    def outcome(self) -> T | Pending[T]:
        """The value if it is known by now, else this. Raises as `result`."""
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
        """What `follow` makes of the value, or `recover` of an error; without `recover` an error is passed on."""
        assert self._follow is None, "a Pending has one follower"
        following: Pending[U] = Pending(self)
        self._follow, self._recover, self._following = follow, recover, following
        if self.is_known:
            self._become_known()
        return following

    def recovered(self, recover: Callable[[Exception], T | Pending[T]]) -> Pending[T]:
        """The value, or what `recover` makes of an error."""
        return self.then(lambda value: value, recover)

    def when_known(self, call: Callable[[], object]) -> None:
        """Have `call` called once, as soon as `result` can be asked for."""
        assert self._follow is None, "a Pending has one follower"
        self._follow = call
        if self.is_known:
            self._become_known()

    def abandon(self) -> None:
        """Take no value. Its source may end the wait; steps on the way run if a value comes all the same."""
        if self.is_known:
            return
        if self._following is None:
            self._follow = None
        if self._source is not None:
            self._source.abandon()

    async def wait(self) -> T:
        """Have this task wait for the value; abandon it when the task is cancelled. Raises as `result`."""
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


def then(outcome: T | Pending[T], follow: Callable[[T], U | Pending[U]]) -> U | Pending[U]:
    """What `follow` makes of a value: at once where it is known, else when it will be."""
    return outcome.then(follow) if type(outcome) is Pending else follow(cast(T, outcome))
