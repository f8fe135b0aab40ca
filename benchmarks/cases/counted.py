"""What counting for metrics costs: small requests of a broker that counts, beside those of one that does not.

Each round has new brokers: two processes of the same program differ by as much as is measured here, by where their
memory happens to lie.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import frames
from benchmarks.cases.consumers import LOADS
from benchmarks.cases.groups import commits_of_offsets
from benchmarks.cases.requests import SECONDS, VALUE_BYTES, small_requests
from benchmarks.lab import Lab
from benchmarks.measurements import MINIBROKER, PLAIN, Measurement, Run
from benchmarks.topics import Broker, create_topic

CASE = "metrics"


def measure(lab: Lab) -> list[Measurement]:
    """Every kind of small request, on two new brokers in each round. Both have a control socket."""
    lab.close_brokers()
    runs: dict[str, Run] = {PLAIN: partial(_round, lab), MINIBROKER: partial(_round, lab, is_counting=True)}
    samples = lab.interleave(CASE, runs, warm_ups=0)
    return [
        Measurement(CASE, f"{metric}_{figure}", f"{text}, counted{what}", unit, samples[f"{metric}_{figure}"])
        for metric, (text, _) in LOADED.items()
        for figure, what, unit in (("per_s", "", "1/s"), ("cpu_us", ", server CPU", "us"))
    ]


def _round(lab: Lab, *, is_counting: bool = False) -> dict[str, float]:
    options = ("--control", str(lab.new_folder("control") / "socket"), *(("--count",) if is_counting else ()))
    measured: dict[str, float] = {}
    with lab.new_minibroker(*options) as broker:
        for metric, (_, load) in LOADED.items():
            run = load(lab, broker)
            run()  # warms up
            found = run()
            measured |= {f"{metric}_{figure}": found[figure] for figure in ("per_s", "cpu_us")}
    return measured


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
