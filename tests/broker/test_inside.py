"""What the inside view shows of requests: who waits, who wakes whom, and how bytes are found."""

from __future__ import annotations

import pytest

from minibroker.protocol.api import ApiKey
from tests.broker.conftest import InMemoryBroker
from tests.broker.traced import Traced


@pytest.fixture
async def traced(broker: InMemoryBroker) -> Traced:
    await broker.create_topic("orders", 2)
    return Traced(broker)


async def test_nothing_is_recorded_until_someone_looks(traced: Traced) -> None:
    await traced.broker.produce("orders", [b"one"])
    assert traced.tracer.last_number == 0
    assert not traced.tracer.is_watching

    assert traced.exchanges() == []
    await traced.broker.produce("orders", [b"two"])

    [seen] = traced.exchanges()
    assert (seen["seq"], seen["api"], seen["version"], seen["client"]) == (1, ApiKey.PRODUCE, 7, "test")
    assert (seen["outcome"], seen["error"], seen["topics"], seen["records"]) == ("at once", "", ["orders"], 1)
    assert 0 < seen["handled"] <= seen["answered"]
    assert seen["woken"] == seen["sent"] == -1


async def test_a_fetch_that_an_append_ends_names_its_producer(traced: Traced) -> None:
    traced.calls.pull()
    fetching = traced.broker.client
    parked = await traced.broker.park(traced.broker.fetch, ("orders", 0, 0), max_wait_ms=5000)
    traced.connect()
    await traced.broker.produce("orders", [b"one", b"two"])
    assert await parked.seen() is not None

    fetch, produce = traced.exchanges()
    assert (fetch["connection"], produce["connection"]) == (fetching.number, 2)
    assert (fetch["outcome"], fetch["case"], fetch["woken_by"]) == ("woken", "D", produce["seq"])
    assert produce["woke"] == [fetch["seq"]]
    assert fetch["handled"] <= fetch["woken"] <= fetch["answered"]
    assert fetch["max_wait"] == 5_000_000
    wait = traced.explained(fetch["seq"])["wait"]
    assert wait["cause"]["partitions"][0]["high_watermark"] == [0, 2]
    assert (wait["case_text"], wait["partition"], wait["watched"]) == ("there are enough bytes", "orders-0", 1)


async def test_a_waiting_fetch_is_pulled_with_its_limit(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.broker.inside.calls.LONG_IN_HAND_NS", 0)
    traced.calls.pull()
    await traced.broker.park(traced.broker.fetch, ("orders", 1, 0), max_wait_ms=5000)

    pulled = traced.pull()

    [waiting] = pulled["waiting"]
    assert (waiting["outcome"], waiting["max_wait"], waiting["answered"]) == ("waits", 5_000_000, -1)
    assert (pulled["parked"], pulled["exchanges"]) == (1, [])
    explained = traced.explained(waiting["seq"])
    assert (explained["wait"]["ended_by"], explained["fetch"]["bytes_found_first"]) == ("", 0)
