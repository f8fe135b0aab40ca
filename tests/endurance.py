"""`make endurance MINUTES=20`: mixed load on three brokers while their clock is turned by 90 days, and what it leaves.

A part of the days passes in each step: retention deletes, the cleaner compacts, sessions and transactions expire. Then
brokers change: a leader moves, or a broker is killed and comes back. In the rest of the step clients work undisturbed:
one sends records and waits for each, others send in batches and by key, commit transactions with the offsets of a
group, and join and leave another group. After each step the memory, descriptors, threads and files of the brokers are
noted.

A step lasts its part of the minutes, and longer where the changes take more than half of that: on a busy machine.
Prints a table of tenths. Ends with 1 if a broker has logged a defect, nothing was sent, or something grows: its median
in the last tenth is more than a quarter above those of the second to the fifth. How late records are depends on the
machine too: the last tenth is only printed beside the first, with the machine's load.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from minibroker import Cluster
from minibroker.errors import BrokerError

DAYS = 90
BROKERS = 3
STEPS = 60
TENTHS = 10
EVENTS, KEYED, MOVED = "events", "keyed", "moved"
KEYS = 200
GROWTH = 1.25
SETTLED = slice(1, 5)  # logs have been deleted, caches are full; worker threads come and go
DAY_MS = 86_400_000
SEND_SECONDS = 30.0
WAIT_SECONDS = 180.0  # for the cluster, on a busy machine
SETTINGS = {
    "log.segment.bytes": 256 * 1024,
    "log.retention.ms": 7 * DAY_MS,
    "log.roll.ms": DAY_MS,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.min.cleanable.ratio": 0.2,
    "offsets.topic.segment.bytes": 256 * 1024,
    "transaction.state.log.segment.bytes": 256 * 1024,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "connections.max.idle.ms": 600_000,
}
PASSING = (KafkaException, BrokerError)


class Levels(NamedTuple):
    """Memory and other resources of the brokers, all together."""

    memory_mb: float
    descriptors: int
    threads: int
    files: int
    disk_mb: float


class Step(NamedTuple):
    """Figures of a step."""

    latencies_ms: Sequence[float]
    done: dict[str, int]
    levels: Levels
    load: float


def levels_of(cluster: Cluster, directory: Path) -> Levels:
    found = []
    for broker in cluster.brokers:
        process = Path(f"/proc/{broker.pid}")
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        of_broker = int(status["VmRSS"].split()[0]) / 1024, len(os.listdir(process / "fd")), int(status["Threads"])
        found.append(of_broker)
    memory, descriptors, threads = (sum(each) for each in zip(*found, strict=True))
    sizes = []
    for path in directory.rglob("*"):
        with suppress(OSError):  # a file may go meanwhile
            if path.is_file():
                sizes.append(path.stat().st_blocks * 512)
    return Levels(round(memory, 1), int(descriptors), int(threads), len(sizes), round(sum(sizes) / 2**20, 1))


def note_delivery(delivered: list[object], error: object, _: object) -> None:
    delivered.append(error)


class Load:
    """Clients that work while nothing changes, each in a thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._address: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._works = threading.Event()
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.latencies_ms: list[float] = []
        self.done: dict[str, int] = defaultdict(int)

    def start(self) -> None:
        for name in ("_send_one", "_send_many", "_transact", "_be_member", "_come_and_go"):
            self._threads.append(threading.Thread(target=self._again, args=(name,), name=name, daemon=True))
            self._threads[-1].start()

    def close(self) -> None:
        self._is_over.set()
        self._works.set()
        for each in self._threads:
            each.join(60)

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Let nothing be measured meanwhile, and for a moment after it."""
        self._works.clear()
        try:
            yield
        finally:
            self._works.set()

    def taken(self) -> tuple[list[float], dict[str, int]]:
        """Take what was counted since the last call."""
        latencies, self.latencies_ms = self.latencies_ms, []
        done, self.done = self.done, defaultdict(int)
        return latencies, dict(done)

    def _again(self, name: str) -> None:
        """Work until the end; begin anew after an error, as of a transaction whose time was turned away."""
        work: Callable[[], None] = getattr(self, name)
        while not self._is_over.is_set():
            try:
                work()
            except PASSING:
                self.done[f"{name} begins anew"] += 1
                time.sleep(0.2)

    def _send_one(self) -> None:
        """Send a record, and wait for it."""
        producer = Producer({**self._address, "acks": "all", "linger.ms": 0})
        while not self._is_over.is_set():
            self._works.wait()
            delivered: list[object] = []
            began = time.perf_counter()
            producer.produce(EVENTS, b"v" * 200, on_delivery=partial(note_delivery, delivered))
            while not delivered and time.perf_counter() < began + SEND_SECONDS:
                producer.poll(0.05)
            if delivered == [None] and self._works.is_set():
                self.latencies_ms.append((time.perf_counter() - began) * 1000)
                self.done["sent alone"] += 1
            time.sleep(0.01)

    def _send_many(self) -> None:
        producer = Producer({**self._address, "enable.idempotence": True, "linger.ms": 20})
        number = 0
        while not self._is_over.is_set():
            self._works.wait()
            for _ in range(50):
                number += 1
                producer.produce(EVENTS, b"v" * 300)
                producer.produce(KEYED, b"%d" % number, b"key %d" % (number % KEYS))
            if producer.flush(SEND_SECONDS):
                raise KafkaException("records wait for too long")
            self.done["sent"] += 100
            time.sleep(0.25)

    def _transact(self) -> None:
        """Move records to another topic, with the offsets of a group, in a transaction each time."""
        of_group = {"enable.auto.commit": False, "auto.offset.reset": "latest", "isolation.level": "read_committed"}
        consumer = Consumer({**self._address, "group.id": "movers", **of_group})
        producer = Producer({**self._address, "transactional.id": "mover", "transaction.timeout.ms": 30_000})
        try:
            producer.init_transactions(30)
            consumer.subscribe([EVENTS])
            while not self._is_over.is_set():
                messages: list[Any] = [each for each in consumer.consume(50, 0.3) if each.error() is None]
                if not messages:
                    continue
                producer.begin_transaction()
                for each in messages:
                    producer.produce(MOVED, each.value())
                offsets = {(each.topic(), each.partition()): each.offset() + 1 for each in messages}
                committed = [TopicPartition(*place, offset) for place, offset in offsets.items()]
                producer.send_offsets_to_transaction(committed, consumer.consumer_group_metadata(), 30)
                producer.commit_transaction(30)
                self.done["transactions"] += 1
        finally:
            consumer.close()

    def _be_member(self) -> None:
        self._read("readers", lambda: False)

    def _come_and_go(self) -> None:
        """Join the group of another one, and leave it after a while: two rebalances."""
        leaves_at = time.monotonic() + 5
        self._read("readers", lambda: time.monotonic() > leaves_at)
        self.done["rebalances"] += 2

    def _read(self, group: str, is_enough: Callable[[], bool]) -> None:
        options = {"auto.offset.reset": "latest", "session.timeout.ms": 10_000, "auto.commit.interval.ms": 500}
        consumer = Consumer({**self._address, "group.id": group, **options})
        try:
            consumer.subscribe([EVENTS, MOVED])
            while not (self._is_over.is_set() or is_enough()):
                self.done["read"] += sum(each.error() is None for each in consumer.consume(200, 0.3))
        finally:
            consumer.close()


def change(cluster: Cluster, number: int) -> None:
    """Have something else lead: every third time a broker is killed, and comes back."""
    broker_id = cluster.broker_ids[number % BROKERS]
    if number % 3 == 2:
        cluster.kill(broker_id)
        cluster.until_leader(EVENTS, 0, not_=broker_id, timeout=WAIT_SECONDS)
        cluster.start(broker_id)
    else:
        partition = number % 4
        cluster.until_isr(EVENTS, partition, set(cluster.broker_ids), timeout=WAIT_SECONDS)
        if cluster.leader_of(EVENTS, partition) != broker_id:
            cluster.move_leader(EVENTS, partition, broker_id, timeout=WAIT_SECONDS)
    for partition in range(4):
        cluster.until_isr(EVENTS, partition, set(cluster.broker_ids), timeout=WAIT_SECONDS)


def endured(minutes: float, directory: Path, count: int) -> tuple[list[Step], list[str]]:
    """Run the steps; return them, and the lines of defects in the logs."""
    steps = []
    with Cluster(BROKERS, data_dir=directory, settings=SETTINGS, log_prefix=directory / "broker") as cluster:
        cluster.create_topic(EVENTS, partitions=4)
        cluster.create_topic(MOVED, partitions=2)
        cluster.create_topic(KEYED, configs={"cleanup.policy": "compact"})
        load = Load(cluster.bootstrap_servers)
        load.start()
        try:
            for number in range(count):
                deadline = time.monotonic() + minutes * 60 / count
                with load.disturbed():
                    cluster.clock.advance(DAYS * DAY_MS / 1000 / count)
                    change(cluster, number)
                time.sleep(1)
                load.taken()
                time.sleep(max(deadline - time.monotonic(), minutes * 60 / count / 2))
                latencies, done = load.taken()
                steps.append(Step(latencies, done, levels_of(cluster, directory), os.getloadavg()[0]))
                print(f"step {number + 1} of {count}: {steps[-1].levels}, {done}", file=sys.stderr, flush=True)
        finally:
            load.close()
    logs = [path.read_text(errors="replace") for path in directory.glob("broker-*.log")]
    return steps, [line for log in logs for line in log.splitlines() if "a defect of" in line or "Traceback" in line]


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


class Tenth(NamedTuple):
    """The medians of the steps of a tenth, and its sums."""

    levels: Levels
    p50_ms: float
    p99_ms: float
    done: dict[str, int]
    load: float


def tenths_of(steps: Sequence[Step]) -> list[Tenth]:
    size = len(steps) // TENTHS
    found = []
    for start in range(0, size * TENTHS, size):
        part = steps[start : start + size]
        latencies = [ms for step in part for ms in step.latencies_ms]
        levels = Levels(*(statistics.median(each) for each in zip(*(step.levels for step in part), strict=True)))
        done: dict[str, int] = defaultdict(int)
        for step in part:
            for name, count in step.done.items():
                done[name] += count
        load = statistics.mean(step.load for step in part)
        found.append(Tenth(levels, percentile(latencies, 0.5), percentile(latencies, 0.99), done, load))
    return found


COUNTED = ("sent alone", "sent", "read", "transactions", "rebalances")


def table(tenths: Sequence[Tenth]) -> str:
    heads = ("tenth", "memory MB", "descriptors", "threads", "files", "disk MB", "p50 ms", "p99 ms", *COUNTED, "load")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for number, each in enumerate(tenths, 1):
        figures = [f"{level:g}" for level in each.levels]
        figures += [f"{each.p50_ms:.1f}", f"{each.p99_ms:.1f}", *(f"{each.done.get(name, 0):,}" for name in COUNTED)]
        lines.append(f"| {number} | {' | '.join(figures)} | {each.load:.1f} |")
    return "\n".join(lines)


def wrong_in(tenths: Sequence[Tenth]) -> list[str]:
    """Return what has grown, or was never done."""
    settled = [max(each) for each in zip(*(tenth.levels for tenth in tenths[SETTLED]), strict=True)]
    last = tenths[-1].levels
    wrong = [
        f"{name} grows: {before:g} by the fifth tenth, {after:g} in the last"
        for name, before, after in zip(Levels._fields, settled, last, strict=True)
        if after > before * GROWTH
    ]
    wrong += [
        f"no {name} in tenth {number}"
        for number, each in enumerate(tenths, 1)
        for name in COUNTED[:4]
        if not each.done.get(name)
    ]
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="make endurance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="minibroker-endurance-") as directory:
        steps, defects = endured(options.minutes, Path(directory), options.steps)
    tenths = tenths_of(steps)
    print(table(tenths))
    first, last = tenths[0].p99_ms, tenths[-1].p99_ms
    print(f"p99 of the last tenth is {100 * (last / first - 1):+.0f} % from that of the first")
    wrong = [*wrong_in(tenths), *defects]
    print("\n".join(wrong) or "nothing grows")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
