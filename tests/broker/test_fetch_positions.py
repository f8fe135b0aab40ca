"""The last fetches of clients that commit nothing: where they are, by partition, and under which name."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from minibroker.broker.wings.looking import fetch_positions
from minibroker.conformance.requests import At
from minibroker.protocol.api import ApiKey
from minibroker.protocol.client_ids import group_in
from tests.broker.conftest import InMemoryBroker
from tests.broker.group_clients import GroupClient
from tests.broker.traced import Traced
from tests.storage.file_limits import failing

SPARK = "consumer-spark-kafka-source-ca10f5f0-6762--378007854-executor-2"


@pytest.fixture
async def traced(broker: InMemoryBroker) -> Traced:
    """Two batches of three records in orders-0; the second partition is empty."""
    await broker.create_topic("orders", 2)
    for _ in range(2):
        await broker.produce("orders", [b"one", b"two", b"three"])
    return Traced(broker)


def positions(traced: Traced) -> dict[str, list[Any]]:
    """The partitions of each client id: topic, partition, fetched offset and end."""
    found: dict[str, list[Any]] = {}
    place: tuple[int, int] | None = (0, 0)
    while place is not None:  # an answer ends after a millisecond
        answer = traced.calls.fetches(*place)
        for row in answer["rows"]:
            found.setdefault(row["client_id"], []).extend(at[:4] for at in row["partitions"])
        place = answer["more"]
    return found


BATCH_BYTES = 120  # more than one of them, less than two


@pytest.mark.parametrize(
    ("rows", "options", "fetched"),
    [
        pytest.param([("orders", 0, 0)], {}, [["orders", 0, 6, 6]], id="all of it in one answer"),
        pytest.param([("orders", 0, 0)], {"max_bytes": BATCH_BYTES}, [["orders", 0, 3, 6]], id="the first batch"),
        pytest.param([("orders", 0, 1)], {"max_bytes": 1}, [["orders", 0, 3, 6]], id="from within a batch"),
        pytest.param(
            [("orders", 0, 0)],
            {"max_partition_bytes": BATCH_BYTES, "version": 2},
            [["orders", 0, 3, 6]],
            id="converted records",
        ),
        pytest.param([("orders", 0, 6)], {}, [["orders", 0, 6, 6]], id="at the end"),
        pytest.param([("orders", 0, 9)], {}, [["orders", 0, 9, 6]], id="past the end"),
        pytest.param(
            [("orders", 0, 0), ("orders", 1, 0)], {}, [["orders", 0, 6, 6], ["orders", 1, 0, 0]], id="two partitions"
        ),
        pytest.param([("missing", 0, 0), ("orders", 9, 0)], {}, [], id="unknown partitions"),
        pytest.param([("missing", 0, 0), ("orders", 1, 0)], {}, [["orders", 1, 0, 0]], id="beside an unknown one"),
    ],
)
async def test_a_client_is_at_the_end_of_its_last_answer(
    traced: Traced, rows: list[Any], options: dict[str, Any], fetched: list[Any]
) -> None:
    await traced.broker.fetch(*rows, client_id=SPARK, **options)

    assert positions(traced) == {SPARK: fetched}
    [reader] = traced.broker.positions.all()
    assert len(reader.positions) == len(fetched)  # made-up names take no memory


async def test_a_client_is_where_it_asked_while_the_disk_cannot_be_read(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    await traced.broker.fetch(("orders", 0, 0), max_bytes=BATCH_BYTES)
    monkeypatch.setattr("minibroker.storage.files.disk.pread", failing(errno.EIO))

    assert positions(traced) == {"test": [["orders", 0, 0, 6]]}


async def test_a_fetch_from_elsewhere_counts_and_one_that_waits_too(traced: Traced) -> None:
    await traced.broker.fetch(("orders", 0, 0), client_id=SPARK)
    await traced.broker.park(traced.broker.fetch, ("orders", 1, 0), client_id=SPARK, max_wait_ms=60_000)
    await traced.broker.fetch(("orders", 0, 4), client_id=SPARK, max_partition_bytes=0, version=2)

    assert positions(traced) == {SPARK: [["orders", 0, 4, 6], ["orders", 1, 0, 0]]}


async def test_a_session_is_followed_by_its_changes(traced: Traced) -> None:
    broker = traced.broker
    first = await broker.fetch(("orders", 0, 0), ("orders", 1, 0), session_epoch=0, max_bytes=BATCH_BYTES)
    assert positions(traced) == {"test": [["orders", 0, 3, 6], ["orders", 1, 0, 0]]}

    session = {"session_id": first.session_id, "session_epoch": 1}
    await broker.fetch(("orders", 0, 3), **session)
    await broker.produce("orders", [b"four"], partition=1)
    await broker.fetch(**session | {"session_epoch": 2}, forgotten_topics=[("orders", [0])])

    assert positions(traced) == {"test": [["orders", 0, 6, 6], ["orders", 1, 1, 1]]}


async def test_followers_are_no_readers(traced: Traced) -> None:
    await traced.broker.fetch(At("orders", 0, 0), replica_id=1)

    assert positions(traced) == {}


async def test_the_time_of_a_partition_is_that_of_its_last_fetch(traced: Traced) -> None:
    clock = traced.broker.clock
    now_ms = 2_000
    clock.monotonic_ms = lambda: now_ms  # type: ignore[method-assign]
    clock.wall_now_ms = 105_000

    await traced.broker.fetch(("orders", 0, 0), client_id=SPARK)
    now_ms = 5_000
    await traced.broker.fetch(("orders", 1, 0), client_id=SPARK)

    [row] = traced.calls.fetches()["rows"]
    assert [(at[1], at[4]) for at in row["partitions"]] == [(0, 102_000), (1, 105_000)]


async def test_a_deleted_topic_is_forgotten(traced: Traced) -> None:
    await traced.broker.fetch(("orders", 0, 0), client_id=SPARK)

    await traced.broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["orders"], timeout_ms=1000)
    await traced.broker.create_topic("orders", 2)

    assert positions(traced) == {SPARK: []}


async def test_groups_of_a_client_are_those_that_it_joins_and_commits_to(traced: Traced) -> None:
    await traced.broker.fetch(("orders", 0, 0))
    await GroupClient(traced.broker, "reports").stable()
    for group in ("billing", "reports", *map(str, range(fetch_positions.GROUPS_MAX - 2)), "billing"):
        await GroupClient(traced.broker, group).commit(("orders", 0, 1))

    [row] = traced.calls.fetches()["rows"]
    assert row["groups"] == ["reports", *map(str, range(fetch_positions.GROUPS_MAX - 2)), "billing"]
    assert row["host"] == "127.0.0.1"


@pytest.mark.pure  # its limits are made small
async def test_positions_are_bounded_by_readers_by_partitions_and_by_time(
    traced: Traced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_positions, "READERS_MAX", 3)
    monkeypatch.setattr(fetch_positions, "POSITIONS_MAX", 4)
    now_ms = 0
    traced.broker.clock.monotonic_ms = lambda: now_ms  # type: ignore[method-assign]

    for name in ("a", "b", "c", "a", "d"):
        now_ms += 1
        await traced.broker.fetch(("orders", 0, 6), client_id=name)
    assert list(positions(traced)) == ["a", "c", "d"]

    await traced.broker.fetch(("orders", 0, 6), ("orders", 1, 0), client_id="d")
    await traced.broker.fetch(("orders", 0, 6), ("orders", 1, 0), client_id="a")
    now_ms += 1
    await traced.broker.fetch(("orders", 0, 6), client_id="e")
    assert list(positions(traced)) == ["a", "d", "e"]

    for _ in range(3):  # no new client comes
        now_ms += 1
        await traced.broker.fetch(("orders", 0, 6), ("orders", 1, 0), client_id="e")
        await traced.broker.fetch(("orders", 0, 6), ("orders", 1, 0), client_id="d")
    assert list(positions(traced)) == ["d", "e"]

    now_ms += fetch_positions.KEPT_MS
    assert list(positions(traced)) == ["d", "e"]
    now_ms += 1
    assert list(positions(traced)) == []


async def test_many_positions_come_in_pieces(traced: Traced) -> None:
    for name in ("a", "b"):
        await traced.broker.fetch(("orders", 0, 0), ("orders", 1, 0), client_id=name)
    ticks = iter(range(0, 1 << 60, 2_000_000))
    traced.tracer.now_ns = lambda: next(ticks)

    found, more = [], (0, 0)
    while more is not None:
        piece = traced.calls.fetches(after=more[0], skip=more[1])
        more = piece["more"]
        found += [(row["client_id"], *at[:3]) for row in piece["rows"] for at in row["partitions"]]

    assert found == [(name, "orders", *at) for name in ("a", "b") for at in ((0, 6), (1, 0))]


@pytest.mark.parametrize(
    ("client_id", "group"),
    [
        (SPARK, "spark-kafka-source-ca10f5f0-6762--378007854-executor"),
        ("consumer-reports-1", "reports"),
        ("consumer-1", "consumer"),  # of Java's clients before 2.4, which do not have the group there
        ("enrich-orders-3", "enrich-orders"),  # a subtask of Flink's source
        ("rdkafka", "rdkafka"),
        ("kafka-python-3.0.12", "kafka-python-3.0.12"),
        ("2026-11-26", "2026-11-26"),
        ("-1", "-1"),
        ("", "(no client id)"),
    ],
)
def test_a_client_id_names_a_group(client_id: str, group: str) -> None:
    assert group_in(client_id) == group
