"""The routes of the page Inside. Each names the control call that it makes; none passes one on by its name."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import (
    NUMBER_MAX,
    Refused,
    change,
    get,
    in_path,
    number_in_query,
    number_of,
)
from minibroker.console.console import Console
from minibroker.console.event_stream import StreamEvent
from minibroker.console.inside_watch import InsideWatch
from minibroker.errors import BrokerError
from minibroker.story import with_story

NOT_KEPT = "not-kept"  # the code of a request that has left the broker's ring
SECONDS_MAX = 100 * 366 * 86_400  # as far as a broker's clock can be turned
FAULT_FIELDS = ("kind", "error", "seconds", "bytes_per_second", "when", "api", "connection", "client_id", "topic",
                "partition", "times", "skip", "for_seconds")  # fmt: skip


def routes(console: Console, watch: InsideWatch) -> list[BaseRoute]:
    def stream(request: Request, last_number: int | None) -> AsyncGenerator[StreamEvent, None]:
        return watch.events(last_number)

    async def exchanges(request: Request) -> Any:
        to_us = number_in_query(request, "to", NUMBER_MAX)
        return await watch.between(number_in_query(request, "from", 0), to_us)

    async def exchange(request: Request) -> Any:
        seq = number_of(in_path(request, "seq"), "seq", most=NUMBER_MAX)
        try:
            return with_story(await console.call("inside.exchange", seq=seq))
        except BrokerError as error:
            if error.code != NOT_KEPT:
                raise
            raise Refused(
                404, f"the broker no longer keeps request {seq}, or did not record it; choose a newer one"
            ) from error

    async def log(request: Request) -> Any:
        topic, partition = in_path(request, "topic"), number_of(in_path(request, "partition"), "partition")
        offset = number_in_query(request, "offset", NUMBER_MAX)
        where = {} if offset == NUMBER_MAX else {"offset": offset}
        return await console.call("inside.log", topic=topic, partition=partition, **where)

    async def purgatory(request: Request) -> Any:
        return await watch.purgatory()

    async def turn_clock(request: Request, body: dict[str, Any]) -> Any:
        await console.call("clock.advance", seconds=seconds_in(body))
        return {"broker_ms": await console.call("clock.now")}

    async def faults(request: Request) -> Any:
        return {"faults": [await described(each) for each in await console.call("faults.active")]}

    async def described(fault_id: int) -> Any:
        return {"id": fault_id} | await console.call("faults.describe", fault_id=fault_id)

    async def cause_fault(request: Request, body: dict[str, Any]) -> Any:
        unknown = sorted(set(body) - set(FAULT_FIELDS))
        if unknown or not isinstance(body.get("kind"), str):
            raise Refused(400, f"a fault has a kind and may have {', '.join(FAULT_FIELDS[1:])}; correct it")
        return await described(await console.call("faults.add", **body))

    async def lift_fault(request: Request, body: dict[str, Any]) -> Any:
        fault_id = number_of(in_path(request, "id"), "id", most=NUMBER_MAX)
        await console.call("faults.lift", fault_id=fault_id)
        return await described(fault_id)

    return [
        console.streams.route("/api/stream/inside", stream),
        get("/api/inside/exchanges", exchanges),
        get("/api/inside/exchanges/{seq}", exchange),
        get("/api/inside/log/{topic}/{partition}", log),
        get("/api/inside/purgatory", purgatory),
        change("POST", "/api/clock", turn_clock),
        get("/api/faults", faults),
        change("POST", "/api/faults", cause_fault),
        change("DELETE", "/api/faults/{id}", lift_fault),
    ]


def seconds_in(body: dict[str, Any]) -> float:
    """By how much to turn the clock. Raises Refused."""
    seconds = body.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= SECONDS_MAX:
        raise Refused(400, 'the body has no time that can pass, such as {"seconds": 30}; correct it')
    return float(seconds)
