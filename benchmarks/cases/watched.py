"""The cost of the inside view: small requests of a broker with `--control` while a console pulls from it ten times a
second, beside those while no console pulls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cases.counted import produces
from benchmarks.lab import Lab
from benchmarks.measurements import Measurement
from benchmarks.toggled import toggled
from minibroker.control import KeptControl

CASE = "watched"
PULL_SECONDS = 0.1
BUDGET = 100


def measure(lab: Lab) -> list[Measurement]:
    """A produce of one batch."""
    lab.close_brokers()
    path = lab.new_folder("control") / "socket"
    with lab.new_minibroker("--control", str(path)) as broker, pulling(path) as look:
        samples = toggled(broker, produces(lab, broker), look, rounds=lab.plan.rounds)
    text = "Produce v5, one 100 B batch, ten pulls a second"
    return [
        Measurement(CASE, "watched_per_s", text, "1/s", samples["per_s"]),
        Measurement(CASE, "watched_cpu_us", f"{text}, server CPU", "us", samples["cpu_us"]),
    ]


@contextmanager
def pulling(path: Path) -> Iterator[Callable[[bool], None]]:
    """Pull from a broker ten times a second, as a console does, after a call with True and until one with False."""
    control, one_at_a_time = KeptControl(path), threading.Lock()
    is_over, is_looking = threading.Event(), False

    def look(is_on: bool) -> None:
        nonlocal is_looking
        with one_at_a_time:
            is_looking = is_on
            if not is_on:
                control.call("inside.release")

    def pull() -> None:
        since = 0
        while not is_over.wait(PULL_SECONDS):
            with one_at_a_time:
                if is_looking:
                    since = control.call("inside.pull", since=since, budget=BUDGET)["next"]

    puller = threading.Thread(target=pull)
    puller.start()
    try:
        yield look
    finally:
        is_over.set()
        puller.join()
