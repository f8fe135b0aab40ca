"""The sending of a replay, on Spark's executors: record by record, in order, at their times, each once.

The rule: a lane is what is in order, most often a partition. Each lane has a producer with a transactional id of its
own, and each transaction commits, with its records, how far the lane is, as an offset of a consumer group. A task that
starts again fences the one before it, and goes on from there.

An executor needs confluent-kafka and pyarrow, and nothing of this package: the module travels with the task.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

SENT = "topic string, lane int, second int, records long, skipped long, planned_ms long, late_ms long"
ROW = ("position", "to_partition", "timestamp_ms", "key", "value")
TIMEOUT_SECONDS = 60.0
# Of a producer's settings, those that its consumer shares.
CONNECTING = ("bootstrap.servers", "client.id", "security.", "sasl.", "ssl.", "enable.ssl.")
COMMIT_EVERY_SECONDS = 1.0
COMMIT_EVERY_RECORDS = 100_000
SHORTEST_SLEEP_SECONDS = 0.002
CHECK_EVERY_RECORDS = 1000


class Pace(NamedTuple):
    """When a record is due: at `starts_at_seconds` of the clock the one of `first_ms`, the others as far from it."""

    starts_at_seconds: float
    first_ms: int
    times: float


class Sender(NamedTuple):
    """How to send; it travels to the executors."""

    producer: dict[str, Any]
    group: str
    transactional: bool
    pace: Pace | None

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Send rows of topic, lane, position, to_partition, timestamp_ms, key, value, headers; yield what was sent."""
        import pyarrow as arrow

        lanes: dict[tuple[str, int], Lane] = {}
        try:
            for batch in batches:
                self._send(batch, lanes)
            for lane in lanes.values():
                lane.finish()
        finally:
            for lane in lanes.values():
                lane.close()
        rows = [row for lane in lanes.values() for row in lane.rows()]
        names = [column.split()[0] for column in SENT.split(", ")]
        types = [arrow.string(), arrow.int32(), arrow.int32(), *[arrow.int64()] * 4]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
        yield arrow.RecordBatch.from_arrays(arrays, names)

    def _send(self, batch: pyarrow.RecordBatch, lanes: dict[tuple[str, int], Lane]) -> None:
        topics, numbers = (batch.column(name).to_pylist() for name in ("topic", "lane"))
        columns = [batch.column(name).to_pylist() for name in ROW]
        rows = list(zip(*columns, _headers(batch.column("headers")), strict=True))
        begin = 0
        for (topic, number), run in groupby(zip(topics, numbers, strict=True)):
            end = begin + sum(1 for _ in run)
            lane = lanes.get((topic, number))
            if lane is None:
                if self.pace is None:  # then a lane comes after the other
                    for earlier in lanes.values():
                        earlier.finish()
                lane = lanes[topic, number] = Lane(self, topic, number)
            if self.pace is None:
                for at in range(begin, end, CHECK_EVERY_RECORDS):
                    lane.send(rows[at : min(at + CHECK_EVERY_RECORDS, end)])
            else:
                for row in rows[begin:end]:
                    if row[0] >= lane.next_position:
                        self._wait(self.pace, lane, row[2], lanes)
                    lane.send([row])
            begin = end

    def _wait(self, pace: Pace, lane: Lane, timestamp_ms: int, lanes: dict[tuple[str, int], Lane]) -> None:
        """Wait until a record is due; other lanes commit meanwhile."""
        lane.elapsed_ms = max(lane.elapsed_ms, timestamp_ms - pace.first_ms)
        due = pace.starts_at_seconds + lane.elapsed_ms / 1000 / pace.times
        while (left := due - time.time()) > SHORTEST_SLEEP_SECONDS:
            time.sleep(min(left, COMMIT_EVERY_SECONDS / 4))
            for each in lanes.values():
                each.commit_if_due()
        lane.late_ms = max(lane.late_ms, round(-left * 1000))


class Lane:
    """The records of a topic that are in order, and their producer."""

    def __init__(self, sender: Sender, topic: str, number: int) -> None:
        try:
            from confluent_kafka import Consumer, Producer, TopicPartition
        except ImportError as error:
            raise RuntimeError(
                "confluent-kafka is not installed where Spark runs its tasks: pip install confluent-kafka"
            ) from error

        self.topic, self.number, self.skipped = topic, number, 0
        self.elapsed_ms = self.late_ms = 0  # of the records' own time; behind the plan
        self._transactional = sender.transactional
        self._of_position = TopicPartition
        self._counts: dict[int, list[int]] = {}
        self._starts_at = sender.pace.starts_at_seconds if sender.pace else time.time()
        settings = dict(sender.producer)
        if sender.transactional:
            settings["transactional.id"] = f"{sender.group}-{topic}-{number}"
        clients = {key: value for key, value in settings.items() if key.startswith(CONNECTING)}
        self._producer: Any = Producer(settings)
        self._consumer: Any = Consumer({**clients, "group.id": sender.group, "enable.auto.commit": False})
        if sender.transactional:
            # Ends what an earlier producer of the lane has left open, and fences it.
            self._producer.init_transactions(TIMEOUT_SECONDS)
        (committed,) = self._consumer.committed([TopicPartition(topic, number)], TIMEOUT_SECONDS)
        self.next_position = max(0, committed.offset)
        self._uncommitted = 0
        self._began = 0.0
        self._failure: Any = None
        self._is_closed = False

    def send(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Send those rows, each as ROW and headers, that were not sent before."""
        new = [row for row in rows if row[0] >= self.next_position] if rows[0][0] < self.next_position else rows
        self.skipped += len(rows) - len(new)
        if not new:
            return
        if not self._uncommitted:
            self._began = time.time()
            if self._transactional:
                self._producer.begin_transaction()
        produce, topic, delivered = self._producer.produce, self.topic, self._delivered
        for _, partition, timestamp_ms, key, value, headers in new:
            # -1 lets the producer choose, by the key. For librdkafka 0 is the time of sending, and nothing is before.
            to, at = (-1 if partition is None else partition), max(0, timestamp_ms)
            while True:
                try:
                    produce(topic, value, key, to, on_delivery=delivered, timestamp=at, headers=headers)
                    break
                except BufferError:
                    self._producer.poll(0.05)
        self.next_position = new[-1][0] + 1
        self._uncommitted += len(new)
        self._producer.poll(0)
        self.commit_if_due()

    def commit_if_due(self) -> None:
        if self._uncommitted >= COMMIT_EVERY_RECORDS or (
            self._uncommitted and time.time() - self._began >= COMMIT_EVERY_SECONDS
        ):
            self.commit()

    def commit(self) -> None:
        """Have what was sent, and how far that is, count together, or one after the other without transactions."""
        if not self._uncommitted:
            return
        progress = [self._of_position(self.topic, self.number, self.next_position, str(self.elapsed_ms))]
        if self._transactional:
            self._producer.send_offsets_to_transaction(
                progress, self._consumer.consumer_group_metadata(), TIMEOUT_SECONDS
            )
            self._producer.commit_transaction(TIMEOUT_SECONDS)
        else:
            if left := self._producer.flush(TIMEOUT_SECONDS):
                raise RuntimeError(f"{left} records to {self.topic} are not acknowledged in {TIMEOUT_SECONDS:.0f} s")
            self._raise_failure()
            self._consumer.commit(offsets=progress, asynchronous=False)
        second = int(time.time() - self._starts_at)
        count = self._counts.setdefault(second, [0, 0, 0])
        count[0] += self._uncommitted
        count[1:] = self.elapsed_ms, max(count[2], self.late_ms)
        self._uncommitted = self.late_ms = 0

    def finish(self) -> None:
        if not self._is_closed:
            self.commit()
            self.close()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._consumer.close()
            self._producer.purge()
            self._producer = None

    def rows(self) -> Iterator[Sequence[Any]]:
        yield self.topic, self.number, 0, 0, self.skipped, 0, 0
        for second, (records, planned_ms, late_ms) in self._counts.items():
            yield self.topic, self.number, second, records, 0, planned_ms, late_ms

    def _delivered(self, error: Any, message: Any) -> None:
        self._failure = self._failure or error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise RuntimeError(f"a record to {self.topic} was refused: {self._failure.str()}")


def _headers(column: Any) -> Iterator[list[tuple[str, bytes | None]]]:
    """The headers of each record, as a producer takes them."""
    if column.null_count == len(column):
        yield from [[]] * len(column)
        return
    ends = column.offsets.to_pylist()
    pairs = list(zip(*(column.values.field(name).to_pylist() for name in ("key", "value")), strict=True))
    for begin, end in pairwise(ends):
        yield pairs[begin:end]
