"""What follows an append: at once where the append is done, else when it is.

A transition that was begun must be ended, also when the client that asked for it has hung up: so an append that waits
for an fsync or for other replicas does it in the background, in a task that belongs to nobody's connection. What
follows is called from there; clients only wait for the result.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, Generic, TypeVar, cast

import trio

T = TypeVar("T")
U = TypeVar("U")


class Later(Generic[T]):
    """A value that will be known, whether or not anybody waits for it."""

    __slots__ = ("_error", "_followers", "_is_known", "_value")

    def __init__(self) -> None:
        self._is_known = trio.Event()
        self._followers: list[Callable[[T], None]] = []
        self._value: T | None = None
        self._error: Exception | None = None

    async def bring(self, making: Coroutine[Any, Any, T]) -> None:
        """Make the value known; whoever follows is called before whoever waits."""
        try:
            value = await making
        except Exception as error:
            self.fail(error)
            raise
        self.resolve(value)

    def resolve(self, value: T | Later[T]) -> None:
        if isinstance(value, Later):
            value.when_known(self.resolve)
            return
        self._value = value
        self._is_known.set()
        for follower in self._followers:
            follower(value)

    def fail(self, error: Exception) -> None:
        """A defect: there will be no value, and whoever waits is told."""
        self._error = error
        self._is_known.set()

    def when_known(self, follower: Callable[[T], None]) -> None:
        if self._is_known.is_set():
            follower(cast(T, self._value))
        else:
            self._followers.append(follower)

    async def wait(self) -> T:
        await self._is_known.wait()
        if self._error is not None:
            raise self._error
        return cast(T, self._value)


def in_background(
    start: Callable[[Coroutine[Any, Any, None]], None], outcome: T | Coroutine[Any, Any, T]
) -> T | Later[T]:
    """An append's outcome as it is; one that must be waited for is waited for by a task that `start` begins."""
    if not isinstance(outcome, CoroutineType):
        return cast(T, outcome)
    later: Later[T] = Later()
    start(later.bring(outcome))
    return later


def and_then(outcome: T | Later[T], follow: Callable[[T], U | Later[U]]) -> U | Later[U]:
    """What `follow` makes of the outcome, or the promise of it."""
    if not isinstance(outcome, Later):
        return follow(outcome)
    following: Later[U] = Later()

    def go_on(value: T) -> None:
        try:
            following.resolve(follow(value))
        except Exception as error:
            following.fail(error)
            raise

    outcome.when_known(go_on)
    return following


def answered(outcome: T | Coroutine[Any, Any, T] | Later[T], answer: Callable[[T], Any]) -> Any:
    """A handler's response, or the coroutine that waits for it."""
    if isinstance(outcome, Later | CoroutineType):
        return _answer_later(outcome, answer)
    return answer(cast(T, outcome))


async def _answer_later(outcome: Coroutine[Any, Any, T] | Later[T], answer: Callable[[T], Any]) -> Any:
    return answer(await (outcome.wait() if isinstance(outcome, Later) else outcome))
