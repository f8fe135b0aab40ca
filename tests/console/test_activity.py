"""Requests by API and the last errors of clients, from what a minibroker counts while a page looks."""

from __future__ import annotations

from typing import Any, cast

import pytest
import trio
import trio.testing

from minibroker.any_cluster.bootstrap import DEFAULT_CLUSTER
from minibroker.console.activity import LOOK_SECONDS, Activity
from minibroker.console.console import Console
from minibroker.console.inside_watch import NO_HEAD, InsideWatch
from minibroker.console.kafka_clients import KafkaClients
from minibroker.protocol.client_ids import OF_CONSOLE
from tests.console.inside_row import ROW

Clock = trio.testing.MockClock

REQUESTS = "kafka.network:type=RequestMetrics"


class CountingBroker:
    """Answers the control calls of a look."""

    def __init__(self) -> None:
        self.control: object = self
        self.kafka = KafkaClients(DEFAULT_CLUSTER)
        self.calls: list[str] = []
        self.run = 1
        self.fetches = 100
        self.failed: list[str] = []

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        await trio.lowlevel.checkpoint()
        self.calls.append(name)
        if name == "inside.apis":
            return {"apis": {"0": "Produce"}}
        if name == "inside.pull":
            return self.pulled(arguments["since"])
        scan = arguments.get("scan")
        pieces: dict[int | None, list[dict[str, Any]]] = {
            None: [family("kafka.server:type=BrokerTopicMetrics", [], ["BytesInPerSec", "BytesOutPerSec"], [[70, 80]])],
            1: [
                family(REQUESTS, ["request", "version"], ["RequestsPerSec"], self.requests()),
                family(REQUESTS, ["request", "error"], ["ErrorsPerSec"], self.errors()),
            ],
            2: [family("kafka.log:type=Log", ["topic"], ["Size"], [])],
        }
        assert scan != 3, "the rest of the scan is not needed"
        return {"run": self.run, "scan": (scan or 0) + 1, "families": pieces[scan]}

    call_often = call

    def requests(self) -> list[list[Any]]:
        versions = [["Fetch", 11, 40], ["Fetch", 12, self.fetches - 40], ["Produce", 9, 10]]
        return [*versions, ["FetchConsumer", 12, self.fetches]]

    def errors(self) -> list[list[Any]]:
        """Codes in answers, of which a failed request may have several: each is counted once all the same."""
        return [["Fetch", "NONE", 90], ["Fetch", "X", 7], ["Produce", "X", 3 * len(self.failed)]]

    def pulled(self, since: int) -> dict[str, Any]:
        """Of two exchanges the second has failed."""
        tables = {"connections": {}, "clients": ["billing", OF_CONSOLE], "topics": ["a", "b"], "fields": list(ROW)}
        rows = [each for seq in range(since + 1, len(self.failed) + 1) for each in (self.row(seq, ""), self.row(seq))]
        head = NO_HEAD | {"run": self.run, "now_us": 9_000_000, "broker_ms": 500_000, "turns": [(8_500_000, 60_000)]}
        return head | tables | {"next": len(self.failed), "exchanges": rows, "waiting": []}

    def row(self, seq: int, error: str | None = None) -> list[Any]:
        error = self.failed[seq - 1] if error is None else error
        client = 1 if error == "OWN" else 0
        row = ROW | {"seq": seq, "connection": 7, "client": client, "api": 0, "version": 9, "topics": [0, 1]}
        return list((row | {"arrived": (6 + seq) * 1_000_000, "error": error}).values())


def family(kind: str, keys: list[str], names: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    return {"type": kind, "keys": keys, "names": names, "rows": rows}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> CountingBroker:
    monkeypatch.setattr("minibroker.console.activity.time.monotonic", trio.current_time)
    return CountingBroker()


@pytest.fixture
def activity(broker: CountingBroker) -> Activity:
    console = cast(Console, broker)
    return Activity(console, InsideWatch(console))


async def test_requests_are_counted_by_api_and_a_second(
    activity: Activity, broker: CountingBroker, autojump_clock: Clock
) -> None:
    first = await activity.look()
    broker.fetches += 50
    await trio.sleep(LOOK_SECONDS)
    second = await activity.look()

    rows = [(row["api"], row["requests"], row["rate"], row["errors"]) for row in second["requests"]["apis"]]
    assert first["requests"]["rate"] is None
    assert rows == [("Fetch", 150, 25.0, 0), ("Produce", 10, 0.0, 0)]
    assert (second["requests"]["rate"], second["requests"]["bytes_in"]) == (25.0, 0.0)
    assert [rate for _, rate in second["requests"]["points"]] == [25.0]


async def test_all_pages_share_a_look(activity: Activity, broker: CountingBroker, autojump_clock: Clock) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(activity.look)

    assert broker.calls == ["inside.metrics"] * 3 + ["inside.apis", "inside.pull"]


async def test_while_no_page_looks_the_broker_is_asked_for_nothing(
    activity: Activity, broker: CountingBroker, autojump_clock: Clock
) -> None:
    await activity.look()
    asked = len(broker.calls)
    await trio.sleep(600)
    assert len(broker.calls) == asked

    shown = await activity.look()
    assert shown["requests"]["points"] == []  # no mean over a time at which nobody looked


async def test_errors_since_the_first_look_are_kept_and_counted_the_latest_first(
    activity: Activity, broker: CountingBroker, autojump_clock: Clock
) -> None:
    broker.failed = ["BEFORE"]
    await activity.look()
    for error in ("ONE", "OWN", "TWO"):
        broker.failed.append(error)
        await trio.sleep(LOOK_SECONDS)
        shown = await activity.look()

    assert [(row["error"], row["seq"], row["broker_ms"]) for row in shown["errors"]] == [
        ("TWO", 4, 500_000 + 1_000),
        ("ONE", 2, 439_000),  # before a turn of the clock
    ]
    assert [row["errors"] for row in shown["requests"]["apis"] if row["api"] == "Produce"] == [2]
    assert {name: shown["errors"][0][name] for name in ("client_id", "api", "topics")} == {
        "client_id": "billing",
        "api": "Produce",
        "topics": ["a", "b"],
    }


async def test_another_broker_begins_anew(activity: Activity, broker: CountingBroker, autojump_clock: Clock) -> None:
    await activity.look()
    broker.failed.append("ONE")
    await trio.sleep(LOOK_SECONDS)
    assert len((await activity.look())["errors"]) == 1
    broker.run, broker.fetches, broker.failed = 2, 50, []
    await trio.sleep(LOOK_SECONDS)
    shown = await activity.look()

    assert (shown["errors"], shown["requests"]["rate"]) == ([], None)
    broker.failed.append("NEW")
    await trio.sleep(LOOK_SECONDS)
    assert [row["error"] for row in (await activity.look())["errors"]] == ["NEW"]


async def test_another_kafka_has_no_activity(activity: Activity, broker: CountingBroker, autojump_clock: Clock) -> None:
    broker.control = None

    assert await activity.look() == {"requests": None, "errors": None}
    assert broker.calls == []
