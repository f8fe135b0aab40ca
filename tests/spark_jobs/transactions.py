"""Records sent in transactions, of which a third is aborted, and what became of each: the other side of an archive."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.nemesis.workload import PASSING, QUICK, Reader, end_of

COMMITTED, ABORTED, UNKNOWN = "committed", "aborted", "unknown"
# How often each record of a transaction may be found.
EXPECTED = {COMMITTED: ({1},), ABORTED: ({0},), UNKNOWN: ({0}, {1})}
ABORTED_EVERY = 3
UNREADABLE_EVERY = 50
END_SECONDS = 10.0
STUCK_SECONDS = 60.0
RETRY_SECONDS = 0.1
HOUR_MS = 3_600_000
FIRST_MS = 500_000 * HOUR_MS


class Place(NamedTuple):
    """A record where it was found."""

    partition: int
    offset: int
    value: bytes


class Sent(NamedTuple):
    """A transaction and its end; `unknown` where the answer to the commit was lost with the producer."""

    by: str
    number: int
    records: int
    end: str

    def values(self) -> Iterator[bytes]:
        """Yield the value of each record, JSON but for one of fifty."""
        for record in range(self.records):
            text = json.dumps({"by": self.by, "transaction": self.number, "record": record})
            yield (text[:-1] if record % UNREADABLE_EVERY == 7 else text).encode()


def miscounted(sent: Iterable[Sent], found: Iterable[bytes]) -> list[str]:
    """Return the transactions whose records were not found as often as they are to be, and what was never sent."""
    count = Counter(found)
    wrong = []
    for each in sent:
        times = Counter(count.pop(value, 0) for value in each.values())
        if set(times) not in EXPECTED[each.end]:
            wrong.append(f"{each}: found {', '.join(f'{records} records {n} times' for n, records in times.items())}")
    return [*wrong, *(f"{value!r} was found {times} times, and never sent" for value, times in count.items())]


class Transactors:
    """Producers in threads, which send so many records; each portion of them once it is released."""

    def __init__(self, bootstrap_servers: str, topic: str, *, seed: int, partitions: int, producers: int, records: int):
        self.sent: list[Sent] = []
        self.failures: list[str] = []
        self._address = {"bootstrap.servers": bootstrap_servers, **QUICK}
        self._topic = topic
        self._partitions = partitions
        self._most = max(2, records // (producers * 20))  # in a transaction
        self._left = records
        self._released = 0
        self._changed = threading.Condition()
        self._is_given_up = False
        self._threads = [
            threading.Thread(target=self._run, args=(f"transactor-{at}", random.Random(seed + at)), daemon=True)
            for at in range(producers)
        ]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def release(self, records: int) -> None:
        """Let so many more be sent."""
        with self._changed:
            self._released += records
            self._changed.notify_all()

    def finish(self, seconds: float) -> list[str]:
        """Release the rest and wait until all are sent; return what is wrong."""
        self.release(self._left)
        deadline = time.monotonic() + seconds
        for each in self._threads:
            each.join(max(0.0, deadline - time.monotonic()))
        late = [f"{each.name} did not finish in {seconds:g} s" for each in self._threads if each.is_alive()]
        self._is_given_up = True
        return [*self.failures, *late]

    def _take(self, wanted: int) -> int:
        """Wait until a transaction may be sent; return its count of records, 0 when all are sent."""
        with self._changed:
            self._changed.wait_for(lambda: self._released > 0 or self._left == 0)
            count = min(wanted, self._released, self._left)
            self._released -= count
            self._left -= count
            if self._left == 0:
                self._changed.notify_all()
            return count

    def _run(self, name: str, source: random.Random) -> None:
        try:
            producer = self._opened(name)
            number = 0
            while count := self._take(source.randint(1, self._most)):
                number += 1
                begun = Sent(name, number, count, ABORTED if number % ABORTED_EVERY == 2 else COMMITTED)
                end = self._transact(producer, begun, source)
                if end is None:
                    # As a process that begins again: what was begun is aborted, unless its commit had been decided.
                    producer, end = self._opened(name), UNKNOWN if begun.end == COMMITTED else ABORTED
                self.sent.append(begun._replace(end=end))
        except Exception as error:
            self.failures.append(f"{name} failed: {error!r}")

    def _opened(self, name: str) -> Producer:
        settings = {"transactional.id": f"{self._topic}-{name}", "linger.ms": 5, "batch.num.messages": 500}
        producer = Producer({**self._address, **settings, "connections.max.idle.ms": 2000, "log_level": 0})
        self._retried(lambda: producer.init_transactions(END_SECONDS))
        return producer

    def _transact(self, producer: Producer, begun: Sent, source: random.Random) -> str | None:
        """Send a transaction and end it; return its end, or None where the producer has to begin anew."""
        try:
            producer.begin_transaction()
            timestamp = FIRST_MS + begun.number % 3 * HOUR_MS
            for value in begun.values():
                producer.produce(self._topic, value, partition=source.randrange(self._partitions), timestamp=timestamp)
                producer.poll(0)
            # librdkafka gives sequence numbers of records that an abort purges to the next ones, though it may have
            # sent them before.
            if producer.flush(STUCK_SECONDS):
                return None
            if begun.end == COMMITTED:
                self._retried(lambda: producer.commit_transaction(END_SECONDS))
            else:
                self._retried(lambda: producer.abort_transaction(END_SECONDS))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                return None
            try:
                self._retried(lambda: producer.abort_transaction(END_SECONDS))
            except KafkaException:
                return None
            return ABORTED
        return begun.end

    def _retried(self, call: Callable[[], Any]) -> None:
        """Call again while the error is one that passes. Raises KafkaException."""
        deadline = time.monotonic() + STUCK_SECONDS
        while True:
            try:
                call()
            except KafkaException as error:
                passes = error.args[0].retriable() or error.args[0].code() in PASSING
                if not passes or self._is_given_up or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                return


def ends_of(bootstrap_servers: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of each partition, once all transactions are complete: a commit is answered before its markers.

    Raises KafkaException, and TimeoutError if a transaction stays open.
    """
    levels = ("read_committed", "read_uncommitted")
    settings = {"bootstrap.servers": bootstrap_servers, **QUICK, "group.id": "none"}
    consumers = [Consumer({**settings, "isolation.level": level}) for level in levels]
    deadline = time.monotonic() + STUCK_SECONDS
    while True:
        stable, found = (
            {partition: end_of(consumer, (topic, partition)) for partition in range(partitions)}
            for consumer in consumers
        )
        if stable == found:
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"a transaction stays open: {topic} ends at {stable}, or uncommitted at {found}")
        time.sleep(RETRY_SECONDS)
    for consumer in consumers:
        consumer.close()
    return found


def read_committed(bootstrap_servers: str, topic: str, ends: dict[int, int], seconds: float) -> list[Place]:
    """Read a topic to its ends with a client that is not Spark's. Raises TimeoutError."""
    settings = {"group.id": "none", "isolation.level": "read_committed", "enable.auto.commit": False}
    reader = Reader({"bootstrap.servers": bootstrap_servers, **QUICK, **settings})
    reader.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found = []
    deadline = time.monotonic() + seconds
    while any(reader.ends.get((topic, partition), -1) < end for partition, end in ends.items()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} was not read to {ends} in {seconds:g} s, but to {reader.ends}")
        messages = [each for each in reader.consume(10_000, 0.1) if each.error() is None]
        found += [Place(each.partition(), each.offset(), each.value()) for each in messages]
    reader.close()
    return found
