"""The requests of consumers: of ten, with ten partitions each.

    session    an incremental fetch session at the end of the log: each request has the next epoch, names no partition
    appended   the same, with one append to a partition of the consumer after every ten answers
    woken      long polls that wait for all ten consumers when one append for each comes; from the append to the answer
    moving     full fetches without a session, as of older clients, at offsets that move: every one reads records

The limit of `session` and `moving` is an epoll loop that answers as many bytes and does nothing else. `make profile`
puts the same loads on a broker under a profiler.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import frames
from benchmarks.cases.requests import rates, under_load
from benchmarks.frames import Frame
from benchmarks.lab import Lab
from benchmarks.measurements import RAW, Measurement, Run
from benchmarks.processes import ServerProcess
from benchmarks.topics import Broker, create_topic

CASE = "consumers"
CONSUMERS = 10
PARTITIONS = 10  # of each consumer
SECONDS = 1.0
VALUE_BYTES = 100
APPEND_EVERY = 10
MAX_WAIT_MS = 5_000
GAP_US = 2_000  # until every fetch waits
MOVING_BATCHES = 1_000  # in each partition: as many different requests
MOVING_MAX_BYTES = 256  # of a partition: one batch, and a part of the next
SESSION_ANSWER_BYTES = 22  # of an incremental fetch that has nothing to say
WARM_UPS = 2  # the JVM compiles


def measure(lab: Lab) -> list[Measurement]:
    """Every load on every broker."""
    return [*_session(lab), *_appended(lab), *_woken(lab), *_moving(lab)]


def _session(lab: Lab) -> list[Measurement]:
    runs = _runs(lab, "session")
    with lab.raw_server("echo", response_bytes=SESSION_ANSWER_BYTES) as raw:
        runs[RAW] = _requests(lab, raw, [frames.fetch("", [])], _seconds(lab))
        samples = lab.interleave(f"{CASE}, sessions", runs, warm_ups=WARM_UPS)
    return rates(CASE, "session", "Fetch in a session of ten partitions, nothing new", samples)


def _appended(lab: Lab) -> list[Measurement]:
    samples = lab.interleave(f"{CASE}, sessions and appends", _runs(lab, "appended"), warm_ups=WARM_UPS)
    return rates(CASE, "appended", "the same, an append every ten", samples)


def _woken(lab: Lab) -> list[Measurement]:
    samples = lab.interleave(f"{CASE}, long polls", _runs(lab, "woken"), warm_ups=WARM_UPS)
    text = "ten long polls, ten appends"
    return [
        Measurement(CASE, "woken_p50_us", f"{text}: append to answer, p50", "us", samples["p50_us"]),
        Measurement(CASE, "woken_p99_us", f"{text}, p99", "us", samples["p99_us"]),
        Measurement(CASE, "woken_cpu_us", f"{text}, server CPU of both", "us", samples["cpu_us"]),
    ]


def _moving(lab: Lab) -> list[Measurement]:
    runs = _runs(lab, "moving")
    topic = create_topic(lab.minibroker, CASE, partitions=PARTITIONS)
    fill_batches(lab, lab.minibroker, topic)
    requests = moving_fetches(topic)
    response_bytes, _ = frames.ask(lab.minibroker.host, lab.minibroker.port, requests[-1])
    with lab.raw_server("echo", response_bytes=response_bytes) as raw:
        runs[RAW] = _requests(lab, raw, requests, _seconds(lab))
        samples = lab.interleave(f"{CASE}, full fetches", runs, warm_ups=WARM_UPS)
    return rates(CASE, "moving", "full Fetch of ten partitions, a batch of each", samples)


def _seconds(lab: Lab) -> float:
    return SECONDS * min(1.0, lab.plan.volume * 2)


def _runs(lab: Lab, load: str) -> dict[str, Run]:
    return {broker.name: LOADS[load](lab, broker, _seconds(lab)) for broker in lab.brokers()}


def _sessions(lab: Lab, broker: Broker, seconds: float, **options: float) -> Run:
    load = session_load(lab, broker, **options)
    return lambda: under_load(broker, lambda: load(seconds))


def session_load(lab: Lab, broker: Broker, **options: float) -> Callable[[float], dict[str, float]]:
    """Consumers with sessions, for so many seconds."""
    topic = create_topic(broker, CASE, partitions=CONSUMERS * PARTITIONS)
    every = range(CONSUMERS * PARTITIONS)
    appends = [frames.produce(topic, value_bytes=VALUE_BYTES, partitions=[number]) for number in every]
    shape = {"consumers": CONSUMERS, "partitions": PARTITIONS}
    return lambda seconds: lab.consumer_loop(broker, topic, appends, seconds=seconds, **shape, **options)


def _moving_fetches(lab: Lab, broker: Broker, seconds: float) -> Run:
    topic = create_topic(broker, CASE, partitions=PARTITIONS)
    fill_batches(lab, broker, topic)
    requests = moving_fetches(topic)
    _, body = frames.ask(broker.host, broker.port, requests[-1])
    if not all(len(bytes(row.records)) == MOVING_MAX_BYTES for row in body.topics[0].partitions):
        raise frames.FrameError(f"{broker.name} did not answer {MOVING_MAX_BYTES} bytes of every partition")
    return _requests(lab, broker, requests, seconds)


def fill_batches(lab: Lab, broker: Broker, topic: str) -> None:
    """Append small batches to each partition, one after the other."""
    batches = frames.produce(topic, value_bytes=VALUE_BYTES, partitions=range(PARTITIONS))
    lab.request_loop(broker.host, broker.port, [batches], requests=MOVING_BATCHES)


def moving_fetches(topic: str) -> list[Frame]:
    """As many requests as there are offsets to read a whole batch and more from."""
    offsets = range(MOVING_BATCHES - 1)
    return [frames.fetch(topic, [each] * PARTITIONS, partition_max_bytes=MOVING_MAX_BYTES) for each in offsets]


def _requests(lab: Lab, server: Broker | ServerProcess, requests: list[Frame], seconds: float) -> Run:
    return lambda: under_load(
        server,
        lambda: lab.request_loop(server.host, server.port, requests, connections=CONSUMERS, seconds=seconds),
    )


LOADS: dict[str, Callable[[Lab, Broker, float], Run]] = {
    "session": _sessions,
    "appended": partial(_sessions, append_every=APPEND_EVERY),
    "woken": partial(_sessions, wait_ms=MAX_WAIT_MS, gap_us=GAP_US),
    "moving": _moving_fetches,
}
