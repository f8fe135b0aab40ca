"""What the inside view costs: small requests of a broker without `--control`, of one that has it, and of one that a
console pulls from ten times a second."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import frames
from benchmarks.cases.requests import small_requests
from benchmarks.frames import Frame
from benchmarks.lab import Lab
from benchmarks.measurements import MINIBROKER, PLAIN, Measurement, Run
from benchmarks.topics import Broker, create_topic
from minibroker.control import Control

CASE = "watched"
VALUE_BYTES = 100
PULL_SECONDS = 0.1
BUDGET = 100


def measure(lab: Lab) -> list[Measurement]:
    """A produce of one batch, on three brokers in turn; the second and the third are one process."""
    lab.close_brokers()
    control = lab.new_folder("control") / "socket"
    with ExitStack() as stack:
        plain = stack.enter_context(lab.new_minibroker())
        controlled = stack.enter_context(lab.new_minibroker("--control", str(control)))
        requests = {
            broker: frames.produce(create_topic(broker, CASE), value_bytes=VALUE_BYTES)
            for broker in (plain, controlled)
        }
        unwatched = lab.interleave(
            f"{CASE}, no look",
            {
                PLAIN: small_requests(lab, plain, requests[plain]),
                MINIBROKER: small_requests(lab, controlled, requests[controlled]),
            },
        )
        watched = lab.interleave(
            f"{CASE}, a look",
            {
                PLAIN: small_requests(lab, plain, requests[plain]),
                MINIBROKER: _run(lab, controlled, requests[controlled], control),
            },
        )
    rows = (("unwatched", "--control, no look", unwatched), ("watched", "--control, ten pulls a second", watched))
    return [
        Measurement(CASE, f"{name}_{metric}", f"Produce v5, one 100 B batch, {text}{what}", unit, samples[metric])
        for name, text, samples in rows
        for metric, what, unit in (("per_s", "", "1/s"), ("p99_us", ", p99", "us"), ("cpu_us", ", server CPU", "us"))
    ]


def _run(lab: Lab, broker: Broker, request: Frame, control: Path) -> Run:
    run = small_requests(lab, broker, request)

    def run_watched() -> Mapping[str, float]:
        with _pulling(control):
            return run()

    return run_watched


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
