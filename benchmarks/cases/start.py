"""From the command to the first answer, memory at rest, and memory after five gigabytes were served.

A new broker in every round, on an empty folder. Apache Kafka's ZooKeeper is up before its clock starts. Raw is a server
of trio alone, which is what any broker in Python has to start.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from benchmarks import frames
from benchmarks.apache_kafka import ApacheKafka
from benchmarks.installed import Minibroker, first_answer_seconds
from benchmarks.lab import Lab
from benchmarks.load import trio_server
from benchmarks.measurements import KAFKA, MINIBROKER, RAW, Measurement, Run
from benchmarks.processes import ServerProcess, free_port
from benchmarks.topics import create_topic, fill_topic

CASE = "start"
REST_SECONDS = 1.0
VALUE_BYTES = 1024
FILL_MESSAGES = 64 * 1024
FETCHED_OFFSETS = range(0, 60 * 1024, 1024)
ANSWERS = 5000  # of 1 MiB
READERS = 4


def measure(lab: Lab) -> list[Measurement]:
    """Start brokers, one at a time."""
    lab.close_brokers()
    runs: dict[str, Run] = {build: partial(_start_minibroker, lab, build) for build in lab.builds}
    if lab.has_kafka:
        runs[KAFKA] = lambda: _start_kafka(lab)
    runs[RAW] = lambda: _start_trio(lab)
    samples = lab.interleave(CASE, runs)
    return [
        Measurement(CASE, "first_answer_s", "first answer after the command", "s", samples["first_answer_s"]),
        Measurement(CASE, "rss_at_rest_mb", "memory at rest", "MB", samples["rss_at_rest_mb"]),
        Measurement(CASE, "rss_after_5_gb_mb", "memory after 5 GB was served", "MB", samples["rss_after_5_gb_mb"]),
    ]


def _start_minibroker(lab: Lab, build: str) -> dict[str, float]:
    broker = lab.new_minibroker(build=build)
    try:
        return _measure(lab, broker)
    finally:
        broker.kill()


def _start_kafka(lab: Lab) -> dict[str, float]:
    kafka = lab.new_kafka()
    try:
        kafka.start_zookeeper()
        return _measure(lab, kafka)
    finally:
        kafka.kill()


def _start_trio(lab: Lab) -> dict[str, float]:
    port = free_port()
    command: list[str | Path] = [lab.builds[MINIBROKER], trio_server.__file__, str(port)]
    server = ServerProcess("a server of trio alone", command, lab.new_folder("trio") / "log", port=port)
    try:
        return _at_first(server)
    finally:
        server.kill()


def _at_first(server: ServerProcess) -> dict[str, float]:
    first_answer_s = first_answer_seconds(server)
    time.sleep(REST_SECONDS)
    return {"first_answer_s": first_answer_s, "rss_at_rest_mb": server.rss_mb()}


def _measure(lab: Lab, broker: Minibroker | ApacheKafka) -> dict[str, float]:
    at_first = _at_first(broker.spawn_broker())
    if isinstance(broker, ApacheKafka):
        broker.wait_until_ready()
    topic = create_topic(broker, CASE)
    fill_topic(broker, topic, count=FILL_MESSAGES, size_bytes=VALUE_BYTES)
    requests = [frames.fetch(topic, [offset]) for offset in FETCHED_OFFSETS]
    for request in (requests[0], requests[-1]):
        frames.ask(broker.host, broker.port, request)
    lab.request_loop(broker.host, broker.port, requests, connections=READERS, requests=ANSWERS)
    return {**at_first, "rss_after_5_gb_mb": broker.rss_mb()}
