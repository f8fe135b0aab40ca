"""Lists of 10,000 topics: searched, sorted and cut before a browser gets them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import trio
from starlette.requests import Request

from minibroker.console.answers import Refused
from minibroker.console.console import Console
from minibroker.console.figures import Figures, Growth
from minibroker.console.kafka_clients import KafkaClients
from minibroker.console.metadata import (
    LONGEST_SECONDS,
    BrokerRow,
    Metadata,
    PartitionRow,
    Snapshot,
    TopicRow,
    snapshot_of,
)
from minibroker.console.topics import Topics
from minibroker.errors import CommandFailed

TOPICS, PARTITIONS = 10_000, 3
PAGE_BYTES_MAX = 16_000


class ManyTopics:
    """Stands for a console of a cluster with 10,000 topics; counts what it is asked for."""

    control = None

    def __init__(self) -> None:
        self.kafka = self
        self.metadata = Metadata(cast(KafkaClients, self))
        self.growth = Growth()
        partition = PartitionRow(0, 1, (1,), (1,))
        partitions = tuple(partition._replace(partition=each) for each in range(PARTITIONS))
        topics = {f"topic-{each:05d}": TopicRow(f"topic-{each:05d}", False, partitions) for each in range(TOPICS)}
        self.snapshot = Snapshot((BrokerRow(1, "localhost", 9092),), 1, "id", "2.0", topics)
        self.topics = Topics(cast(Console, self))
        self.snapshots = 0
        self.asked_partitions = 0

    async def ask(self, question: Any) -> Any:
        await trio.lowlevel.checkpoint()
        if question is snapshot_of:
            self.snapshots += 1
            return self.snapshot
        return question(self)

    def figures_of(self, client: object, partitions: list[Any]) -> Figures:
        self.asked_partitions += len(partitions)
        return Figures({}, {}, {}, {})


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> ManyTopics:
    many = ManyTopics()
    monkeypatch.setattr("minibroker.console.topics.figures_of", many.figures_of)
    return many


async def listed(console: ManyTopics, query: str) -> Any:
    request = Request({"type": "http", "query_string": query.encode(), "headers": [], "method": "GET"})
    return await console.topics.listed(request)


@pytest.mark.parametrize(
    ("query", "total", "first", "rows"),
    [
        ("", 10_000, "topic-00000", 50),
        ("from=9980", 10_000, "topic-09980", 20),
        ("sort=-name&n=2", 10_000, "topic-09999", 2),
        ("filter=TOPIC+0777", 11, "topic-00777", 11),
        ("filter=077&from=50", 120, "topic-07732", 50),
        ("filter=nothing", 0, None, 0),
    ],
)
async def test_a_page_of_ten_thousand_topics_is_small(
    console: ManyTopics, query: str, total: int, first: str | None, rows: int
) -> None:
    page = await listed(console, query)

    assert (page["total"], page["all"], len(page["rows"])) == (total, TOPICS, rows)
    assert next((row["name"] for row in page["rows"]), None) == first
    assert len(json.dumps(page)) < PAGE_BYTES_MAX


async def test_figures_are_asked_of_the_rows_of_a_page_only(console: ManyTopics) -> None:
    await listed(console, "figures=1")

    assert console.asked_partitions == 50 * PARTITIONS


async def test_topics_are_sorted_by_a_figure_up_to_a_limit_and_asked_once_for_all_pages(
    console: ManyTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(listed, console, "sort=-messages&n=8")
    assert console.asked_partitions == TOPICS * PARTITIONS

    monkeypatch.setattr("minibroker.console.topics.SORTED_PARTITIONS_MAX", 20_000)
    with pytest.raises(Refused, match="30,000 partitions; filter to 20,000 or fewer first"):
        await listed(console, "sort=-messages")
    assert (await listed(console, "sort=-messages&filter=topic-000"))["total"] == 100


async def test_a_page_begins_with_topics_read_before(console: ManyTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("minibroker.console.metadata.time.monotonic", lambda: now)
    await listed(console, "kept=1")
    now += 30
    await listed(console, "kept=1")
    assert console.snapshots == 1

    await listed(console, "fresh=1")
    assert console.snapshots == 2
    now += 61
    await listed(console, "kept=1")
    assert console.snapshots == 3
    console.metadata.forget()  # a topic was deleted here
    await listed(console, "kept=1")
    assert console.snapshots == 4


async def test_topics_that_were_waited_for_are_asked_for_again_soon(
    console: ManyTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("minibroker.console.metadata.time.monotonic", lambda: now)
    answer = console.ask

    async def ask_after_the_broker_is_back(question: Any) -> Any:
        nonlocal now
        now += 5
        return await answer(question)

    monkeypatch.setattr(console, "ask", ask_after_the_broker_is_back)
    await console.metadata.snapshot()
    now += LONGEST_SECONDS

    await console.metadata.snapshot()

    assert console.snapshots == 2


async def test_pages_that_wait_for_the_topics_share_a_failure(console: ManyTopics) -> None:
    attempts = 0

    async def fail(question: object) -> None:
        nonlocal attempts
        attempts += 1
        await trio.sleep(0.05)
        raise CommandFailed("no broker answers; start it")

    async def read() -> None:
        with pytest.raises(CommandFailed, match="no broker answers"):
            await console.metadata.snapshot(fresh=True)

    console.ask = fail  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(read)
    assert attempts == 1
    await read()
    assert attempts == 2
