"""Consume and produce with a tuned confluent-kafka: bytes of values a second, and the server's CPU for a gigabyte.

The same client process for each broker, one after the other; topics of one partition. The consumed
records were written just before and are in the page cache, as for a consumer that keeps up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.lab import Lab
from benchmarks.measurements import Measurement, Run, Samples
from benchmarks.processes import module_command, run_json
from benchmarks.tls_brokers import tls_brokers
from benchmarks.topics import Broker, create_topic, delete_topic, fill_topic, settle_disk

LOAD_SECONDS = 300.0
REMOVAL_SECONDS = 1.5  # until a deleted topic's files are gone
BYTES_PER_GB = 1e9
BYTES_PER_MB = 1e6
MEMORY_FOR_BYTES = 3  # records are in the page cache, in the producer's queue and in flight


class Size(NamedTuple):
    """A size of values, and how many are consumed and produced in a round."""

    metric: str
    text: str
    value_bytes: int
    consumed: int
    produced: int


SIZES = (
    Size("1_kib", "1 KiB", 1024, consumed=1_000_000, produced=500_000),
    Size("100_b", "100 B", 100, consumed=3_000_000, produced=1_500_000),
)


def measure_consume(lab: Lab) -> list[Measurement]:
    """Read a topic from its beginning, again and again."""
    measurements: list[Measurement] = []
    for size in SIZES:
        count = lab.plan.amount(size.consumed)
        topics: dict[str, str] = {}
        runs: dict[str, Run] = {}
        for broker in lab.brokers():
            topic = topics[broker.name] = create_topic(broker, "consume")
            fill_topic(broker, topic, count=count, size_bytes=size.value_bytes)
            runs[broker.name] = _consume_run(broker, topic, size, count)
        settle_disk()
        samples = lab.interleave(f"consume {size.text}", runs)
        measurements += _measurements("consume", size, samples)
        for broker in lab.brokers():
            delete_topic(broker, topics[broker.name])
    return measurements


def measure_produce(lab: Lab) -> list[Measurement]:
    """Write into a new topic each round."""
    measurements: list[Measurement] = []
    for size in SIZES:
        runs = {broker.name: _produce_run(lab, broker, size) for broker in lab.brokers()}
        measurements += _measurements("produce", size, lab.interleave(f"produce {size.text}", runs))
    return measurements


def measure_tls(lab: Lab) -> list[Measurement]:
    """Consume and produce 1 KiB through a listener with TLS 1.2, of brokers of their own.

    The server's CPU is the comparison: the client decrypts too, and on two cores it is often the slower one.
    """
    lab.close_brokers()
    size = SIZES[0]
    count = lab.plan.amount(size.consumed)
    with tls_brokers(lab) as brokers:
        consuming: dict[str, Run] = {}
        producing: dict[str, Run] = {}
        for each in brokers:
            topic = create_topic(each.broker, "tls")
            fill_topic(each.broker, topic, count=count, size_bytes=size.value_bytes)
            through: Any = {"bootstrap": each.bootstrap, "options": ("--ca", str(each.authority))}
            consuming[each.broker.name] = _consume_run(each.broker, topic, size, count, **through)
            producing[each.broker.name] = _produce_run(lab, each.broker, size, **through)
        settle_disk()
        consumed = lab.interleave(f"consume {size.text} over TLS", consuming)
        produced = lab.interleave(f"produce {size.text} over TLS", producing)
    in_tls = size._replace(text=f"{size.text} over TLS")
    return [
        replace(each, case="tls", metric=f"{what}_{each.metric}")
        for what, samples in (("consume", consumed), ("produce", produced))
        for each in _measurements(what, in_tls, samples)
    ]


def _consume_run(
    broker: Broker, topic: str, size: Size, count: int, *, bootstrap: str | None = None, options: Sequence[str] = ()
) -> Run:
    command = module_command("benchmarks.load.confluent", "consume", bootstrap or broker.bootstrap, topic)
    command += ["--count", str(count), "--size-bytes", str(size.value_bytes), *options]
    return lambda: _with_cpu(broker, lambda: run_json(command, seconds=LOAD_SECONDS))


def _produce_run(
    lab: Lab, broker: Broker, size: Size, *, bootstrap: str | None = None, options: Sequence[str] = ()
) -> Run:
    count = lab.plan.amount(size.produced)
    backed_bytes = MEMORY_FOR_BYTES * count * size.value_bytes
    amount = {"count": count, "size_bytes": size.value_bytes, "backed_bytes": backed_bytes}

    def run() -> dict[str, float]:
        topic = create_topic(broker, "produce")
        try:
            settle_disk()
            return _with_cpu(broker, lambda: fill_topic(broker, topic, **amount, bootstrap=bootstrap, options=options))
        finally:
            delete_topic(broker, topic)
            time.sleep(REMOVAL_SECONDS)

    return run


def _with_cpu(broker: Broker, load: Callable[[], dict[str, float]]) -> dict[str, float]:
    before = broker.cpu_seconds()
    measured = load()
    cpu_seconds = broker.cpu_seconds() - before
    return {
        "mb_per_s": measured["bytes"] / BYTES_PER_MB / measured["seconds"],
        "messages_per_s": measured["messages"] / measured["seconds"],
        "cpu_s_per_gb": cpu_seconds / (measured["bytes"] / BYTES_PER_GB),
        "client_core": measured["client_cpu_seconds"] / measured["seconds"],
    }


def _measurements(case: str, size: Size, samples: Samples) -> Sequence[Measurement]:
    quantities = (
        ("mb_per_s", "", "MB/s"),
        ("messages_per_s", "", "1/s"),
        ("cpu_s_per_gb", ", server CPU", "s/GB"),
        ("client_core", ", client CPU", "cores"),
    )
    return [
        Measurement(case, f"{size.metric}_{metric}", f"{case} {size.text}{text}", unit, samples[metric])
        for metric, text, unit in quantities
    ]
