"""Tests a query of Structured Streaming as a stream: what is added, what dies, and what has to come out.

    stream_test(
        lambda records: records.selectExpr("CAST(value AS STRING)", "topic", "partition", "offset"),
        add("a", "b"),
        kill_broker(),
        restart_query(),
        check("a", "b"),
    )

Each action is made by a call, and carried out by `stream_test` in its turn. pyspark, of the
extra `spark`, is imported when a test runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from inspect import signature
from random import Random
from re import IGNORECASE, search
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from minibroker.any_cluster import topic_admin
from minibroker.process import Broker
from minibroker.records import Given
from minibroker.spark_answers import Came, plain
from minibroker.spark_answers import StreamTestFailure as StreamTestFailure
from minibroker.spark_running import Crash, End, Moment, Query, Read, Write
from minibroker.spark_running import Running as Running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = {"events": 1}
NO_TOPIC_BY_TYPO = {"auto.create.topics.enable": False}
MOST_FAULTS = 3
PAUSES = {"stop_query": True, "expect_failure": True, "restart_query": False, "start_broker": False}
SHOWN = 100  # characters of an action's arguments

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Action:
    """A step of a stream test; its text is that of the call that made it."""

    function: Callable[..., object]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def __call__(self, running: Running) -> None:
        self.function(running, *self.arguments, **self.keywords)

    def __str__(self) -> str:
        named = [f"{name}={text(each)}" for name, each in self.keywords.items()]
        inside = ", ".join([*map(text, self.arguments), *named])
        return f"{self.function.__name__}({inside if len(inside) < SHOWN else inside[:SHOWN] + '...'})"

    __repr__ = __str__


def text(argument: object) -> str:
    return getattr(argument, "__name__", repr(argument))


def action(function: Callable[Concatenate[Running, P], object]) -> Callable[P, Action]:
    """A function with the same arguments, which makes the action. Raises TypeError for arguments it does not take."""
    shape = signature(function)

    @wraps(function)
    def made(*arguments: P.args, **keywords: P.kwargs) -> Action:
        shape.bind(None, *arguments, **keywords)
        return Action(function, arguments, keywords)

    return made


# -- records and topics ---------------------------------------------------------------------------------------


@action
def add(
    running: Running,
    *records: Given,
    topic: str | None = None,
    partition: int | None = None,
    at: datetime | None = None,
) -> None:
    """Append records, by default to the first topic, at the broker's time; they are given as to `Broker.produce`."""
    running.append(topic, records, partition, at or running.now())


@action
def transaction(running: Running, *adds: Action, end: End = "commit", name: str = "transaction") -> None:
    """Append in a transaction, and commit it, or `abort` it, or leave it `open`: the next one of its name goes on."""
    with running.transaction(name, end):
        for each in adds:
            each(running)


@action
def create_topic(
    running: Running, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    """Create a topic."""
    running.broker.create_topic(topic, partitions=partitions, configs=configs)


@action
def add_partitions(running: Running, topic: str, total: int) -> None:
    """Raise a topic to so many partitions."""
    with running.client() as client:
        refuse(topic_admin.grow(client, [topic], partitions=total, with_internal=False))


@action
def delete_topic(running: Running, topic: str) -> None:
    """Delete a topic."""
    with running.client() as client:
        refuse(topic_admin.delete(client, [topic], may_be_absent=False, with_internal=False))


@action
def delete_records(running: Running, topic: str, *, before: int, partition: int = 0) -> None:
    """Delete the records of a partition before an offset, as retention does."""
    with running.client() as client:
        topic_admin.delete_before(client, topic, {partition: before})


def refuse(outcomes: Sequence[Any]) -> None:
    """Raises StreamTestFailure for the first that failed."""
    for each in outcomes:
        if each.error is not None:
            raise StreamTestFailure(each.error)


# -- the broker and the query ---------------------------------------------------------------------------------


@action
def advance(running: Running, seconds: float | timedelta) -> None:
    """Let time pass for the broker, and for records that are added later; not for Spark's own clock."""
    running.broker.clock.advance(seconds)


@action
def kill_broker(running: Running, *, restart: bool = True, in_batch: bool = False) -> None:
    """Kill the broker (SIGKILL) under the query, and unless `restart` is false start it again, with its data.

    `in_batch`: when the next batch is planned, and its records are not read.
    """
    if in_batch:
        running.armed.append(("before write", lambda: kill_broker(restart=restart)(running)))
        return
    running.kill_broker()
    if restart:
        running.start_broker()


@action
def start_broker(running: Running) -> None:
    """Start a broker that `kill_broker(restart=False)` has killed."""
    running.start_broker()


@action
def stop_query(running: Running) -> None:
    """Stop the query, until `restart_query`."""
    running.stop()
    running.is_stopped = True


@action
def restart_query(running: Running, query: Query | None = None, *, options: Mapping[str, object] | None = None) -> None:
    """Stop the query if it runs, and start it from its checkpoint: another version of it, or with more options."""
    running.make = query or running.make
    running.options |= options or {}
    running.start()


@action
def crash_query(running: Running, moment: Moment = "after write") -> None:
    """Have the query die in its next batch, before or after the batch is written, and start from its checkpoint.

    Spark then gives the same batch again: what was written must not be there twice.
    """

    def crash() -> None:
        raise Crash(moment)

    running.armed.append((moment, crash))


@action
def process_all(running: Running) -> None:
    """Wait until the query has processed all there is."""
    running.process_all()


@action
def expect_failure(running: Running, pattern: str) -> None:
    """Wait until the query fails, with a message in which this pattern is found; it is stopped then."""
    reason = running.reason_to_end()
    running.is_stopped = True
    if reason is None:
        raise StreamTestFailure("the query processed all there is, and did not fail")
    if not search(pattern, reason, IGNORECASE):
        raise StreamTestFailure(f"the query failed for another reason: {reason}")


@action
def do(running: Running, function: Callable[[Running], object]) -> None:
    """Call a function with the running test, for what no action does; it fails by an exception, or returns False."""
    if function(running) is False:
        raise StreamTestFailure("it returned False")


# -- checks ---------------------------------------------------------------------------------------------------


@action
def check(running: Running, *rows: object) -> None:
    """Process all there is; the rows until now must be these, in any order.

    A row is a tuple, or the value of the only column. Where the query keeps topic, partition and offset beside other
    columns, rows are given without them.
    """
    running.check(expected(rows), running.rows())


@action
def check_new(running: Running, *rows: object) -> None:
    """Process all there is; the rows since the last check must be these."""
    running.check(expected(rows), running.new_rows())


@action
def check_last_batch(running: Running, *rows: object) -> None:
    """Process all there is; the rows of the last batch must be these."""
    running.check(expected(rows), running.rows(last_batch=True))


@action
def check_each_record(running: Running) -> None:
    """Process all there is; the query must have made of the added records what it makes of them in one batch.

    Of a source with `kafka.isolation.level` read_committed, of the records of transactions that were committed.
    """
    running.check(running.rows_of(running.delivered()), running.rows())


def expected(rows: Sequence[object]) -> list[Came]:
    return [Came(plain(row if isinstance(row, tuple) else (row,))) for row in rows]


# -- the test -------------------------------------------------------------------------------------------------


def stream_test(
    query: Query,
    *actions: Action,
    topics: Mapping[str, int] = TOPICS,
    options: Mapping[str, object] | None = None,
    output_mode: str = "append",
    available_now: bool = False,
    write: Write | None = None,
    read: Read | None = None,
    seed: int | None = None,
    spark: SparkSession | None = None,
    broker: Broker | None = None,
    timeout: float = 60.0,
) -> None:
    """Run a query over Spark's Kafka source, and the actions in turn. Raises StreamTestFailure with what is wrong.

    `query`: makes the query's DataFrame of the source's: a function of your program.
    `topics`: are created first, with that number of partitions. `add` appends to the first unless it names another.
    `options`: of the source, by Spark's names, {"maxOffsetsPerTrigger": 10}; the topics are subscribed, and read from
    their start, unless it says otherwise.
    `available_now`: run the query for each check, to the end of what is there, instead of all the time.
    `write`: takes each batch, as the function of `foreachBatch`; `read` then returns what is written, a DataFrame or
    rows. Without them the test keeps the rows.
    `seed`: draws up to three faults, and where they strike: the broker dies, the query is restarted or dies in a batch.
    `spark`: the session, by default the active one, or else one that is made with the Kafka connector, and kept.
    `broker`: one that runs, by default a new one; `advance` needs `Broker(control=True)`.
    `timeout`: seconds for the query to process what there is.

    It also raises what `query`, `write` and functions of actions raise, and BrokerError.
    """
    if (write is None) != (read is None):
        raise ValueError("write and read belong together: read returns what write has written")
    for each in actions:
        if not isinstance(each, Action):
            raise TypeError(f"{each!r} is not an action; add(...), check(...) and do(function) make one")
    faults = [] if seed is None else drawn(actions, seed)
    planned = list(actions)
    for index, fault in reversed(faults):
        planned.insert(index, fault)
    with ExitStack() as closing:
        session = spark or session_for_tests()
        at = broker or closing.enter_context(Broker(control=True, settings=NO_TOPIC_BY_TYPO))
        for topic, partitions in topics.items():
            at.create_topic(topic, partitions=partitions)
        running = Running(
            session, at, query, {**(options or {})}, list(topics), output_mode, available_now, write, read, timeout
        )
        closing.callback(running.close)
        if not available_now:
            running.start()
        for number, each in enumerate(planned, 1):
            try:
                each(running)
            except StreamTestFailure as failure:
                where = "".join(f"\n  {fault} before {actions[index]}" for index, fault in faults)
                put_in = "" if seed is None else f"\nseed {seed} put in:{where or ' nothing'}"
                raise StreamTestFailure(f"action {number}, {each}: {failure}{put_in}") from None
            except Exception as error:
                error.add_note(f"in action {number}, {each}")
                raise
        if running.armed and seed is None:
            raise StreamTestFailure(
                "no batch came after the last fault in a batch; add records and check them behind it"
            )


def drawn(actions: Sequence[Action], seed: int) -> list[tuple[int, Action]]:
    """Faults, each before an action at which broker and query run, in their order."""
    chance = Random(seed)
    is_paused, places = False, []
    for index, each in enumerate(actions):
        places += [index] if index and not is_paused else []
        is_paused = PAUSES.get(each.function.__name__, is_paused) or each.keywords.get("restart") is False
    faults = [kill_broker(), kill_broker(in_batch=True), restart_query()]
    faults += [crash_query("before write"), crash_query("after write")]
    count = min(len(places), chance.randint(1, MOST_FAULTS))
    return [(index, chance.choice(faults)) for index in sorted(chance.sample(places, count))]


def session_for_tests() -> SparkSession:
    """The active session, or a new one with the connector. Raises ModuleNotFoundError, and ConnectorUnavailable."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("stream_test needs pyspark: install minibroker with its extra `spark`") from error
    from minibroker.spark_jobs.session import spark_session

    return SparkSession.getActiveSession() or spark_session("stream_test", master="local[2]")
