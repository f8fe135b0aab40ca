"""The pages of `make demo` beside the Spark job: a console, and a group of consumers."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Producer

from minibroker.demo import processes, readers, replay
from minibroker.demo.__main__ import days_per_second

pytestmark = [pytest.mark.integration]

PATIENCE_SECONDS = 60
RECORDS = 40


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_page_shows_the_broker_and_a_group_that_reads_all(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    with processes.broker(tmp_path / "data", log=tmp_path / "broker.log", control=True) as broker:
        replay.create_topic(broker.address, "flights")
        producer = Producer({"bootstrap.servers": broker.address, "log_level": 0})
        for number in range(RECORDS):
            producer.produce("flights", b"a flight", partition=number % 4)
        assert producer.flush(PATIENCE_SECONDS) == 0

        with (
            processes.console(broker.address, broker.control, listen="127.0.0.1:0", log=log) as page,
            readers.readers(broker.address, "flights"),
        ):
            url = f"http://{urlsplit(page).netloc}/api"

            def get(path: str) -> Any:
                with urllib.request.urlopen(url + path, timeout=PATIENCE_SECONDS) as response:
                    return json.load(response)

            wait_until(lambda: get("/inside/purgatory")["pending"] > 0)
            wait_until(lambda: committed(get) == RECORDS)
            clients = {member["client_id"] for member in get(f"/groups/{readers.GROUP}")["members"]}

    assert page.startswith("http://127.0.0.1:")
    assert "#token=" in page
    assert clients == set(readers.NAMES)


def committed(get: Callable[[str], Any]) -> int:
    """The sum of the group's committed offsets, 0 before there is one."""
    try:
        group = get(f"/groups/{readers.GROUP}")
    except OSError:  # no such group yet
        return 0
    return sum(row["committed"] or 0 for row in group["partitions"])


def test_a_console_that_cannot_listen_fails_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "console.log"

    failed = pytest.raises(processes.ProcessFailed, match="the console did not start")
    with failed, processes.console("127.0.0.1:1", None, listen="192.0.2.1:1", log=log):
        pass

    assert "cannot listen on 192.0.2.1:1" in log.read_text()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "fast"])
def test_a_pace_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="not a number of days above 0"):
        days_per_second(text)
