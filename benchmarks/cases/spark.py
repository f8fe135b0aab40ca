"""Spark reads a million records of 1 KiB in one batch, through its own Kafka source, in a session that is warm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.lab import CaseUnavailableError, Lab
from benchmarks.measurements import Measurement, Run
from benchmarks.processes import ROOT, ProcessError, module_command, parse_json_line
from benchmarks.topics import Broker, create_topic, delete_topic, fill_topic, settle_disk

CASE = "spark"
RECORDS = 1_000_000
VALUE_BYTES = 1024
PARTITIONS = 2
WARM_UPS = 2


class Reader:
    """The Spark process; it reads the topics it is given."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self, broker: Broker, topic: str) -> dict[str, float]:
        """Have one topic read. Raises ProcessError."""
        if self._process.stdin is None or self._process.stdout is None:
            raise ProcessError("Spark has no pipes")
        self._process.stdin.write(f"{broker.bootstrap} {topic}\n")
        self._process.stdin.flush()
        return parse_json_line(self._process.stdout.readline())


def measure(lab: Lab) -> list[Measurement]:
    """Read from each broker with one Spark session. Raises CaseUnavailableError."""
    count = lab.plan.amount(RECORDS)
    topics: dict[str, str] = {}
    with _spark(lab) as reader:
        runs: dict[str, Run] = {}
        for broker in lab.brokers():
            topic = topics[broker.name] = create_topic(broker, CASE, partitions=PARTITIONS)
            fill_topic(broker, topic, count=count, size_bytes=VALUE_BYTES, partitions=PARTITIONS)
            runs[broker.name] = _run(reader, broker, topic, count)
        settle_disk()
        samples = lab.interleave(CASE, runs, warm_ups=WARM_UPS)
        for broker in lab.brokers():
            delete_topic(broker, topics[broker.name])
    return [
        Measurement(CASE, "records_per_s", "Spark batch read", "1/s", samples["records_per_s"]),
        Measurement(CASE, "cpu_s_per_gb", "Spark batch read, server CPU", "s/GB", samples["cpu_s_per_gb"]),
    ]


def _run(reader: Reader, broker: Broker, topic: str, count: int) -> Run:
    def run() -> dict[str, float]:
        before = broker.cpu_seconds()
        measured = reader.read(broker, topic)
        cpu_seconds = broker.cpu_seconds() - before
        if measured["messages"] != count:
            raise ProcessError(f"Spark read {measured['messages']} of {count} records from {broker.name}")
        return {
            "records_per_s": count / measured["seconds"],
            "cpu_s_per_gb": cpu_seconds / (measured["bytes"] / 1e9),
        }

    return run


@contextmanager
def _spark(lab: Lab) -> Iterator[Reader]:
    errors_path = lab.new_folder(CASE) / "errors"
    with errors_path.open("w") as errors:
        process = subprocess.Popen(
            [str(part) for part in module_command("benchmarks.load.spark_reader")],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            lines = errors_path.read_text(errors="replace").strip().splitlines()
            raise CaseUnavailableError(lines[-1] if lines else "Spark ended without a message")
        yield Reader(process)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
