"""One pull for all pages: what they get, how they go on, and what is left out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
import trio

from minibroker.console.console import Console
from minibroker.console.event_stream import StreamEvent
from minibroker.console.inside_watch import EVENT_MAX, InsideWatch
from minibroker.errors import BrokerError
from tests.console.inside_row import ROW

pytestmark = [pytest.mark.time_jumps]

FETCH = 1


class PulledBroker:
    """Answers the control calls of a watch, as a broker in which `requests` have ended."""

    def __init__(self) -> None:
        self.run = 1
        self.ended = 0
        self.calls: list[str] = []
        self.trouble: str | None = None

    async def call(self, name: str, *, since: int = 0, lease_ms: int = 0) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        self.calls.append(name)
        if self.trouble is not None:
            raise BrokerError(self.trouble)
        if name == "inside.apis":
            return {"apis": {"1": "Fetch"}}
        if name == "inside.purgatory":
            return {"pending": self.ended}
        return self.pulled(since)

    call_often = call

    def pulled(self, since: int) -> dict[str, Any]:
        head = {
            "run": self.run, "now_us": 1_000_000, "broker_ms": 5, "turned_ms": 0, "left_out": 0, "requests": 2,
            "kept_every": 1, "cost_us": 1, "interval_us": 100, "parked": 1, "open": 2, "turns": [], "skipped": [],
        }  # fmt: skip
        rows = [self.row(seq) for seq in range(since + 1, self.ended + 1)]
        waiting = [self.row(1000)]
        connections = {"7": "127.0.0.1:41230"}
        tables = {
            "clients": ["billing-1"],
            "topics": ["audit", "orders"],
            "connections": connections,
            "fields": list(ROW),
        }
        return head | tables | {"next": self.ended, "exchanges": rows, "waiting": waiting}

    def row(self, seq: int) -> list[Any]:
        times = {"arrived": seq * 1_000, "handled": 10, "answered": 20, "sent": 30}
        return list((ROW | times | {"seq": seq, "connection": 7, "client": 0, "api": FETCH, "topics": [1]}).values())


@pytest.fixture
def broker() -> PulledBroker:
    return PulledBroker()


@pytest.fixture
def watch(broker: PulledBroker) -> InsideWatch:
    return InsideWatch(cast(Console, broker))


async def next_of(events: AsyncGenerator[StreamEvent, None]) -> StreamEvent:
    with trio.fail_after(5):
        return await anext(events)


def seqs(event: StreamEvent) -> list[int]:
    return [row.seq for row in event.data["exchanges"]]


async def test_rows_have_names_instead_of_numbers(watch: InsideWatch, broker: PulledBroker) -> None:
    broker.ended = 1
    async with aclosing(watch.events(None)) as events:
        event = await next_of(events)

    (row,) = event.data["exchanges"]
    assert event.data["fields"] == tuple(ROW)
    assert (row.client, row.api, row.topics) == ("billing-1", "Fetch", ["orders"])
    assert event.data["waiting"][0][2:4] == ("billing-1", "Fetch")
    assert event.data["connections"] == {"7": "127.0.0.1:41230"}


async def test_two_pages_share_one_pull_and_each_gets_every_exchange_once(
    watch: InsideWatch, broker: PulledBroker
) -> None:
    got: dict[str, list[int]] = {"one": [], "other": []}

    async def look(name: str) -> None:
        async with aclosing(watch.events(None)) as events:
            for _ in range(5):
                got[name] += seqs(await next_of(events))
                broker.ended += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look, "one")
        nursery.start_soon(look, "other")

    pulls = broker.calls.count("inside.pull")
    assert pulls <= 5 + 1  # five that both want, and one more as each begins with a new one
    for numbers in got.values():
        assert numbers == list(range(1, len(numbers) + 1))


async def test_nothing_is_pulled_while_no_page_looks(watch: InsideWatch, broker: PulledBroker) -> None:
    async with aclosing(watch.events(None)) as events:
        await next_of(events)
    before = len(broker.calls)

    await trio.sleep(60)

    assert len(broker.calls) == before


async def test_a_page_that_connects_again_goes_on_where_it_was(watch: InsideWatch, broker: PulledBroker) -> None:
    broker.ended = 3
    async with aclosing(watch.events(None)) as events:
        first = await next_of(events)
    broker.ended = 5
    async with aclosing(watch.events(first.id)) as events:
        again = await next_of(events)

    assert (seqs(first), seqs(again)) == ([1, 2, 3], [4, 5])


@pytest.mark.parametrize("last_number", [None, 0, 1, 2**62])
async def test_a_new_page_and_one_of_another_console_begin_with_the_kept_exchanges(
    watch: InsideWatch, broker: PulledBroker, last_number: int | None
) -> None:
    broker.ended = 2
    async with aclosing(watch.events(None)) as events:
        await next_of(events)
    broker.ended = 3
    async with aclosing(watch.events(last_number)) as events:
        event = await next_of(events)

    assert seqs(event) == [1, 2, 3]
    assert event.data["left_out"] == 0


async def test_a_slow_page_is_skipped_ahead_and_the_event_counts_exchanges_left_out(
    watch: InsideWatch, broker: PulledBroker
) -> None:
    async with aclosing(watch.events(None)) as slow, aclosing(watch.events(None)) as quick:
        await next_of(slow)
        for _ in range(10):
            broker.ended += 50
            await next_of(quick)

        event = await next_of(slow)

    assert len(event.data["exchanges"]) == EVENT_MAX
    assert seqs(event)[-1] == broker.ended
    assert event.data["left_out"] == 500 - EVENT_MAX


async def test_another_process_of_the_broker_is_read_from_its_start(watch: InsideWatch, broker: PulledBroker) -> None:
    broker.ended = 8
    async with aclosing(watch.events(None)) as events:
        await next_of(events)
        broker.run, broker.ended = 2, 3
        event = await next_of(events)

    assert event.data["run"] == 2
    assert seqs(event) == [1, 2, 3]
    assert [row.seq for row in (await watch.between(0, 10**9))["exchanges"]] == [1, 2, 3]


async def test_a_broker_that_does_not_answer_is_an_event_and_the_stream_goes_on(
    watch: InsideWatch, broker: PulledBroker
) -> None:
    broker.trouble = "no answer at the broker's control socket"
    async with aclosing(watch.events(None)) as events:
        failed = await next_of(events)
        broker.trouble, broker.ended = None, 1
        event = await next_of(events)

    assert "no answer" in failed.data["error"]
    assert seqs(event) == [1]


async def test_between_has_the_exchanges_of_a_span(watch: InsideWatch, broker: PulledBroker) -> None:
    broker.ended = 9
    found = await watch.between(3_030, 5_000)

    assert [row.seq for row in found["exchanges"]] == [3, 4, 5]


async def test_pages_share_one_look_into_the_purgatory(watch: InsideWatch, broker: PulledBroker) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(watch.purgatory)

    assert broker.calls == ["inside.purgatory"]
