"""Server-sent events: a route that sends what an iterator yields, to a bounded number of pages.

An iterator is asked for more only when the page has taken what came before, so nothing is buffered for a slow reader:
the iterator skips ahead and says how much it left out. It is closed when the page goes.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from minibroker.console.answers import NUMBER_MAX, Refused, number_of, refusal_response

STREAMS_MAX = 16
RETRY_MS = 1_000


class StreamEvent(NamedTuple):
    """`data` becomes JSON; `id` comes back in Last-Event-ID when the page connects again; None is a sign of life."""

    data: Any
    id: int | None = None
    name: str | None = None


# Of a request and the id of the last event that the page has seen; the first step may raise Refused.
Source = Callable[[Request, int | None], AsyncGenerator[StreamEvent, None]]


class Streams:
    """The open streams of one console."""

    def __init__(self) -> None:
        self.open = 0

    def route(self, path: str, source: Source) -> Route:
        async def endpoint(request: Request) -> Response:
            if self.open >= STREAMS_MAX:
                return refusal_response(Refused(503, f"{STREAMS_MAX} pages are live already; close one"))
            self.open += 1
            try:
                events = source(request, last_event_id(request))
                first = await anext(events, None)
            except BaseException as error:  # also a page that leaves meanwhile frees its place
                self.open -= 1
                if isinstance(error, Exception):
                    return refusal_response(error)
                raise
            return EventResponse(self._sent(first, events), self)

        return Route(path, endpoint, methods=["GET"])

    async def _sent(self, first: StreamEvent | None, events: AsyncGenerator[StreamEvent, None]) -> AsyncIterator[bytes]:
        async with aclosing(events):
            yield b"retry: %d\n\n" % RETRY_MS
            if first is None:
                return
            yield encoded(first)
            try:
                async for event in events:
                    yield encoded(event)
            except Exception as error:
                yield encoded(StreamEvent(json.loads(bytes(refusal_response(error).body)), name="failed"))


class EventResponse(StreamingResponse):
    """Counts as open until the last byte, or until the page has gone."""

    def __init__(self, content: AsyncIterator[bytes], streams: Streams) -> None:
        super().__init__(content, headers={"cache-control": "no-store"}, media_type="text/event-stream")
        self._content = content
        self._streams = streams

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.open -= 1


def encoded(event: StreamEvent) -> bytes:
    if event.data is None:
        return b": \n\n"
    head = "" if event.name is None else f"event: {event.name}\n"
    head += "" if event.id is None else f"id: {event.id}\n"
    data = json.dumps(event.data, ensure_ascii=False, separators=(",", ":"))
    return f"{head}data: {data}\n\n".encode("utf-8", "backslashreplace")


def last_event_id(request: Request) -> int | None:
    text = request.headers.get("last-event-id", "")
    return number_of(text, "Last-Event-ID", most=NUMBER_MAX) if text else None
