"""Real clients at their quota: how many bytes a second they produce and fetch.

A client without a pause of its own uses a whole window's bytes at once, and then waits until they have left the window,
so time is measured in whole windows, from a moment at which the client waits.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from benchmarks.apache_kafka import KafkaUnavailable, class_path, jvm_options, kafka_jars
from minibroker import Broker
from tests.jvm import QUICK_JVM

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RATE = 200_000  # bytes/s
RECORD_BYTES = 5000
RECORDS_OF_A_FETCH = 10  # few fetches in a window: a slow client needs a second for them
FETCH_BYTES = 51_000
TOPIC = "limited"
START_SECONDS = 90.0
QUIET_SECONDS = 0.4
POLL_SECONDS = 0.02

PRODUCERS = {
    "confluent-kafka": """
from confluent_kafka import Producer
producer = Producer({{"bootstrap.servers": {bootstrap!r}, "client.id": "limited", "batch.size": 20_000, "linger.ms": 5,
                      "queue.buffering.max.messages": 100}})
while True:
    try:
        producer.produce({topic!r}, b"x" * {size}, partition=0)
        producer.poll(0)
    except BufferError:
        producer.poll(0.1)
""",
}
CONSUMERS = {
    "confluent-kafka": """
import sys
from confluent_kafka import Consumer
consumer = Consumer({{"bootstrap.servers": {bootstrap!r}, "client.id": "limited", "group.id": "g",
                      "auto.offset.reset": "earliest", "max.partition.fetch.bytes": {fetch_bytes}}})
consumer.subscribe([{topic!r}])
while True:
    record = consumer.poll(1)
    if record is not None and not record.error():
        sys.stdout.buffer.write(record.value()); sys.stdout.flush()
""",
}
CLIENTS = ("confluent-kafka", "java")


class Span(NamedTuple):
    """The window of a broker, how many windows are measured, and how far the rate may be off."""

    samples: int
    windows: int
    tolerance: float

    @property
    def seconds(self) -> int:
        return self.samples * self.windows


SHORT = Span(3, 2, 0.15)  # a busy machine costs a part of a window
LONG = pytest.param(Span(11, 3, 0.05), marks=pytest.mark.nightly, id="33 s")  # Kafka's default window
SPANS = pytest.mark.parametrize("span", [pytest.param(SHORT, id="6 s"), LONG])


@contextmanager
def limited_broker(span: Span, kind: str) -> Iterator[Broker]:
    """A broker that limits each client id to RATE as `producer` or as `consumer`."""
    settings = {
        "quota.window.num": span.samples,
        f"quota.{kind}.default": RATE,
        "group.initial.rebalance.delay.ms": 0,
    }
    with Broker(settings={name: str(value) for name, value in settings.items()}) as broker:
        broker.create_topic(TOPIC)
        yield broker


def command_of(client: str, scripts: dict[str, str], bootstrap: str, java: list[str]) -> list[str]:
    """Skips without Java, or the clients of Kafka 2.0.1."""
    if client != "java":
        script = scripts[client].format(bootstrap=bootstrap, topic=TOPIC, size=RECORD_BYTES, fetch_bytes=FETCH_BYTES)
        return [sys.executable, "-c", script]
    try:
        return ["java", *jvm_options(QUICK_JVM), "-Xmx256m", "-cp", class_path(kafka_jars()), *java]
    except KafkaUnavailable as reason:
        pytest.skip(f"no Java client: {reason}")


@contextmanager
def running(command: list[str], stdout: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command, stdout=stdout, stderr=subprocess.DEVNULL, env=dict(os.environ)) as process:
        try:
            yield process
        finally:
            process.kill()


def rate_of(used_bytes: Callable[[], int], span: Span) -> float:
    """Bytes per second over the span, which begins while a client that has used a window's bytes waits."""
    wait_until_quiet(used_bytes, at_least=RATE * (span.samples - 1))
    began, before = time.monotonic(), used_bytes()
    time.sleep(span.seconds)  # the time that is measured
    return (used_bytes() - before) / (time.monotonic() - began)


def wait_until_quiet(used_bytes: Callable[[], int], *, at_least: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    last, changed_at = -1, 0.0
    while time.monotonic() < deadline:
        used, now = used_bytes(), time.monotonic()
        if used != last:
            last, changed_at = used, now
        elif used >= at_least and now > changed_at + QUIET_SECONDS:
            return
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"the client is not throttled: it has used {used_bytes()} bytes")


@pytest.mark.sample(of=lambda client: client == "java")
@pytest.mark.parametrize("client", CLIENTS)
@SPANS
def test_a_producer_is_held_to_its_rate(client: str, span: Span, record_property: Callable[..., None]) -> None:
    with limited_broker(span, "producer") as broker:
        bootstrap = broker.bootstrap_servers
        java = ["org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records", "1000000000"]
        java += ["--record-size", str(RECORD_BYTES), "--throughput", "-1", "--producer-props"]
        java += [f"bootstrap.servers={bootstrap}", "client.id=limited", "batch.size=20000", "buffer.memory=200000"]
        java += ["linger.ms=5", "max.block.ms=600000", "request.timeout.ms=600000"]
        log = broker.data_dir / f"{TOPIC}-0" / f"{0:020}.log"

        with running(command_of(client, PRODUCERS, bootstrap, java), subprocess.DEVNULL):
            rate = rate_of(lambda: log.stat().st_size, span)

    record_property("bytes_per_second", rate)
    print(f"{client} produces {rate:.0f} bytes/s of {RATE}")
    assert rate == pytest.approx(RATE, rel=span.tolerance)


@pytest.mark.sample(of=lambda client: client == "confluent-kafka")
@pytest.mark.parametrize("client", CLIENTS)
@SPANS
def test_a_consumer_is_held_to_its_rate(client: str, span: Span, record_property: Callable[..., None]) -> None:
    with limited_broker(span, "consumer") as broker:
        records = [b"x" * RECORD_BYTES] * RECORDS_OF_A_FETCH
        for _ in range(RATE * (span.seconds + 3 * span.samples) // RECORD_BYTES // RECORDS_OF_A_FETCH):
            broker.produce(TOPIC, records)  # small batches: a fetch is far smaller than the window
        bootstrap = broker.bootstrap_servers
        java = ["kafka.tools.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", TOPIC, "--from-beginning"]
        for each in ("client.id=limited", f"max.partition.fetch.bytes={FETCH_BYTES}"):
            java += ["--consumer-property", each]

        with running(command_of(client, CONSUMERS, bootstrap, java), subprocess.PIPE) as process:
            counted = Counted(process)
            rate = rate_of(lambda: counted.bytes, span)

    record_property("bytes_per_second", rate)
    print(f"{client} fetches {rate:.0f} bytes/s of {RATE}")
    assert rate == pytest.approx(RATE, rel=span.tolerance)


class Counted:
    """The bytes that a process has printed."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.bytes = 0
        self._pipe = process.stdout.fileno()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while piece := os.read(self._pipe, 65_536):
            self.bytes += len(piece)
