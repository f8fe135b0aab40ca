"""What counting for metrics costs: small requests of a broker that counts, beside those of one that does not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from benchmarks import frames
from benchmarks.cases.consumers import LOADS
from benchmarks.cases.groups import commits_of_offsets
from benchmarks.cases.requests import SECONDS, VALUE_BYTES, small_requests
from benchmarks.lab import Lab
from benchmarks.measurements import MINIBROKER, PLAIN, Measurement, Run
from benchmarks.topics import Broker, create_topic

CASE = "metrics"
WARM_UPS = 1


def measure(lab: Lab) -> list[Measurement]:
    """Every kind of small request, on two brokers in turn. Both have a control socket."""
    lab.close_brokers()
    measurements: list[Measurement] = []
    with ExitStack() as stack:
        controls = lab.new_folder("control")
        plain = stack.enter_context(lab.new_minibroker("--control", str(controls / "plain")))
        counting = stack.enter_context(lab.new_minibroker("--control", str(controls / "counting"), "--count"))
        for metric, (text, load) in LOADED.items():
            runs = {PLAIN: load(lab, plain), MINIBROKER: load(lab, counting)}
            samples = lab.interleave(f"{CASE}, {text}", runs, warm_ups=WARM_UPS)
            measurements += [
                Measurement(CASE, f"{metric}_per_s", f"{text}, counted", "1/s", samples["per_s"]),
                Measurement(CASE, f"{metric}_cpu_us", f"{text}, counted, server CPU", "us", samples["cpu_us"]),
            ]
    return measurements


def _produce(lab: Lab, broker: Broker) -> Run:
    return small_requests(lab, broker, frames.produce(create_topic(broker, CASE), value_bytes=VALUE_BYTES))


def _api_versions(lab: Lab, broker: Broker) -> Run:
    return small_requests(lab, broker, frames.api_versions())


def _session(lab: Lab, broker: Broker) -> Run:
    return LOADS["session"](lab, broker, SECONDS * min(1.0, lab.plan.volume * 2))


LOADED: dict[str, tuple[str, Callable[[Lab, Broker], Run]]] = {
    "produce": ("Produce v5, one 100 B batch", _produce),
    "session": ("Fetch in a session of ten partitions, nothing new", _session),
    "commit": ("OffsetCommit, one partition", commits_of_offsets),
    "api_versions": ("ApiVersions", _api_versions),
}
