"""Clients of confluent-kafka at work, each in a thread that is a process of a history."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import OFFSET_STORED, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from minibroker.history.recorder import HistoryWriter, PolledRecord, RecordedConsumer, RecordedProducer
from tests.integration.clients import go_program
from tests.nemesis.plan import COPIED, COPIED_IN_V2, SENT, TOPICS, TRANSACTED, Plan

QUICK: dict[str, str | int] = {
    "topic.metadata.refresh.fast.interval.ms": 50,
    "topic.metadata.refresh.interval.ms": 1000,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 200,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 200,
    "socket.timeout.ms": 5000,
    "debug": "cgrp,eos",
}
# librdkafka does not call them retriable.
PASSING = {
    KafkaError._TIMED_OUT,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
SENDS_PER_SECOND = 100
RETRY_SECONDS = 0.05
END_SECONDS = 10.0
FLUSH_SECONDS = 5.0
CLOSE_SECONDS = 8.0
STUCK_SECONDS = 8.0


class Reader(Consumer):
    """A consumer that notes where it found the end of a partition."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__({**settings, "enable.partition.eof": True})
        self.ends: dict[tuple[str, int], int] = {}

    def consume(self, *arguments: Any, **named: Any) -> list[Any]:
        messages: list[Any] = super().consume(*arguments, **named)
        for each in messages:
            error = each.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self.ends[each.topic(), each.partition()] = each.offset()
        return messages


class Transactor(RecordedProducer):
    """A recorded producer that commits the offsets of a group, too."""

    def send_offsets(self, offsets: list[TopicPartition], consumer: Consumer) -> None:
        self._producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 5)


class Workload:
    """The clients of a round: they work until `finish`, and then end what they have begun."""

    def __init__(self, plan: Plan, bootstrap_servers: str, history: HistoryWriter, note: Callable[[str], None]) -> None:
        self.partitions = plan.partitions  # of each topic; they may become more
        self._note = note
        self._address = {"bootstrap.servers": bootstrap_servers, **QUICK}
        self._history = history
        self._is_over = threading.Event()
        self._is_aborted = threading.Event()
        self._has_sent_all = threading.Event()
        self.failures: list[str] = []
        self.sent = 0
        self._ends: dict[tuple[str, int], int] = {}
        self._group_ends: dict[tuple[str, int], int] = {}
        self._senders = [
            *(self._thread(f"sender-{number}", self._send) for number in range(plan.senders)),
            *(self._thread(f"transactor-{number}", self._transact) for number in range(plan.transactors)),
            self._thread("copier", self._copy),
        ]
        self._has_v2 = plan.has_v2
        if plan.has_v2:
            self._senders.append(self._thread("copier-in-v2", self._copy_in_v2))
        self._members = [self._thread(f"member-{number}", self._be_member) for number in range(plan.members)]

    def start(self) -> None:
        for each in (*self._senders, *self._members):
            each.start()

    def finish(self, seconds: float) -> list[str]:
        """End the clients, without faults; return what did not end in time, or failed."""
        deadline = time.monotonic() + seconds
        self._is_over.set()
        late = [each for each in self._senders if not ended(each, deadline)]
        self._note_ends()
        self._has_sent_all.set()
        late += [each for each in self._members if not ended(each, deadline)]
        for each in late:
            self._note(
                f"{each.name} is here:\n{''.join(traceback.format_stack(sys._current_frames()[each.ident or 0]))}"
            )
        self._is_aborted.set()
        return [*self.failures, *(f"{each.name} did not finish in {seconds:g} s" for each in late)]

    def _note_ends(self) -> None:
        """Note how far the group has to read."""
        asked = Consumer({**self._address, "group.id": "none"})
        places = [(topic, number) for topic in (SENT, TRANSACTED) for number in range(self.partitions)]
        for place in places:
            try:
                self._ends[place] = end_of(asked, place)
            except KafkaException as error:
                self.failures.append(f"{place} has no end: {error}")
        asked.close()

    def read_all(self, seconds: float) -> list[str]:
        """Read all topics to their ends, as one more process; return what is wrong."""
        reader = Reader({**self._address, "group.id": "last", "isolation.level": "read_committed"})
        consumer = RecordedConsumer(self._history, "last", reader)
        places = [(topic, number) for topic in TOPICS for number in range(self.partitions)]
        read: list[PolledRecord] = []
        deadline = time.monotonic() + seconds
        ends = {place: end_of(reader, place) for place in places}  # first: a long poll would hold up the question
        consumer.assign([(*place, 0) for place in places])
        while missing := [place for place in places if reader.ends.get(place, -1) < ends[place]]:
            if time.monotonic() > deadline:
                return [f"{topic}-{number} was not read to its end in {seconds:g} s" for topic, number in missing]
            read += consumer.poll(0.1)
        consumer.close()
        return [*wrong_copies(read), *(self._wrong_in_v2(read, deadline) if self._has_v2 else ())]

    def _wrong_in_v2(self, read: Sequence[PolledRecord], deadline: float) -> list[str]:
        """Return what is wrong in the copies that another program made: the history has none of its calls."""
        reader = Reader({**self._address, "group.id": "last", "isolation.level": "read_committed"})
        ends = {(COPIED_IN_V2, number): end_of(reader, (COPIED_IN_V2, number)) for number in range(self.partitions)}
        reader.assign([TopicPartition(*place, 0) for place in ends])
        copies: defaultdict[int, list[str]] = defaultdict(list)
        while missing := [place for place, end in ends.items() if reader.ends.get(place, -1) < end]:
            if time.monotonic() > deadline:
                return [f"{topic}-{number} was not read to its end" for topic, number in missing]
            for each in reader.consume(100, 0.1):
                if each.error() is None:
                    copies[each.partition()].append(each.value().decode())
        reader.close()
        self._note(f"{sum(map(len, copies.values()))} copies in transactions v2")
        sent: defaultdict[int, list[str]] = defaultdict(list)
        for record in read:
            if record.topic == SENT:
                sent[record.partition].append(record.value or "")
        return [
            f"{COPIED_IN_V2}-{number} has other records than those that were sent"
            for number, values in copies.items()
            if values != sent[number][: len(values)]
        ]

    # -- threads ----------------------------------------------------------------------------------------------

    def _thread(self, name: str, work: Callable[[str], None]) -> threading.Thread:
        def run() -> None:
            try:
                work(name)
            except Exception as error:
                self.failures.append(f"{name} failed: {error!r}")

        return threading.Thread(target=run, name=name, daemon=True)

    def _send(self, name: str) -> None:
        settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "message.timeout.ms": 300_000}
        producer = RecordedProducer(self._history, name, Producer({**self._address, **settings}))
        number = 0
        while not self._is_over.is_set():
            try:
                producer.send(SENT, f"{name} {number}", number * 7 // 3 % self.partitions)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:  # added; it has not heard of it
                    raise
            producer.poll(1 / SENDS_PER_SECOND)
            number += 1
        self._flush(producer)
        self.sent += number

    def _flush(self, producer: RecordedProducer) -> None:
        while producer.flush(1) and not self._is_aborted.is_set():
            pass

    def _transactional(self, name: str) -> Transactor:
        settings = {
            "transactional.id": name,
            "transaction.timeout.ms": 30_000,
            "linger.ms": 2,
            # librdkafka looks for a group's coordinator again only when some connection comes or goes, and waits for
            # ever if the last one was that of a broker that is gone (its defects 5511 and 5456).
            "connections.max.idle.ms": 2000,
        }
        producer = Producer({**self._address, **settings})
        self._retried(lambda: producer.init_transactions(5))
        return Transactor(self._history, name, producer)

    def _retried(self, call: Callable[[], Any], seconds: float = math.inf) -> Any:
        """Call again while the error is one that passes. Raises KafkaException for any other, or after that time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return call()
            except KafkaException as error:
                passes = error.args[0].retriable() or error.args[0].code() in PASSING
                if not passes or self._is_aborted.is_set() or time.monotonic() > deadline:
                    raise
                self._note(f"{threading.current_thread().name} tries again: {error.args[0]}")
                time.sleep(RETRY_SECONDS)

    def _transact(self, name: str) -> None:
        producer = self._transactional(name)
        number = 0
        while not self._is_over.is_set():
            number += 1

            def send(producer: Transactor, number: int = number) -> None:
                for partition in range(self.partitions):
                    producer.send(TRANSACTED, f"{name} {number} {partition}", partition)
                    producer.poll(1 / SENDS_PER_SECOND)

            _, producer = self._transaction(name, producer, send, is_wanted=number % 4 != 3)

    def _transaction(
        self, name: str, producer: Transactor, work: Callable[[Transactor], None], *, is_wanted: bool = True
    ) -> tuple[bool, Transactor]:
        """Do work in a transaction, and end it. Return whether it was committed, and the producer for the next one.

        A producer that waits for long is let go: librdkafka may know of no broker any more after all had ended.
        """
        try:
            producer.begin()
            try:
                work(producer)
                if is_wanted:
                    self._retried(lambda: producer.commit(END_SECONDS), STUCK_SECONDS)
                    return True, producer
            except KafkaException as error:
                self._note(f"{name}: {error.args[0]}")
                if error.args[0].fatal():
                    raise
            # librdkafka gives the sequence numbers of records that it purges to the next ones, though it may have sent
            # them before: those are taken for duplicates. So it has sent all before it aborts.
            if not producer.flush(FLUSH_SECONDS):
                self._retried(lambda: producer.abort(END_SECONDS), STUCK_SECONDS)
                return False, producer
            self._note(f"{name} begins anew: records wait for {FLUSH_SECONDS:g} s")
        except KafkaException as error:
            if self._is_aborted.is_set():
                raise
            self._note(f"{name} begins anew: {error.args[0]}")
        self._history.note(name, "ok", "crash")
        return False, self._transactional(name)

    def _copy(self, name: str) -> None:
        """Copy the sent records, each once: their offsets are committed in the transactions of the copies."""
        producer = self._transactional(name)
        while not self._is_over.is_set():
            settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
            consumer = Consumer({**self._address, **settings, "group.id": name, "isolation.level": "read_committed"})
            producer = self._copied(name, consumer, producer)
            threading.Thread(target=consumer.close, daemon=True).start()

    def _copy_in_v2(self, name: str) -> None:
        """Copy the sent records by a program in Go, which speaks transactions v2; start it again when it ends."""
        settings = json.dumps({"records_per_transaction": 20})
        address = str(self._address["bootstrap.servers"]).partition(",")[0]  # it takes one, and learns the others
        command = [*go_program("transform"), address, name, SENT, COPIED_IN_V2, name, settings]
        while not self._is_over.is_set():
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
                while program.poll() is None and not self._is_over.wait(0.1):
                    pass
                program.kill()
        self._transactional(name)  # aborts what it has left open

    def _copied(self, name: str, consumer: Consumer, producer: Transactor) -> Transactor:
        """Copy from the committed offsets on until a transaction fails; return the producer for the next one.

        A consumer that gets nothing for long is let go, as a producer that waits.
        """
        assigned = 0
        heard_at = time.monotonic()
        while not self._is_over.is_set() and time.monotonic() < heard_at + STUCK_SECONDS:
            if added := range(assigned, self.partitions):
                consumer.incremental_assign([TopicPartition(SENT, number, OFFSET_STORED) for number in added])
                assigned += len(added)
            messages: list[Any] = [each for each in consumer.consume(20, 0.1) if each.error() is None]
            if not messages:
                continue
            heard_at = time.monotonic()
            offsets = {each.partition(): each.offset() + 1 for each in messages}
            committed = [TopicPartition(SENT, *each) for each in offsets.items()]

            def send(
                producer: Transactor, messages: list[Any] = messages, committed: list[TopicPartition] = committed
            ) -> None:
                for each in messages:
                    value = each.value().decode()
                    producer.send(COPIED, f"{value} {each.partition()} {each.offset()}", each.partition())
                self._retried(lambda: producer.send_offsets(committed, consumer), STUCK_SECONDS)

            is_done, producer = self._transaction(name, producer, send)
            if not is_done:
                break
        return producer

    def _be_member(self, name: str) -> None:
        """Read in a group, leave it now and then, and at the end read on until the group has reached all ends."""
        rounds = 0
        while not (self._is_over.is_set() and self._group_is_at_end()):
            rounds += 1
            settings = {
                "group.id": "group",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "auto.commit.interval.ms": 300,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
            }
            reader = Reader({**self._address, **settings})
            consumer = RecordedConsumer(self._history, name, reader)
            consumer.subscribe([SENT, TRANSACTED])
            leaves_at = time.monotonic() + 1.5 + rounds % 3
            while (time.monotonic() < leaves_at or self._is_over.is_set()) and not self._is_aborted.is_set():
                consumer.poll(0.1)
                if self._has_sent_all.is_set():
                    for place, end in reader.ends.items():
                        self._group_ends[place] = max(end, self._group_ends.get(place, -1))
                    if self._group_is_at_end():
                        break
            self._close(name, consumer)
            if self._is_aborted.is_set():
                break

    def _close(self, name: str, consumer: RecordedConsumer) -> None:
        """Leave the group. librdkafka may wait for ever for the answers of a broker that is gone: then it is let go."""
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            self._note(f"{name} does not close in {CLOSE_SECONDS:g} s")
            self._history.note(name, "ok", "crash")

    def _group_is_at_end(self) -> bool:
        return self._has_sent_all.is_set() and all(
            self._group_ends.get(place, -1) >= end for place, end in self._ends.items()
        )


def ended(thread: threading.Thread, deadline: float) -> bool:
    thread.join(max(0.0, deadline - time.monotonic()))
    return not thread.is_alive()


def end_of(consumer: Consumer, place: tuple[str, int]) -> int:
    """The high watermark, where a committed read ends if no transaction is open. Raises KafkaException."""
    deadline = time.monotonic() + END_SECONDS
    while True:
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(*place), timeout=END_SECONDS)[1])
        except KafkaException:  # the leader moves
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def wrong_copies(read: Sequence[PolledRecord]) -> list[str]:
    """Each sent record is to be copied once, in order, up to where the copier came; return what is otherwise."""
    sent: dict[int, list[str]] = defaultdict(list)
    copied: dict[int, list[str]] = defaultdict(list)
    for each in read:
        if each.topic == SENT:
            sent[each.partition].append(f"{each.value} {each.partition} {each.offset}")
        elif each.topic == COPIED:
            copied[each.partition].append(each.value or "")
    wrong = []
    for partition, values in copied.items():
        for place, (value, expected) in enumerate(zip(values, sent[partition], strict=False)):
            if value != expected:
                wrong.append(f"copy {place} in {COPIED}-{partition} is {value!r}, and should be {expected!r}")
                break
        if len(values) > len(sent[partition]):
            wrong.append(f"{COPIED}-{partition} has {len(values)} copies of {len(sent[partition])} records")
    return wrong
