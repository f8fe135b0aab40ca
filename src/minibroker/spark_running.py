"""A stream test while it runs: its broker, its query, the records that were added, and the rows that came."""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from minibroker.client.client import Client
from minibroker.client.transactions import Transactions
from minibroker.records import Given, Record, append_records, as_record
from minibroker.spark_answers import Came, Place, StreamTestFailure, differences, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from minibroker.process import Broker

Query = Callable[["DataFrame"], "DataFrame"]
Write = Callable[["DataFrame", int], object]
Read = Callable[[], "DataFrame | Iterable[Any]"]
Moment = Literal["before write", "after write"]
End = Literal["commit", "abort", "open"]

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
# Of a query that has failed, and of a call of Spark's.
REASON = re.compile(
    r"(?:with exception: |calling o\d+\.\w+\.\s+: [\w.$]+: )(.*?)(?:SQLSTATE: |\n=== |\n\tat |\Z)", re.S
)
REASON_LENGTH = 600
OF_SPARK = ("py4j.", "pyspark.")
LOGGER = "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution"
ORIGINS = 3


class Crash(Exception):
    """A query ends here, because its test wants it to."""


@dataclass(slots=True)
class Added:
    """A record that was added; alone it is committed."""

    record: Record
    transaction: str | None
    end: End


@dataclass
class Running:
    """The session, the broker and the query of a stream test: what its actions work on, and functions of `do`."""

    spark: SparkSession
    broker: Broker
    make: Query
    options: dict[str, object]
    topics: Sequence[str]
    output_mode: str
    available_now: bool
    write: Write | None
    read: Read | None
    timeout: float
    query: StreamingQuery | None = None  # before it starts
    checkpoint: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="minibroker-stream-")))
    added: list[Added] = field(default_factory=list)
    is_stopped: bool = False  # the query, by an action
    is_down: bool = False  # the broker, likewise
    armed: list[tuple[Moment, Callable[[], object]]] = field(default_factory=list)  # what strikes in the next batch
    _columns: list[str] = field(default_factory=list)
    _batches: dict[int, list[Came]] = field(default_factory=dict)
    _seen: Counter[Came] = field(default_factory=Counter)
    _raised: Exception | None = None  # in a batch
    _producers: dict[str, Transactions] = field(default_factory=dict)
    _transaction: str | None = None  # of the records that are added now
    _searches: int = 3  # for records of rows, each of many queries
    _ahead: timedelta = timedelta(0)  # of real time, when the broker was killed

    # -- the broker -------------------------------------------------------------------------------------------

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A client of the broker. Raises BrokerError, also for its refusals."""
        with self.broker._administered() as client:
            yield client

    def now(self) -> datetime:
        """The broker's time."""
        return self.broker.clock.now() if self.broker.has_control else datetime.now(UTC)

    def append(self, topic: str | None, given: Iterable[Given], partition: int | None, at: datetime) -> None:
        records = [
            Record(each.value, each.key, each.headers, each.timestamp or at, partition=each.partition)
            for each in map(as_record, given)
        ]
        producer = self._producers.get(self._transaction or "")
        with self.client() as client:
            places = append_records(
                client, topic or self.topics[0], records, partition=partition, transactions=producer
            )
        self.added += [Added(each, self._transaction, "open" if producer else "commit") for each in places]

    @contextmanager
    def transaction(self, name: str, end: End) -> Iterator[None]:
        """Records that are added meanwhile belong to this transaction, which goes on if it was left open."""
        with self.client() as client:
            producer = self._producers.get(name) or Transactions(client, name)
            self._producers[name], self._transaction = producer, name
            try:
                yield
            finally:
                self._transaction = None
            if end != "open":
                producer.end(client, is_commit=end == "commit")
                for each in self.added:
                    each.end = end if each.transaction == name and each.end == "open" else each.end

    def kill_broker(self) -> None:
        self._ahead = self.now() - datetime.now(UTC)
        self.broker.kill()
        self.is_down = True

    def start_broker(self) -> None:
        """Start the broker with its data, at its time. Raises BrokerError."""
        self.broker.start()
        self.is_down = False
        if self._ahead > timedelta(seconds=1):
            self.broker.clock.advance(self._ahead)

    # -- the query --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the query from its checkpoint; stop the one that runs. Raises StreamTestFailure if that has failed."""
        self.stop()
        self.is_stopped, self._raised = False, None
        self._log_failures("ERROR")
        frame = self.make(self._records())
        if not hasattr(frame, "writeStream"):
            raise TypeError(
                f"{getattr(self.make, '__name__', self.make)} returned {frame!r}; it has to return a DataFrame"
            )
        self._columns = frame.columns
        writer = frame.writeStream.foreachBatch(self._take).outputMode(self.output_mode)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        self.query = (writer.trigger(availableNow=True) if self.available_now else writer).start()
        if self.options.get("startingOffsets") == "latest" and not self.available_now:
            self.process_all()  # otherwise it would start behind what is added next

    def stop(self) -> None:
        """Stop the query. Raises StreamTestFailure if it has failed."""
        if self.query is not None and not self.is_stopped:
            # Before it is stopped, which ends a batch with an error of its own.
            if (reason := self._failure()) is not None and not isinstance(self._raised, Crash):
                raise StreamTestFailure(f"the query failed: {reason}")
            self.query.stop()

    def process_all(self) -> None:
        """Wait until the query has processed all there is; one that a test made crash goes on.

        Raises StreamTestFailure, or what `write` has raised.
        """
        if self.is_down:
            raise StreamTestFailure("the broker is down; start_broker() has to come before")
        while (reason := self.reason_to_end()) is not None:
            if self._raised is None or type(self._raised).__module__.startswith(OF_SPARK):
                raise StreamTestFailure(f"the query failed: {reason}")
            if not isinstance(self._raised, Crash):
                raise self._raised
            self.start()

    def reason_to_end(self) -> str | None:
        """Why the query failed before all there is was processed; None if it did not. Raises StreamTestFailure."""
        if self.is_stopped:
            raise StreamTestFailure("the query is stopped; restart_query() has to come before")
        if self.query is None or (self.available_now and not self.query.isActive and self._raised is None):
            self.start()
        query = self.query
        assert query is not None
        is_over = threading.Event()

        def give_up() -> None:
            is_over.set()
            query.stop()

        timer = threading.Timer(self.timeout, give_up)
        timer.start()
        try:
            query.awaitTermination() if self.available_now else query.processAllAvailable()
        except Exception:  # a failure of the query is told below, and so is the end of its time
            if query.exception() is None and not is_over.is_set():
                raise
        finally:
            timer.cancel()
            timer.join()
        if is_over.is_set():
            raise StreamTestFailure(f"the query had not processed all there is after {self.timeout:g} s")
        return self._failure()

    def close(self) -> None:
        """Stop the query, and remove its checkpoint; start a broker that is down, for which Spark would wait."""
        if self.is_down:
            self.start_broker()
        if self.query is not None:
            self.query.stop()
        shutil.rmtree(self.checkpoint, ignore_errors=True)

    def _failure(self) -> str | None:
        """Why the query has failed, in one line; None if it has not."""
        failed = None if self.query is None else self.query.exception()
        if failed is None:
            return None
        said = str(self._raised or failed)
        found = REASON.search(said)
        return " ".join((found[1] if found else said).split())[:REASON_LENGTH]

    def _log_failures(self, level: str) -> None:
        """Have Spark log a query that fails, or OFF: a hundred lines for each crash."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(LOGGER, log4j.Level.toLevel(level))

    def _records(self) -> DataFrame:
        options: dict[str, Any] = {**self.broker.client_settings("spark"), "startingOffsets": "earliest"}
        if not any(each in self.options for each in SUBSCRIPTIONS):
            options["subscribe"] = ",".join(self.topics)
        return self.spark.readStream.format("kafka").options(**options | self.options).load()

    def _take(self, frame: DataFrame, number: int) -> None:
        """Take a batch; Spark calls it in a thread of its own."""
        try:
            self._strike("before write")
            if self.write is None:
                self._batches[number] = rows_of(frame.columns, frame.collect(), number)
            else:
                self.write(frame, number)
            self._strike("after write")
        except Exception as error:
            self._raised = error
            if isinstance(error, Crash):
                self._log_failures("OFF")
            raise

    def _strike(self, moment: Moment) -> None:
        for each in [each for each in self.armed if each[0] == moment]:
            self.armed.remove(each)
            each[1]()

    # -- the rows ---------------------------------------------------------------------------------------------

    def rows(self, *, last_batch: bool = False) -> list[Came]:
        """The rows that the query gave, or of its last batch, as in output mode complete."""
        self.process_all()
        if self.read is not None:
            if last_batch:
                raise StreamTestFailure("the rows of a batch are with `write`; check() compares what `read` returns")
            given = self.read()
            collected = list(given.collect() if hasattr(given, "collect") else given)
            return rows_of(getattr(given, "columns", self._columns), collected)
        numbers = sorted(self._batches)[-1 if last_batch or self.output_mode == "complete" else 0 :]
        return [row for number in numbers for row in self._batches[number]]

    def new_rows(self) -> list[Came]:
        """The rows that came since the last check."""
        new, known = [], Counter(self._seen)
        for each in self.rows():
            known[each] -= 1
            new += [each] if known[each] < 0 else []
        return new

    def check(self, expected: Sequence[Came], came: Sequence[Came]) -> None:
        """Raises StreamTestFailure unless these rows came, in any order."""
        self._seen = Counter(self.rows())
        wide = len(self._columns) - (len(Place._fields) if any(each.place for each in came) else 0)
        for each in expected:
            if each.place is None and len(each.row) != wide:
                raise StreamTestFailure(f"{each.row} is no row of the columns {', '.join(self._columns)}")
        if found := differences(expected, came, self._origins_of):
            raise StreamTestFailure("\n  ".join(["the rows differ", *found]))

    def delivered(self) -> list[Record]:
        """The records that the source gives: without aborted ones and open transactions, if it reads committed."""
        is_all = self.options.get("kafka.isolation.level") != "read_committed"
        return [each.record for each in self.added if is_all or each.end == "commit"]

    def rows_of(self, records: Sequence[Record]) -> list[Came]:
        """The rows that the query makes of these records in one batch, without Kafka."""
        schema = self._records().schema
        values = []
        for each in records:
            value = {**{name: getattr(each, name, None) for name in schema.names}, "timestampType": 0}
            values.append(tuple({**value, "headers": list(each.headers) or None}[name] for name in schema.names))
        frame = self.make(self.spark.createDataFrame(values, schema))
        return rows_of(frame.columns, frame.collect())

    @cached_property
    def _made(self) -> list[Came]:
        """The rows of all records, of a test that fails; none if the query is not one of a batch."""
        from pyspark.errors import PySparkException

        try:
            return self.rows_of(self.delivered())
        except PySparkException:
            return []

    def _origins_of(self, row: tuple[Any, ...]) -> list[Place]:
        """The records that give the row, as far as the query tells; else the first that give it alone, by halving."""
        places = [each.place for each in self._made if each.row == row]
        if not places or places[0] is not None or self._searches == 0:
            return [place for place in places if place is not None]
        self._searches -= 1
        found: list[Place] = []
        left = [self.delivered()]
        while left and len(found) < ORIGINS:
            part = left.pop()
            middle = len(part) // 2
            if all(each.row != row for each in self.rows_of(part)):
                continue
            if middle:
                left += [part[middle:], part[:middle]]
            else:
                found += [Place(each.topic, each.partition or 0, each.offset or 0) for each in part]
        return found
