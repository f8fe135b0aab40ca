"""Fixtures of every test package, and how tests are shared among the processes of `pytest -n`.

Fixtures that start processes are in integration/.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Awaitable, Callable
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock
from xdist.scheduler import LoadFileScheduling

from tests.jvm import CLASSES

GOLDEN = Path(__file__).parent / "golden"  # bytes recorded from Apache Kafka 2.0.1
NIGHTLY = "nightly"
# These take their turn one by one: each starts programs of its own.
TEST_BY_TEST = {"tests/test_recipes.py"}
# The files of conversations are shared among the workers, each by its name before the title.
BY_BOOK = "tests/broker/test_conversations.py"
# Each of the two goes to one worker, whose tests share a Spark session, which is a JVM.
SPARK = {
    f"tests/spark_jobs/test_{name}.py": session
    for session, names in {
        "spark's source": (
            "damage",
            "flight_delays",
            "kafka_source",
            "progress_commits",
            "secured_kafka",
            "stream_test",
            "transform",
            "verify",
        ),
        "spark jobs": ("alerts", "archive", "exactly_once", "replay", "telemetry"),
    }.items()
    for name in names
}
# The longest first, so that no worker ends with one of them while the others have nothing left.
LONGEST_FIRST = ("spark", "integration", "slow")


def pytest_configure() -> None:
    # A shell starts its background jobs with SIGINT ignored, `nohup` starts any with SIGHUP ignored, and children go on
    # so: tests send both to commands.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_as_at_ctrl_c)
    for classes in CLASSES.values():
        os.environ.setdefault(classes.variable, classes.options)


def end_as_at_ctrl_c(number: int, frame: object) -> None:
    """Let fixtures end what they have started; the signal may come twice, by the process group and by `make`."""
    signal.signal(number, lambda number, frame: None)
    raise KeyboardInterrupt


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()  # what is collected stays, and searching it for garbage takes a seventh of the time


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # for the same reason; at the end pytest searches five times
    gc.enable()


class Sharing(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """A file's tests go to one worker, which makes the fixtures of the file once; a session of SPARK is as one file."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # as collected, which is in the order of LONGEST_FIRST

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if file in TEST_BY_TEST:
            return nodeid
        if file == BY_BOOK:
            return nodeid.partition(": ")[0]
        return SPARK.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Sharing:
    return Sharing(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give what `sample` refuses to `make nightly`."""
    for mark in item.iter_markers("sample"):
        takes = mark.kwargs["of"]
        parameters = item.callspec.params  # type: ignore[attr-defined]
        if not takes(**{name: parameters[name] for name in signature(takes).parameters}):
            item.add_marker(NIGHTLY)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    leave_out_nightly(config, items)
    let_time_jump(items)
    if hasattr(config, "workerinput"):
        items.sort(key=turn_of)


def leave_out_nightly(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests of `make nightly` run only where `-m` names them."""
    if NIGHTLY in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker(NIGHTLY)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker(NIGHTLY)]


def let_time_jump(items: list[pytest.Item]) -> None:
    """Tests of modules marked `time_jumps` run as if each of them asked for pytest-trio's `autojump_clock`."""
    for item in items:
        if item.get_closest_marker("trio") and item.get_closest_marker("time_jumps"):
            item.add_marker(pytest.mark.trio(run=run_on_jumping_clock), append=False)


def run_on_jumping_clock(test: Callable[[], Awaitable[None]], **options: Any) -> None:
    trio.run(test, **options | {"clock": MockClock(autojump_threshold=0)})


def turn_of(item: pytest.Item) -> int:
    for turn, marker in enumerate(LONGEST_FIRST):
        if item.get_closest_marker(marker):
            return turn
    return len(LONGEST_FIRST)
