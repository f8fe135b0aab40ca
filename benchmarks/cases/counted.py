"""The cost of counting for metrics: small requests of a broker while it counts, beside those while it does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import frames
from benchmarks.cases.consumers import session_load
from benchmarks.cases.groups import commit_of_offsets
from benchmarks.cases.requests import CONNECTIONS, VALUE_BYTES
from benchmarks.frames import Frame
from benchmarks.lab import Lab
from benchmarks.measurements import Measurement
from benchmarks.toggled import Load, toggled
from benchmarks.topics import Broker, create_topic
from minibroker.control import Control

CASE = "metrics"
LEASE_MS = 60_000


def measure(lab: Lab) -> list[Measurement]:
    """Every kind of small request."""
    lab.close_brokers()
    measurements: list[Measurement] = []
    path = lab.new_folder("control") / "socket"
    with lab.new_minibroker("--control", str(path)) as broker:
        control = Control(path)

        def count(is_on: bool) -> None:
            control.call("inside.metrics", lease_ms=LEASE_MS if is_on else 0)

        for metric, (text, load_of) in LOADS.items():
            samples = toggled(broker, load_of(lab, broker), count, rounds=lab.plan.rounds)
            measurements += [
                Measurement(CASE, f"{metric}_per_s", f"{text}, counted", "1/s", samples["per_s"]),
                Measurement(CASE, f"{metric}_cpu_us", f"{text}, counted, server CPU", "us", samples["cpu_us"]),
            ]
    return measurements


def same_request(lab: Lab, broker: Broker, request: Frame) -> Load:
    """One request over and over, over ten connections."""
    return lambda seconds: lab.request_loop(
        broker.host, broker.port, [request], connections=CONNECTIONS, seconds=seconds
    )


def produces(lab: Lab, broker: Broker) -> Load:
    return same_request(lab, broker, frames.produce(create_topic(broker, CASE), value_bytes=VALUE_BYTES))


LOADS: dict[str, tuple[str, Callable[[Lab, Broker], Load]]] = {
    "produce": ("Produce v5, one 100 B batch", produces),
    "session": ("Fetch in a session of ten partitions, nothing new", session_load),
    "commit": ("OffsetCommit, one partition", lambda lab, broker: same_request(lab, broker, commit_of_offsets(broker))),
    "api_versions": ("ApiVersions", partial(same_request, request=frames.api_versions())),
}
