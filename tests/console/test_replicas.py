"""The replicas of a partition on the page Inside, and the brokers of a cluster of three."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, expect

from minibroker import Cluster
from tests.console.asking import get
from tests.console.conftest import RunningConsole, console_of

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, racks=["a", "b", "c"]) as cluster:
        cluster.create_topic("orders")
        cluster.move_leader("orders", 0, 1)
        yield cluster


@pytest.fixture(scope="module")
def console(cluster: Cluster) -> Iterator[RunningConsole]:
    with console_of(cluster.bootstrap_servers, "--control", str(cluster.broker(1).control_path)) as console:
        yield console


def test_the_page_inside_has_a_column_for_each_replica(
    cluster: Cluster, console: RunningConsole, chromium: Browser
) -> None:
    cluster.hold_follower(3)
    cluster.lag(2, "orders", records=5)
    page = chromium.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(f"{console.url}/inside")
    expect(page.get_by_role("heading", name="Inside")).to_be_visible()
    append(cluster, 8)
    expect(page.get_by_text("LEO").nth(2)).to_be_visible()

    epoch = cluster.replicas("orders")[1].leader_epoch
    words = page.locator(".replica-words li")
    expect(words.nth(0)).to_have_text(f"Broker 1 leads in epoch {epoch}, and waits for brokers 2 and 3.")
    expect(words.nth(2)).to_contain_text("held by a test.")
    cluster.release_follower()
    cluster.until_isr("orders", 0, {1, 2, 3})
    expect(words.nth(2)).to_have_text(f"Broker 3 follows 1 in epoch {epoch}, in sync, and waits for new records.")
    page.close()


def append(cluster: Cluster, count: int) -> None:
    """Append a batch for each record, acknowledged by the leader alone."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": 1, "log_level": 0})
    for _ in range(count):
        producer.produce("orders", b"v", partition=0)
        assert producer.flush(10) == 0


def test_brokers_that_are_paused_or_gone_are_shown_as_such(cluster: Cluster, console: RunningConsole) -> None:
    cluster.restore()
    if cluster.controller == 2:  # while it is paused, nobody would see that broker 3 is gone
        cluster.move_controller()
    cluster.pause(2)
    cluster.kill(3)
    cluster.until_isr("orders", 0, {1, 2})

    rows = {row["broker_id"]: row for row in get(console, "/api/inside/replicas/orders/0")["replicas"]}

    assert {each: (row["is_alive"], row["replica"] is not None, row["rack"]) for each, row in rows.items()} == {
        1: (True, True, "a"),
        2: (True, False, "b"),
        3: (False, False, None),
    }
    cluster.resume(2)
    cluster.broker(1).wait_for(
        lambda: (
            [(row["id"], row["rack"], row["alive"]) for row in get(console, "/api/brokers")["rows"]]
            == [(1, "a", True), (2, "b", True), (3, None, False)]
        ),
        timeout=20,
    )


def test_a_partition_that_is_not_there_has_no_replicas(console: RunningConsole) -> None:
    assert get(console, "/api/inside/replicas/unknown/0") == {"replicas": []}
