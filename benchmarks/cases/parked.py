"""Connections that wait: 9,000 fetches parked for 5 s each, and 10,000 connections that do nothing.

Their cost (core, memory), and the latency of a small request beside them, sent every 5 ms. Each round has a new
minibroker, so that its memory is not that of the last round; Apache Kafka's memory is not compared.
"""

from __future__ import annotations

import time
from functools import partial
from typing import NamedTuple

from benchmarks import frames
from benchmarks.frames import Frame
from benchmarks.lab import Lab, allow_many_connections
from benchmarks.measurements import KAFKA, Measurement, Run
from benchmarks.topics import Broker, create_topic

CASE = "parked"
PARKED = 9_000
IDLE = 10_000
MAX_WAIT_MS = 5_000
WINDOW_SECONDS = 5.0  # as long as a fetch waits: each is answered once in it
SETTLE_SECONDS = 1.0
PROBE_GAP_US = 5_000
BYTES_PER_KIB = 1024
MB_IN_KIB = 1e6 / BYTES_PER_KIB


class Beside(NamedTuple):
    """The cost of waiting connections, and the latency of a small request beside them."""

    core: float
    probe_p50_us: float
    probe_p99_us: float
    kib_each: float
    rss_mb: float


def measure(lab: Lab) -> list[Measurement]:
    """Park and hold connections on one broker after the other."""
    lab.close_brokers()
    runs: dict[str, Run] = {build: partial(_new_minibroker_round, lab, build) for build in lab.builds}
    if lab.has_kafka:
        runs[KAFKA] = lambda: _round(lab, lab.kafka)
    samples = lab.interleave(CASE, runs, warm_ups=0)
    parked, idle = _counts()
    rows = (
        ("parked_core", f"{parked:,} parked fetches, CPU", "cores"),
        ("parked_probe_p50_us", f"{parked:,} parked fetches, small request p50", "us"),
        ("parked_probe_p99_us", f"{parked:,} parked fetches, small request p99", "us"),
        ("parked_kib_each", "memory of a parked fetch", "KiB"),
        ("idle_core", f"{idle:,} idle connections, CPU", "cores"),
        ("idle_probe_p99_us", f"{idle:,} idle connections, small request p99", "us"),
        ("idle_kib_each", "memory of an idle connection", "KiB"),
        ("idle_rss_mb", f"memory with {idle:,} idle connections", "MB"),
    )
    return [Measurement(CASE, metric, text, unit, samples[metric]) for metric, text, unit in rows]


def _counts() -> tuple[int, int]:
    return allow_many_connections(PARKED), allow_many_connections(IDLE)


def _new_minibroker_round(lab: Lab, build: str) -> dict[str, float]:
    measured: dict[str, float] = {}
    parked, idle = _counts()
    with lab.new_minibroker(build=build) as broker:
        measured |= _idle(lab, broker, idle)
    with lab.new_minibroker(build=build) as broker:
        measured |= _parked(lab, broker, parked)
    return measured


def _round(lab: Lab, broker: Broker) -> dict[str, float]:
    parked, idle = _counts()
    measured = _idle(lab, broker, idle) | _parked(lab, broker, parked)
    for metric in ("parked_kib_each", "idle_kib_each", "idle_rss_mb"):
        del measured[metric]
    return measured


def _idle(lab: Lab, broker: Broker, count: int) -> dict[str, float]:
    beside = _beside(lab, broker, [], count)
    return {
        "idle_core": beside.core,
        "idle_probe_p99_us": beside.probe_p99_us,
        "idle_kib_each": beside.kib_each,
        "idle_rss_mb": beside.rss_mb,
    }


def _parked(lab: Lab, broker: Broker, count: int) -> dict[str, float]:
    topic = create_topic(broker, CASE)
    frames.ask(broker.host, broker.port, frames.fetch(topic, [0]))
    beside = _beside(lab, broker, [frames.fetch(topic, [0], max_wait_ms=MAX_WAIT_MS)], count)
    return {
        "parked_core": beside.core,
        "parked_probe_p50_us": beside.probe_p50_us,
        "parked_probe_p99_us": beside.probe_p99_us,
        "parked_kib_each": beside.kib_each,
    }


def _beside(lab: Lab, broker: Broker, requests: list[Frame], count: int) -> Beside:
    probe = [frames.api_versions()]
    lab.request_loop(broker.host, broker.port, probe, seconds=0.2, gap_us=PROBE_GAP_US)
    rss_before_mb = broker.rss_mb()
    with lab.background_loop(broker.host, broker.port, requests, connections=count):
        time.sleep(SETTLE_SECONDS)
        rss_mb = broker.rss_mb()
        cpu_before, start = broker.cpu_seconds(), time.perf_counter()
        probed = lab.request_loop(broker.host, broker.port, probe, seconds=WINDOW_SECONDS, gap_us=PROBE_GAP_US)
        core = (broker.cpu_seconds() - cpu_before) / (time.perf_counter() - start)
    kib_each = (rss_mb - rss_before_mb) * MB_IN_KIB / count
    return Beside(core, probed["p50_us"], probed["p99_us"], kib_each, rss_mb)
