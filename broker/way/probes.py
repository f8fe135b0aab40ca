"""Observers of requests: a tracer, counters, a transcript. They see each step of the way, and change nothing.

    opened(client)                      a connection
    began(exchange)                     a frame has arrived; nothing is decoded
    asked(exchange)                     its request is decoded
    parked(operation)                   an operation waits in a purgatory, most often for the request in hand
    waits(exchange, source)             the request has no answer yet; `source` is what it waits for, if one is known
    woken(purgatory, operation, ending) the wait of an operation has ended; it has not answered yet
    answered(exchange)                  its answer is known, before it is encoded
    handed(exchange, chunks)            the connection gets the response, None for none
    refused(exchange, error)            the connection is closed instead
    refused_append(partition, error, size_bytes)
    sent(client, is_in_the_call)        its socket has taken all responses so far, at once or by its task
    closed(client, reason)              a connection; the reason is empty if the client left

A request that is answered at once goes from `began` to `handed` in one call. What it wakes is answered in the same
call. A step without a probe costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.way.exchange import Exchange
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.delayed_operation import DelayedOperation, Ending
from minibroker.purgatory.purgatory import Purgatory


class Probe:
    """Overrides the steps that it looks at; see the module. It must neither raise nor wait."""

    def opened(self, client: Client) -> None: ...

    def began(self, exchange: Exchange) -> None: ...

    def asked(self, exchange: Exchange) -> None: ...

    def parked(self, operation: DelayedOperation) -> None: ...

    def waits(self, exchange: Exchange, source: object) -> None: ...

    def woken(self, purgatory: Purgatory, operation: DelayedOperation, ending: Ending) -> None: ...

    def answered(self, exchange: Exchange) -> None: ...

    def handed(self, exchange: Exchange, chunks: list[Any] | None) -> None: ...

    def refused(self, exchange: Exchange, error: Exception) -> None: ...

    def refused_append(self, topic_partition: TopicPartition, error: ErrorCode, size_bytes: int) -> None: ...

    def sent(self, client: Client, is_in_the_call: bool) -> None: ...

    def closed(self, client: Client, reason: str) -> None: ...


class Probes:
    """The observers that look now. The parts of the way get this one object, and call the functions that it has."""

    def __init__(self) -> None:
        self._looking: tuple[Probe, ...] = ()
        self._when_changed: list[Callable[[], None]] = []
        self._when_closed: list[Callable[[Client, str], None]] = []
        self._find()

    def add(self, probe: Probe) -> None:
        """Let a probe look from now on, behind the others."""
        self.remove(probe)
        self._looking += (probe,)
        self._find()

    def remove(self, probe: Probe) -> None:
        self._looking = tuple([each for each in self._looking if each is not probe])
        self._find()

    def when_changed(self, call: Callable[[], None]) -> None:
        """Call `call` when a probe has begun or ended to look."""
        self._when_changed.append(call)

    def when_closed(self, call: Callable[[Client, str], None]) -> None:
        """Have this called with each connection that ends, and with the reason, also while no probe looks."""
        self._when_closed.append(call)
        self._find()

    def _find(self) -> None:
        self.is_looking = bool(self._looking)
        self.opened = self._of("opened")
        self.began = self._of("began")
        self.asked = self._of("asked")
        self.waits = self._of("waits")
        self.answered = self._of("answered")
        self.handed = self._of("handed")
        self.refused = self._of("refused")
        self.sent = self._of("sent")
        self.closed = (*self._of("closed"), *self._when_closed)
        self._parked = self._of("parked")
        self._woken = self._of("woken")
        self._refused_append = self._of("refused_append")
        for call in self._when_changed:
            call()

    def _of(self, step: str) -> tuple[Callable[..., None], ...]:
        """The functions of the probes that override a step."""
        return tuple(
            [getattr(each, step) for each in self._looking if getattr(type(each), step) is not getattr(Probe, step)]
        )

    # Of purgatories and replicas, which know nothing of probes

    def parked(self, operation: DelayedOperation) -> None:
        for call in self._parked:
            call(operation)

    def woken(self, purgatory: Purgatory, operation: DelayedOperation, ending: Ending) -> None:
        for call in self._woken:
            call(purgatory, operation, ending)

    def refused_append(self, topic_partition: TopicPartition, error: ErrorCode, size_bytes: int) -> None:
        for call in self._refused_append:
            call(topic_partition, error, size_bytes)
