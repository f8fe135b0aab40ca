"""Curves, not points: what more connections, partitions, and bytes of log cost; memory of each partition and member.

A point is a measurement of its own, named by what grows and how far. What stays level from the first point to the last
costs nothing by itself; `python -m benchmarks.curves` draws them.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import frames
from benchmarks.cases.requests import small_requests
from benchmarks.installed import Minibroker, first_answer_seconds
from benchmarks.lab import Lab, allow_many_connections
from benchmarks.load.groups import Member, generation
from benchmarks.measurements import MINIBROKER, RAW, Measurement, Run, Samples
from benchmarks.sparse_log import OFFSETS_A_PAIR, write_sparse_log
from benchmarks.topics import Broker, create_topic

CASE = "scale"
CONNECTIONS = (1, 10, 100, 1000)
PARTITIONS = (1, 10, 100, 1000, 5000)
KAFKA_PARTITIONS_MAX = 1000  # it takes minutes to create more here
GIBIBYTES = (1, 10, 50)
LOGS = (100, 1000, 4700)  # that a broker starts and stops with
PARTITIONS_A_TOPIC = 100
MEMBERS = 100
CONSUMERS = 1000
LOOP_CONNECTIONS = 10
SECONDS = 1.0
FRAMES_MAX = 1000
VALUE_BYTES = 100
SHORT_BATCH_BYTES = 1024
LONG_WAIT_MS = 60_000
SETTLE_SECONDS = 0.5
WARM_UPS = 1
SEED = 7
KIB_OF_MB = 1e6 / 1024


def measure(lab: Lab) -> list[Measurement]:
    """Every curve."""
    return [
        *over_connections(lab),
        *over_partitions(lab),
        *over_bytes(lab),
        *over_logs(lab),
        *memory_of_clients(lab),
    ]


# -- requests -------------------------------------------------------------------------------------------------


def over_connections(lab: Lab) -> Iterator[Measurement]:
    """Produces of one 100 B batch, one in flight on each connection."""
    allow_many_connections(max(CONNECTIONS))
    topics = {broker.name: create_topic(broker, CASE, partitions=10) for broker in lab.brokers()}
    for count in CONNECTIONS:
        with ExitStack() as stack:
            runs: dict[str, Run] = {}
            response_bytes = 0
            for broker in lab.brokers():
                request = frames.produce(topics[broker.name], value_bytes=VALUE_BYTES)
                size_bytes, _ = frames.ask(broker.host, broker.port, request)
                response_bytes = size_bytes if broker.name == MINIBROKER else response_bytes
                runs[broker.name] = small_requests(lab, broker, request, connections=count)
            server = stack.enter_context(lab.raw_server("echo", response_bytes=response_bytes))
            request = frames.produce(topics[MINIBROKER], value_bytes=VALUE_BYTES)
            runs[RAW] = small_requests(lab, server, request, connections=count)
            samples = lab.interleave(f"{CASE}, {count:,} connections", runs, warm_ups=WARM_UPS)
        yield from rows_of(samples, "connections", count, "produces")


def over_partitions(lab: Lab) -> Iterator[Measurement]:
    """Produces and fetches of one partition each, over so many partitions in turn."""
    for count in PARTITIONS:
        appends: dict[str, Run] = {}
        fetches: dict[str, Run] = {}
        for broker in lab.brokers():
            if count > KAFKA_PARTITIONS_MAX and not isinstance(broker, Minibroker):
                continue
            topic = create_topic(broker, CASE, partitions=count)
            chosen = random.Random(SEED).sample(range(count), min(count, FRAMES_MAX))
            produces = [frames.produce(topic, value_bytes=VALUE_BYTES, partitions=[each]) for each in chosen]
            for produce in produces:
                frames.ask(broker.host, broker.port, produce)
            appends[broker.name] = small_requests(lab, broker, *produces)
            reads = [frames.fetch(topic, [0], first_partition=each, max_bytes=SHORT_BATCH_BYTES) for each in chosen]
            fetches[broker.name] = small_requests(lab, broker, *reads)
        for what, runs in (("produces", appends), ("fetches", fetches)):
            samples = lab.interleave(f"{CASE}, {what} over {count:,} partitions", runs, warm_ups=WARM_UPS)
            yield from rows_of(samples, "partitions", count, what)


def over_bytes(lab: Lab) -> Iterator[Measurement]:
    """Produces at the end and fetches of a short batch anywhere, in a log of so many gibibytes."""
    lab.close_brokers()
    for gibibytes in GIBIBYTES:
        with ExitStack() as stack:
            appends: dict[str, Run] = {}
            fetches: dict[str, Run] = {}
            for build in lab.builds:
                broker = lab.new_minibroker(build=build)
                end = write_sparse_log(broker.data_dir, CASE, gibibytes=gibibytes)
                stack.enter_context(broker)
                chosen = random.Random(SEED).sample(range(0, end, OFFSETS_A_PAIR), FRAMES_MAX)
                reads = [frames.fetch(CASE, [offset], max_bytes=SHORT_BATCH_BYTES) for offset in chosen]
                frames.ask(broker.host, broker.port, reads[0])
                fetches[build] = small_requests(lab, broker, *reads)
                appends[build] = small_requests(lab, broker, frames.produce(CASE, value_bytes=VALUE_BYTES))
            for what, runs in (("fetches", fetches), ("produces", appends)):
                samples = lab.interleave(f"{CASE}, {what} in a log of {gibibytes} GiB", runs, warm_ups=WARM_UPS)
                yield from rows_of(samples, "gibibytes", gibibytes, what)


def rows_of(samples: Samples, grown: str, count: int, what: str) -> Iterator[Measurement]:
    text = f"{what}, {count:,} {grown if count > 1 else grown.removesuffix('s')}"
    for metric, unit, added in (("per_s", "1/s", ""), ("p99_us", "us", ", p99"), ("cpu_us", "us", ", server CPU")):
        yield Measurement(CASE, f"{grown}_{count}_{what}_{metric}", text + added, unit, samples[metric])


# -- brokers --------------------------------------------------------------------------------------------------


def over_logs(lab: Lab) -> Iterator[Measurement]:
    """Start, stop, and memory after the start, of a broker with so many partitions, all of them written to."""
    for count in LOGS:
        runs: dict[str, Run] = {build: partial(with_logs, lab, build, count) for build in lab.builds}
        samples = lab.interleave(f"{CASE}, {count:,} logs", runs, warm_ups=0)
        for metric, text, unit in (("start_s", "start", "s"), ("stop_s", "stop", "s"), ("rss_mb", "memory", "MB")):
            yield Measurement(CASE, f"logs_{count}_{metric}", f"{text} with {count:,} logs", unit, samples[metric])
        yield Measurement(CASE, f"logs_{count}_files", f"open files with {count:,} logs", "", samples["open_files"])


def with_logs(lab: Lab, build: str, count: int) -> dict[str, float]:
    broker = lab.new_minibroker(build=build)
    with broker:
        for first in range(0, count, PARTITIONS_A_TOPIC):
            partitions = min(PARTITIONS_A_TOPIC, count - first)
            topic = create_topic(broker, CASE, partitions=partitions)
            request = frames.produce(topic, value_bytes=VALUE_BYTES, partitions=range(partitions))
            frames.ask(broker.host, broker.port, request)
        began = time.perf_counter()
        broker.broker.terminate()
        stop_s = time.perf_counter() - began
    try:
        start_s = first_answer_seconds(broker.spawn_broker())
        time.sleep(SETTLE_SECONDS)
        open_files = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
        return {"start_s": start_s, "stop_s": stop_s, "rss_mb": broker.rss_mb(), "open_files": open_files}
    finally:
        broker.kill()


# -- memory of clients ----------------------------------------------------------------------------------------


def memory_of_clients(lab: Lab) -> Iterator[Measurement]:
    """The broker's memory for an idle consumer, and for a member of a group."""
    allow_many_connections(CONSUMERS)
    runs: dict[str, Run] = {build: partial(with_clients, lab, build) for build in lab.builds}
    samples = lab.interleave(f"{CASE}, memory of clients", runs, warm_ups=0)
    for metric, text in (
        ("consumer_kib_each", f"memory of an idle consumer with a session, of {CONSUMERS:,}"),
        ("member_kib_each", f"memory of a group member, of {MEMBERS}"),
    ):
        yield Measurement(CASE, metric, text, "KiB", samples[metric])


def with_clients(lab: Lab, build: str) -> dict[str, float]:
    with lab.new_minibroker(build=build) as broker:
        consumers = grown_kib(broker, partial(wait_as_consumers, broker, create_topic(broker, CASE))) / CONSUMERS
    with lab.new_minibroker(build=build) as broker:
        frames.ask(broker.host, broker.port, frames.find_coordinator(CASE))
        members = grown_kib(broker, partial(join_as_members, broker)) / MEMBERS
    return {"consumer_kib_each": consumers, "member_kib_each": members}


def grown_kib(broker: Broker, act: Callable[[], list[socket.socket] | list[Member]]) -> float:
    """By how much the broker's memory has grown when the clients are there."""
    before_mb = broker.rss_mb()
    clients = act()
    time.sleep(SETTLE_SECONDS)
    grown_mb = broker.rss_mb() - before_mb
    for client in clients:
        client.close()
    return grown_mb * KIB_OF_MB


def wait_as_consumers(broker: Broker, topic: str) -> list[socket.socket]:
    """Each begins a fetch session, and then waits for records in it."""
    frames.ask(broker.host, broker.port, frames.produce(topic, value_bytes=VALUE_BYTES))
    waiting = []
    for _ in range(CONSUMERS):
        connection = socket.create_connection((broker.host, broker.port), timeout=frames.ANSWER_SECONDS)
        _, answer = frames.ask_over(connection, frames.fetch(topic, [1], session=(0, 0)))
        connection.sendall(frames.fetch(topic, [], session=(answer.session_id, 1), max_wait_ms=LONG_WAIT_MS).payload)
        waiting.append(connection)
    return waiting


def join_as_members(broker: Broker) -> list[Member]:
    """They join all at once, as `generation` has it for those that are in the group already."""
    group: list[Member] = []
    for _ in range(MEMBERS):
        group.append(Member(broker.host, broker.port))
        generation(group)
    return group
