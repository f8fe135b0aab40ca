"""Connections to the cluster, kept between requests: at most one for each of a few threads that ask.

A client blocks, so a question is a function of one that runs in a thread. The broker may have been started
again since a connection was last used: a question, which changes nothing, is then asked once more on a new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import trio

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected, failures_explained, wait_as_asked
from minibroker.client.client import Client
from minibroker.client.errors import ClientError, NoAnswer, Unsupported
from minibroker.console.answers import Refused
from minibroker.errors import CommandFailed
from minibroker.protocol.client_ids import OF_CONSOLE

THREADS_MAX = 8
PROPERTIES = {"client.id": OF_CONSOLE}

T = TypeVar("T")


class Connected(NamedTuple):
    """A client, and what closes it."""

    client: Client
    closing: ExitStack


class KafkaClients:
    """The clients of one cluster. Use it as a context manager."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = replace(cluster, properties=PROPERTIES | dict(cluster.properties))
        self._idle: list[Connected] = []
        self._lock = threading.Lock()
        self._limiter = trio.CapacityLimiter(THREADS_MAX)
        self._is_closed = False

    def __enter__(self) -> KafkaClients:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.closing.close()

    async def ask(self, question: Callable[[Any], T]) -> T:
        """The answer to a question that changes nothing. Raises CommandFailed."""
        return await self.in_thread(lambda: self._answer(question))

    async def act(self, action: Callable[[Any], T]) -> T:
        """The result of an action on a new connection: it is never done twice. Raises CommandFailed."""
        return await self.in_thread(lambda: self._used(self._connect(), action))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what blocks in a thread; when the page has gone, its thread ends by itself."""
        return await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)

    def _answer(self, question: Callable[[Any], T]) -> T:
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            try:
                return self._used(kept, question)
            except CommandFailed as error:
                if not lost_connection(error):
                    raise
        return self._used(self._connect(), question)

    def _used(self, connected: Connected, question: Callable[[Any], T]) -> T:
        """Keep the connection unless it failed."""
        try:
            with failures_explained(connected.client.address):
                wait_as_asked(self.cluster.properties)
                answer = question(connected.client)
        except BaseException:
            connected.closing.close()
            raise
        with self._lock:
            if not self._is_closed:
                self._idle.append(connected)
                return answer
        connected.closing.close()
        return answer

    def _connect(self) -> Connected:
        closing = ExitStack()
        return Connected(closing.enter_context(connected(self.cluster)), closing)


def lost_connection(error: CommandFailed) -> bool:
    """Whether a connection has ended, unlike that to a broker that refused, or that is silent."""
    cause = error.__cause__
    if isinstance(cause, NoAnswer):
        return not cause.is_silent
    return isinstance(cause, ClientError) and not isinstance(cause, Unsupported)


@contextmanager
def needing(what: str) -> Iterator[None]:
    """Raises Refused, saying what it takes, if the brokers do not know a request of the block."""
    try:
        yield
    except Unsupported:
        raise Refused(501, what) from None
