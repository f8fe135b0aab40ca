"""Spark's own Kafka source and sink: a batch of 5 GB, and record by record.

Five million records of 1 KiB are read in one batch by one executor of two cores, in a session that is warm, and
again by sessions that have just started. In Real-time Mode a query passes each record on to another topic. The jobs
that archive and replay run beside what Spark does alike by itself.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.lab import CaseUnavailableError, Lab
from benchmarks.measurements import MINIBROKER, PLAIN, Measurement, Run
from benchmarks.processes import ROOT, ProcessError, module_command, parse_json_line, run_json
from benchmarks.topics import Broker, create_topic, delete_topic, fill_topic, settle_disk

CASE = "spark"
RECORDS = 5_000_000
VALUE_BYTES = 1024
PARTITIONS = 2
WARM_UPS = 1
REAL_TIME = "spark real-time"
JOBS = "spark jobs"
JOB_RECORDS = 1_000_000
MESSAGES = 300
GAP_MS = 50.0
LOAD_SECONDS = 120.0
QUANTITIES = ("p50_us", "p99_us")


class Reader:
    """The Spark process; it reads the topics it is given."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self, broker: Broker, topic: str) -> dict[str, float]:
        """Have one topic read. Raises ProcessError."""
        return _asked(self._process, broker.bootstrap, topic)


def measure(lab: Lab) -> list[Measurement]:
    """Read from each broker with one Spark session. Raises CaseUnavailableError."""
    count = lab.plan.amount(RECORDS)
    topics: dict[str, str] = {}
    with _spark(lab) as process:
        reader = Reader(process)
        runs: dict[str, Run] = {}
        for broker in lab.brokers():
            topic = topics[broker.name] = create_topic(broker, CASE, partitions=PARTITIONS)
            fill_topic(broker, topic, count=count, size_bytes=VALUE_BYTES, partitions=PARTITIONS)
            runs[broker.name] = _run(reader, broker, topic, count)
        settle_disk()
        samples = lab.interleave(CASE, runs, warm_ups=WARM_UPS)
        memory = {broker.name: [broker.rss_mb()] for broker in lab.brokers()}
        cold = lab.interleave(
            f"{CASE}, cold",
            {broker.name: _cold_run(lab, broker, topics[broker.name], count) for broker in lab.brokers()},
        )
        for broker in lab.brokers():
            delete_topic(broker, topics[broker.name])
    return [
        Measurement(CASE, "records_per_s", "Spark batch read", "1/s", samples["records_per_s"]),
        Measurement(CASE, "cpu_s_per_gb", "Spark batch read, server CPU", "s/GB", samples["cpu_s_per_gb"]),
        Measurement(CASE, "cold_records_per_s", "Spark batch read, new session", "1/s", cold["records_per_s"]),
        Measurement(CASE, "rss_after_mb", "memory after all batch reads", "MB", memory),
    ]


def measure_real_time(lab: Lab) -> list[Measurement]:
    """Follow records through a query in Real-time Mode over each broker. Raises CaseUnavailableError."""
    with ExitStack() as stack:
        runs: dict[str, Run] = {}
        for broker in lab.brokers():
            topic, back = create_topic(broker, "real-time"), create_topic(broker, "real-time-back")
            checkpoint = lab.new_folder("real-time") / "checkpoint"
            stack.enter_context(_spark(lab, "spark_relay", broker.bootstrap, topic, back, str(checkpoint)))
            runs[broker.name] = _relay_run(lab, broker, topic, back)
        samples = lab.interleave(REAL_TIME, runs, warm_ups=1)
    return [
        Measurement(REAL_TIME, metric, f"topic to topic by Spark, {metric.removesuffix('_us')}", "us", samples[metric])
        for metric in QUANTITIES
    ]


def measure_jobs(lab: Lab) -> list[Measurement]:
    """Archive a topic and replay that, beside a plain query and Spark's own sink. Raises CaseUnavailableError."""
    broker, count = lab.minibroker, lab.plan.amount(JOB_RECORDS)
    kept = lab.new_folder("archive")
    source = create_topic(broker, "archive", partitions=PARTITIONS)
    fill_topic(broker, source, count=count, size_bytes=VALUE_BYTES, partitions=PARTITIONS)

    def archiving(what: str) -> Run:
        def run() -> dict[str, float]:
            folder = lab.new_folder("archived")
            seconds = _asked(process, what, broker.bootstrap, source, str(folder))["seconds"]
            shutil.rmtree(folder)
            return {"archived_per_s": count / seconds}

        return run

    def replaying(what: str) -> Run:
        def run() -> dict[str, float]:
            topic = create_topic(broker, "replay", partitions=PARTITIONS)
            seconds = _asked(process, what, broker.bootstrap, topic, str(kept))["seconds"]
            delete_topic(broker, topic)
            return {"replayed_per_s": count / seconds}

        return run

    with _spark(lab, "spark_jobs") as process:
        _asked(process, "archive", broker.bootstrap, source, str(kept))
        names = {MINIBROKER: "archive", PLAIN: "plain-archive"}
        archived = lab.interleave(f"{JOBS}, archive", {of: archiving(what) for of, what in names.items()}, warm_ups=1)
        delete_topic(broker, source)
        names = {MINIBROKER: "replay", PLAIN: "plain-replay"}
        replayed = lab.interleave(f"{JOBS}, replay", {of: replaying(what) for of, what in names.items()}, warm_ups=2)
    return [
        Measurement(JOBS, "archived_per_s", "topic to Parquet", "1/s", archived["archived_per_s"]),
        Measurement(JOBS, "replayed_per_s", "Parquet to topic", "1/s", replayed["replayed_per_s"]),
    ]


def _asked(process: subprocess.Popen[str], *words: str) -> dict[str, float]:
    """Give a Spark program a line, and return its answer. Raises ProcessError."""
    if process.stdin is None or process.stdout is None:
        raise ProcessError("Spark has no pipes")
    process.stdin.write(" ".join(words) + "\n")
    process.stdin.flush()
    return parse_json_line(process.stdout.readline())


def _relay_run(lab: Lab, broker: Broker, topic: str, back: str) -> Run:
    command = module_command("benchmarks.load.confluent", "follow", broker.bootstrap, topic, "--back", back)
    command += ["--count", str(lab.plan.amount(MESSAGES)), "--gap-ms", str(GAP_MS)]

    def run() -> dict[str, float]:
        measured = run_json(command, seconds=LOAD_SECONDS)
        return {metric: measured[metric] for metric in QUANTITIES}

    return run


def _cold_run(lab: Lab, broker: Broker, topic: str, count: int) -> Run:
    def run() -> dict[str, float]:
        with _spark(lab) as process:
            return {"records_per_s": _run(Reader(process), broker, topic, count)()["records_per_s"]}

    return run


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
def _spark(lab: Lab, program: str = "spark_reader", *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Spark program that is ready; it ends with its standard input."""
    errors_path = lab.new_folder(CASE) / "errors"
    with errors_path.open("w") as errors:
        process = subprocess.Popen(
            [str(part) for part in module_command(f"benchmarks.load.{program}", *arguments)],
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
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
