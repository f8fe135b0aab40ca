"""Small requests a second over ten connections, one in flight on each: against Apache Kafka, and against an epoll
loop that answers as many bytes and does nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks import frames
from benchmarks.frames import Frame
from benchmarks.lab import Lab
from benchmarks.measurements import MINIBROKER, RAW, Measurement, Run, Samples
from benchmarks.processes import ServerProcess
from benchmarks.topics import Broker, create_topic

CASE = "requests"
CONNECTIONS = 10
SECONDS = 1.0
PARTITIONS = 10
VALUE_BYTES = 100
WARM_UPS = 2  # the JVM compiles


class Kind(NamedTuple):
    """A request that is the same each time; what consumers send is in consumers.py."""

    metric: str
    text: str


KINDS = (
    Kind("api_versions", "ApiVersions"),
    Kind("metadata", "Metadata v5 of a topic of ten partitions"),
    Kind("produce", "Produce v5, one 100 B batch"),
)


def measure(lab: Lab) -> list[Measurement]:
    """Every kind of request on every broker."""
    measurements: list[Measurement] = []
    for kind in KINDS:
        with ExitStack() as stack:
            runs: dict[str, Run] = {}
            response_bytes = 0
            request = _frame(kind, "")
            for broker in lab.brokers():
                request = _frame(kind, create_topic(broker, CASE, partitions=PARTITIONS))
                size_bytes, _ = frames.ask(broker.host, broker.port, request)
                if broker.name == MINIBROKER:
                    response_bytes = size_bytes
                runs[broker.name] = small_requests(lab, broker, request)
            server = stack.enter_context(lab.raw_server("echo", response_bytes=response_bytes))
            runs[RAW] = small_requests(lab, server, request)
            samples = lab.interleave(f"{CASE}, {kind.text}", runs, warm_ups=WARM_UPS)
        measurements += rates(CASE, kind.metric, kind.text, samples)
    return measurements


def rates(case: str, metric: str, text: str, samples: Samples) -> list[Measurement]:
    """The rows of a request that was asked over and over."""
    return [
        Measurement(case, f"{metric}_per_s", text, "1/s", samples["per_s"]),
        Measurement(case, f"{metric}_p99_us", f"{text}, p99", "us", samples["p99_us"]),
        Measurement(case, f"{metric}_cpu_us", f"{text}, server CPU", "us", samples["cpu_us"]),
        Measurement(case, f"{metric}_kernel_us", f"{text}, of it in the kernel", "us", samples["kernel_us"]),
    ]


def _frame(kind: Kind, topic: str) -> Frame:
    if kind.metric == "api_versions":
        return frames.api_versions()
    if kind.metric == "metadata":
        return frames.metadata(topic)
    return frames.produce(topic, value_bytes=VALUE_BYTES)


def small_requests(lab: Lab, server: Broker | ServerProcess, *requests: Frame, connections: int = CONNECTIONS) -> Run:
    """The same requests in turn, over and over, for a second."""
    seconds = SECONDS * min(1.0, lab.plan.volume * 2)

    def load() -> dict[str, float]:
        return lab.request_loop(server.host, server.port, requests, connections=connections, seconds=seconds)

    return lambda: under_load(server, load)


def under_load(server: Broker | ServerProcess, load: Callable[[], dict[str, float]]) -> dict[str, float]:
    """The figures of a load, and the CPU time that the server took for each of its requests."""
    before, kernel_before = server.cpu_seconds(), server.kernel_seconds()
    measured = load()
    cpu_seconds, kernel_seconds = server.cpu_seconds() - before, server.kernel_seconds() - kernel_before
    return {
        "per_s": measured["requests"] / measured["seconds"],
        "p50_us": measured["p50_us"],
        "p99_us": measured["p99_us"],
        "cpu_us": cpu_seconds / measured["requests"] * 1e6,
        "kernel_us": kernel_seconds / measured["requests"] * 1e6,
    }
