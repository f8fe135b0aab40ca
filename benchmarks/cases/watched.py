"""What the inside view costs: small requests of a broker without `--control`, of one that has it, and of one that a
console pulls from ten times a second. Each round has new brokers, as in counted.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import frames
from benchmarks.cases.requests import small_requests
from benchmarks.lab import Lab
from benchmarks.measurements import MINIBROKER, PLAIN, Measurement, Run
from benchmarks.topics import Broker, create_topic
from minibroker.control import Control

CASE = "watched"
VALUE_BYTES = 100
PULL_SECONDS = 0.1
BUDGET = 100


def measure(lab: Lab) -> list[Measurement]:
    """A produce of one batch, on two new brokers in each round; one of them is measured without a look and with one."""
    lab.close_brokers()
    runs: dict[str, Run] = {PLAIN: partial(_plain, lab), MINIBROKER: partial(_controlled, lab)}
    samples = lab.interleave(CASE, runs, warm_ups=0)
    return [
        Measurement(
            CASE, f"{name}_{metric}", f"Produce v5, one 100 B batch, {text}{what}", unit, samples[f"{name}_{metric}"]
        )
        for name, text in (("unwatched", "--control, no look"), ("watched", "--control, ten pulls a second"))
        for metric, what, unit in (("per_s", "", "1/s"), ("p99_us", ", p99", "us"), ("cpu_us", ", server CPU", "us"))
    ]


def _plain(lab: Lab) -> dict[str, float]:
    with lab.new_minibroker() as broker:
        run = _produces(lab, broker)
        return _named("unwatched", run()) | _named("watched", run())


def _controlled(lab: Lab) -> dict[str, float]:
    control = lab.new_folder("control") / "socket"
    with lab.new_minibroker("--control", str(control)) as broker:
        run = _produces(lab, broker)
        unwatched = run()
        with _pulling(control):
            return _named("unwatched", unwatched) | _named("watched", run())


def _produces(lab: Lab, broker: Broker) -> Run:
    """The load, warmed up."""
    run = small_requests(lab, broker, frames.produce(create_topic(broker, CASE), value_bytes=VALUE_BYTES))
    run()
    return run


def _named(name: str, measured: Mapping[str, float]) -> dict[str, float]:
    return {f"{name}_{metric}": value for metric, value in measured.items()}


@contextmanager
def _pulling(control: Path) -> Iterator[None]:
    """Pull from a broker ten times a second, as a console does."""
    is_over = threading.Event()

    def pull() -> None:
        client, since = Control(control), 0
        while not is_over.wait(PULL_SECONDS):
            since = client.call("inside.pull", since=since, budget=BUDGET)["next"]
        client.call("inside.release")

    puller = threading.Thread(target=pull)
    puller.start()
    try:
        yield
    finally:
        is_over.set()
        puller.join()
