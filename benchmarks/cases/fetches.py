"""Ten thousand hot fetch answers of 1 MiB: gigabytes a second and the slowest of them, for one reader and for ten.

The limit is a blocking sendfile loop, a thread a connection, over a file of the same size; that of a broker with one
thread is the same loop without blocking.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from benchmarks import frames
from benchmarks.frames import MEBIBYTE, Frame
from benchmarks.lab import Lab
from benchmarks.measurements import RAW, Measurement, Run
from benchmarks.processes import ServerProcess
from benchmarks.topics import Broker, create_topic, delete_topic, fill_topic, settle_disk

CASE = "fetches"
ANSWERS = 10_000
VALUE_BYTES = 1024
MESSAGES = 256 * 1024
# 1 MiB holds fewer than 1,024 such messages, so every answer is a full one.
OFFSETS = range(0, MESSAGES - 2048, 1024)
ONE_THREAD = f"{RAW}, one thread"
READERS = {"1_conn": 1, "10_conns": 10}
BYTES_PER_GB = 1e9


def measure(lab: Lab) -> list[Measurement]:
    """The same answers from each broker."""
    measurements: list[Measurement] = []
    brokers = lab.brokers()
    with ExitStack() as stack:
        requests: dict[str, list[Frame]] = {}
        for broker in brokers:
            topic = create_topic(broker, CASE)
            stack.callback(delete_topic, broker, topic)
            fill_topic(broker, topic, count=MESSAGES, size_bytes=VALUE_BYTES)
            requests[broker.name] = [frames.fetch(topic, [offset]) for offset in OFFSETS]
            for request in (requests[broker.name][0], requests[broker.name][-1]):
                _check_full(broker, request)
        file = _file_of(lab.new_folder("raw") / "records", size_bytes=MESSAGES * VALUE_BYTES)
        settle_disk()
        raw = stack.enter_context(lab.raw_server("sendfile", response_bytes=MEBIBYTE, file=file))
        one_thread = stack.enter_context(lab.raw_server("sendfile-loop", response_bytes=MEBIBYTE, file=file))
        for metric, readers in READERS.items():
            runs = {broker.name: _run(lab, broker, requests[broker.name], readers) for broker in brokers}
            runs[RAW] = _run(lab, raw, [frames.api_versions()], readers)
            runs[ONE_THREAD] = _run(lab, one_thread, [frames.api_versions()], readers)
            samples = lab.interleave(f"{CASE}, {readers} readers", runs)
            of_one_thread = {each: values.pop(ONE_THREAD) for each, values in samples.items()}["gb_per_s"]
            text = f"1 MiB answers, {readers} reader{'s' if readers > 1 else ''}"
            measurements += [
                Measurement(CASE, f"{metric}_gb_per_s", text, "GB/s", samples["gb_per_s"]),
                Measurement(
                    CASE,
                    f"{metric}_one_thread_gb_per_s",
                    f"{text}, raw in one thread",
                    "GB/s",
                    {**samples["gb_per_s"], RAW: of_one_thread},
                ),
                Measurement(CASE, f"{metric}_cpu_s_per_gb", f"{text}, server CPU", "s/GB", samples["cpu_s_per_gb"]),
                Measurement(CASE, f"{metric}_p99_us", f"{text}, p99", "us", samples["p99_us"]),
                Measurement(CASE, f"{metric}_max_us", f"{text}, slowest", "us", samples["max_us"]),
                Measurement(CASE, f"{metric}_over_100_ms", f"{text}, over 100 ms", "", samples["over_100_ms"]),
            ]
    return measurements


def _check_full(broker: Broker, request: Frame) -> None:
    _, body = frames.ask(broker.host, broker.port, request)
    size_bytes = len(bytes(body.topics[0].partitions[0].records))
    if size_bytes != MEBIBYTE:
        raise frames.FrameError(f"{broker.name} answered {size_bytes} bytes of records instead of 1 MiB")


def _file_of(path: Path, *, size_bytes: int) -> Path:
    block = os.urandom(MEBIBYTE)
    with path.open("wb") as file:
        for _ in range(size_bytes // MEBIBYTE):
            file.write(block)
    return path


def _run(lab: Lab, server: Broker | ServerProcess, requests: list[Frame], readers: int) -> Run:
    def run() -> dict[str, float]:
        before = server.cpu_seconds()
        measured = lab.request_loop(
            server.host, server.port, requests, connections=readers, requests=lab.plan.amount(ANSWERS)
        )
        cpu_seconds = server.cpu_seconds() - before
        gigabytes = measured["bytes"] / BYTES_PER_GB
        return {
            "gb_per_s": gigabytes / measured["seconds"],
            "cpu_s_per_gb": cpu_seconds / gigabytes,
            "p99_us": measured["p99_us"],
            "max_us": measured["max_us"],
            "over_100_ms": measured["over_100_ms"],
        }

    return run
