"""One reading of lags for all pages that show it, and a few while none does."""

from __future__ import annotations

from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from minibroker.client.topic_partition import TopicPartition
from minibroker.console.group_offsets import HISTORY_SECONDS, GroupLag, LagHistory, lags_of
from minibroker.console.kafka_clients import KafkaClients
from minibroker.console.lag_watch import READ_SECONDS, UNSEEN_SECONDS, LagWatch
from minibroker.errors import CommandFailed

pytestmark = [pytest.mark.time_jumps]


class ReadCluster:
    """Stands for the cluster's offsets: each reading takes a second."""

    def __init__(self) -> None:
        self.lag = 5
        self.readings = 0
        self.trouble: str | None = None

    async def ask(self, question: object) -> tuple[int, dict[str, GroupLag]]:
        self.readings += 1
        await trio.sleep(1)
        if self.trouble is not None:
            raise CommandFailed(self.trouble)
        at = TopicPartition("orders", 0)
        even = TopicPartition("audit", 0)
        behind = GroupLag("billing", self.lag, {at: self.lag}, {at: 1}, False)
        return 9, {"audit": GroupLag("audit", 0, {even: 0}, {even: 3}, False), "billing": behind}


@pytest.fixture
def cluster() -> ReadCluster:
    return ReadCluster()


@pytest.fixture
def watch(cluster: ReadCluster) -> LagWatch:
    return LagWatch(cast(KafkaClients, cluster), None, LagHistory())


async def heard(watch: LagWatch, count: int, topics: frozenset[str] = frozenset()) -> list[Any]:
    async with aclosing(watch.events(topics)) as events:
        return [(await anext(events)).data for _ in range(count)]


def test_a_share_group_without_a_start_has_no_lag_and_a_consumer_without_a_commit_none_to_show(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = {"new": SimpleNamespace(group_type="classic"), "sharing": SimpleNamespace(group_type="share")}
    committed = {name: dict[Any, int]() for name in groups}
    monkeypatch.setattr("minibroker.console.group_offsets.committed_of", lambda client, names: committed)
    monkeypatch.setattr("minibroker.console.group_offsets.offsets_of", lambda client, partitions, spec: {})

    assert {name: each.lag for name, each in lags_of(None, list(groups), groups).items()} == {"new": 0, "sharing": None}


async def test_all_that_look_share_a_reading(watch: LagWatch, cluster: ReadCluster) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(heard, watch, 3)

    assert cluster.readings == 3
    assert trio.current_time() == pytest.approx(2 * READ_SECONDS + 1)


async def test_the_last_ten_minutes_are_there_when_a_page_is_opened(
    watch: LagWatch, cluster: ReadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minibroker.console.group_offsets.time.time", trio.current_time)
    cluster.trouble = "no broker answers; start it"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.keep)
        await trio.sleep(60)
        cluster.trouble = None
        await trio.sleep(1000)
        (event,) = await heard(watch, 1)
        nursery.cancel_scope.cancel()

    (points,) = [row["points"] for row in event["worst"] if row["group"] == "billing"]
    assert (points[-1].at_ms - points[0].at_ms) / 1000 == pytest.approx(HISTORY_SECONDS, abs=60)
    seconds_a_reading = 1060 / cluster.readings
    assert UNSEEN_SECONDS < seconds_a_reading < 2.5 * UNSEEN_SECONDS  # each takes a second: 21 s apart


async def test_a_reading_of_a_page_is_none_of_the_background(watch: LagWatch, cluster: ReadCluster) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heard, watch, 20)
        await trio.sleep(1)
        nursery.start_soon(watch.keep)
        await trio.sleep(49)
        assert cluster.readings == 50 // READ_SECONDS + 1  # those of the page alone
        nursery.cancel_scope.cancel()


async def test_a_page_that_comes_back_has_a_new_reading(watch: LagWatch, cluster: ReadCluster) -> None:
    await heard(watch, 1)
    await trio.sleep(100)

    cluster.lag = 8
    (event,) = await heard(watch, 1)

    assert event["worst"][0]["lag"] == 8


async def test_a_page_that_comes_later_has_the_latest_reading_at_once(watch: LagWatch, cluster: ReadCluster) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heard, watch, 2)
        await trio.sleep(1.5)
        begun = trio.current_time()
        await heard(watch, 1)
        assert trio.current_time() == begun

    assert cluster.readings == 2


async def test_a_page_that_leaves_while_it_reads_keeps_no_other_from_reading(
    watch: LagWatch, cluster: ReadCluster
) -> None:
    with trio.move_on_after(0.5):
        await heard(watch, 1)

    (event,) = await heard(watch, 1)

    assert event["groups"] == 9


async def test_an_event_has_the_worst_groups_and_the_lag_of_the_topics_that_a_page_shows(watch: LagWatch) -> None:
    (event,) = await heard(watch, 1, frozenset({"orders", "unknown"}))

    assert [(row["group"], row["lag"], [lag for _, lag in row["points"]]) for row in event["worst"]] == [
        ("billing", 5, [5]),
        ("audit", 0, [0]),
    ]
    assert event["topics"] == {"orders": [{"group": "billing", "lag": 5}]}
    assert (event["groups"], event["looked_through"], event["lag"]) == (9, 2, 5)


async def test_a_failure_is_an_event_and_reading_goes_on(watch: LagWatch, cluster: ReadCluster) -> None:
    cluster.trouble = "no broker answers; start it"
    async with aclosing(watch.events(())) as events:
        assert (await anext(events)).data == {"error": "no broker answers; start it"}
        cluster.trouble = None

        assert (await anext(events)).data["groups"] == 9
    cluster.trouble = "gone again"
    with pytest.raises(CommandFailed, match="gone again"):
        await watch.fresh()


async def test_pages_that_wait_for_a_reading_share_its_failure(watch: LagWatch, cluster: ReadCluster) -> None:
    cluster.trouble = "no broker answers; start it"

    async def read() -> None:
        with pytest.raises(CommandFailed, match="no broker answers"):
            await watch.fresh()

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(read)
            await trio.sleep(0.1)

    assert (cluster.readings, trio.current_time()) == (1, 1)


async def test_a_fresh_reading_is_not_older_than_its_call(watch: LagWatch, cluster: ReadCluster) -> None:
    await heard(watch, 1)
    await watch.fresh()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.fresh)
        await trio.sleep(0.1)
        nursery.start_soon(watch.fresh)
        await trio.sleep(0.1)
        nursery.start_soon(watch.fresh)

    assert cluster.readings == 4
