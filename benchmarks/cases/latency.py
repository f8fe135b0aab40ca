"""How long a message takes from a producer to a consumer that waits for it: one at a time, 2 ms apart, acks=1.

Measured twice: with the broker's defaults, and with `--busy-poll-ms`, which keeps it awake between messages. Raw is a
relay that does nothing with a batch but pass it on: what the clients and waking them take.
A small request at the same pace, also against raw sockets, shows the cost of a wake-up.
"""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks import frames
from benchmarks.lab import RELAYED, Lab
from benchmarks.measurements import RAW, Measurement, Run
from benchmarks.processes import ServerProcess, module_command, run_json
from benchmarks.topics import Broker, create_topic

CASE = "latency"
MESSAGES = 1000
GAP_MS = 2.0
BUSY = ", busy polling"  # behind a contender's name
BUSY_POLL_MS = "5"
LOAD_SECONDS = 120.0
QUANTITIES = ("p50_us", "p99_us", "max_us")
REQUEST_QUANTITIES = ("p50_us", "p99_us")


def measure(lab: Lab) -> list[Measurement]:
    """Follow messages through each broker, then requests."""
    with ExitStack() as stack:
        runs = {each.name: _message_run(lab, each, create_topic(each, CASE)) for each in lab.brokers()}
        for build in lab.builds:
            busy = stack.enter_context(lab.new_minibroker("--busy-poll-ms", BUSY_POLL_MS, build=build))
            runs[build + BUSY] = _message_run(lab, busy, create_topic(busy, CASE))
        runs[RAW] = _message_run(lab, stack.enter_context(lab.relay()), RELAYED)
        runs[RAW + BUSY] = _message_run(lab, stack.enter_context(lab.relay("--busy")), RELAYED)
        samples = lab.interleave(CASE, runs)
    measurements: list[Measurement] = []
    for metric in QUANTITIES:
        text = f"produce to consume, {metric.removesuffix('_us')}"
        of_busy = {each: samples[metric].pop(each + BUSY) for each in (*lab.builds, RAW)}
        measurements += [
            Measurement(CASE, metric, text, "us", samples[metric]),
            Measurement(CASE, f"busy_{metric}", f"{text}, busy polling", "us", {**samples[metric], **of_busy}),
        ]
    request = frames.api_versions()
    response_bytes, _ = frames.ask(lab.minibroker.host, lab.minibroker.port, request)
    with lab.raw_server("echo", response_bytes=response_bytes) as raw:
        runs = {broker.name: _request_run(lab, broker) for broker in lab.brokers()}
        runs[RAW] = _request_run(lab, raw)
        samples = lab.interleave(f"{CASE}, small requests", runs)
    for metric in REQUEST_QUANTITIES:
        text = f"ApiVersions alone, {metric.removesuffix('_us')}"
        measurements.append(Measurement(CASE, f"request_{metric}", text, "us", samples[metric]))
    return measurements


def _message_run(lab: Lab, broker: Broker | ServerProcess, topic: str) -> Run:
    command = module_command("benchmarks.load.confluent", "follow", broker.bootstrap, topic)
    command += ["--count", str(lab.plan.amount(MESSAGES)), "--gap-ms", str(GAP_MS)]

    def run() -> dict[str, float]:
        measured = run_json(command, seconds=LOAD_SECONDS)
        return {metric: measured[metric] for metric in QUANTITIES}

    return run


def _request_run(lab: Lab, server: Broker | ServerProcess) -> Run:
    request = [frames.api_versions()]
    gap_us = GAP_MS * 1000

    def run() -> dict[str, float]:
        measured = lab.request_loop(
            server.host, server.port, request, gap_us=gap_us, requests=lab.plan.amount(MESSAGES)
        )
        return {metric: measured[metric] for metric in REQUEST_QUANTITIES}

    return run
