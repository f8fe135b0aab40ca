"""`minibroker.spark.stream_test` over real Spark: what its actions do, and how it names what is lost or doubled.

The tests have the kinds of those of Spark's own KafkaMicroBatchSourceSuite.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from minibroker import Broker, BrokerError, Record
from minibroker.spark import (
    Action,
    Running,
    StreamTestFailure,
    add,
    add_partitions,
    advance,
    check,
    check_each_record,
    check_last_batch,
    check_new,
    crash_query,
    create_topic,
    delete_records,
    delete_topic,
    do,
    expect_failure,
    kill_broker,
    process_all,
    restart_query,
    start_broker,
    stop_query,
    stream_test,
    transaction,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

StreamTest = Callable[..., None]
COMMITTED = {"kafka.isolation.level": "read_committed"}
GOES_ON = {"failOnDataLoss": False}
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)
SECONDS = int(NEW_YEAR.timestamp())


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker(control=True) as broker:
        yield broker


@pytest.fixture
def over(spark: SparkSession, shared: Broker) -> StreamTest:
    """A stream test on a broker that other tests have used, killed and advanced."""
    shared.reset()
    return partial(stream_test, spark=spark, broker=shared)


def values(records: DataFrame) -> DataFrame:
    return records.selectExpr("CAST(value AS STRING) AS value")


def with_places(records: DataFrame) -> DataFrame:
    return records.selectExpr("CAST(value AS STRING) AS value", "topic", "partition", "offset")


def counted(records: DataFrame) -> DataFrame:
    return values(records).groupBy("value").count()


def by_minute(records: DataFrame) -> DataFrame:
    windows = records.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "1 minute")).count()
    return windows.select(F.col("window.end").cast("long").alias("end"), "count")


def whole(records: DataFrame) -> DataFrame:
    return records.select("key", "value", "headers", "partition")


def louder(records: DataFrame) -> DataFrame:
    return values(records).selectExpr("concat(value, '!') AS value")


def has_read_three(running: Running) -> bool:
    assert running.query is not None
    return bool(sum(each["numInputRows"] for each in running.query.recentProgress) == 3)


PASSING: dict[str, tuple[Callable[[DataFrame], DataFrame], list[Action], dict[str, Any]]] = {
    "all rows, the new ones, those of the last batch": (
        with_places,
        [
            *(add("a", ("key", "b")), check("b", "a"), add("c"), check_new("c"), check_last_batch("c")),
            *(check_each_record(), check_new(), do(has_read_three)),
        ],
        {"topics": {"events": 3}},
    ),
    "maxOffsetsPerTrigger": (
        values,
        [stop_query(), add(*"abcde"), restart_query(), check_last_batch("e"), check(*"abcde")],
        {"options": {"maxOffsetsPerTrigger": 2}},
    ),
    "from the latest offsets": (
        values,
        [add("a"), check("a"), stop_query(), add("b"), restart_query(), check("a", "b")],
        {"options": {"startingOffsets": "latest"}},
    ),
    "from the latest offsets, with records before": (
        values,
        [add("a"), check(), add("b"), check("b")],
        {"options": {"startingOffsets": "latest"}, "available_now": True},
    ),
    "headers and null": (
        whole,
        [add(Record(b"v", b"k", (("name", b"1"), ("name", None)), partition=1), None, ""), check_each_record()],
        {"options": {"includeHeaders": True}, "topics": {"events": 2}},
    ),
    "a partition more": (
        with_places,
        [add("a"), check("a"), add_partitions("events", 2), add("b", partition=1), check("a", "b")],
        {},
    ),
    "topics of a pattern, one of which is deleted": (
        values,
        [
            *(add("a"), create_topic("events-2"), add("b", topic="events-2"), check("a", "b")),
            *(delete_topic("events-2"), add("c"), check("a", "b", "c")),
        ],
        {"options": {"subscribePattern": "events.*", **GOES_ON}},
    ),
    "committed transactions": (
        with_places,
        [
            *(transaction(add("a"), add("b")), transaction(add("c"), end="abort"), check("a", "b")),
            *(transaction(add("d"), end="open"), add("e"), check("a", "b")),
            *(transaction(add("f")), check("a", "b", "d", "e", "f"), check_each_record()),
        ],
        {"options": COMMITTED},
    ),
    "a transaction that the broker aborts in the end": (
        values,
        [transaction(add("a"), end="open"), add("b"), check(), advance(120), check("b")],
        {"options": COMMITTED},
    ),
    "records of transactions, whatever their end": (
        values,
        [transaction(add("a"), end="abort"), transaction(add("b"), end="open"), check("a", "b"), check_each_record()],
        {},
    ),
    "records that are gone": (
        values,
        [
            *(add("a", "b"), check("a", "b"), stop_query(), add("c", "d"), delete_records("events", before=3)),
            *(restart_query(), expect_failure("some data may have been lost")),
            *(restart_query(options=GOES_ON), check("a", "b", "d")),
        ],
        {},
    ),
    "records that retention deletes": (
        values,
        [
            *(create_topic("short", configs={"retention.ms": "60000"}), add("a", topic="short"), check("a")),
            *(stop_query(), add("b", topic="short"), advance(timedelta(hours=1)), add("c", topic="short")),
            *(restart_query(), check("a", "c")),
        ],
        {"options": {"subscribePattern": "short", **GOES_ON}, "topics": {}},
    ),
    "a topic that is made anew": (
        values,
        [
            *(add("a", "b"), check("a", "b"), stop_query(), delete_topic("events"), create_topic("events"), add("c")),
            *(restart_query(), expect_failure("some data may have been (lost|missed)")),
        ],
        {},
    ),
    "a broker and a query that die at each moment": (
        with_places,
        [
            *(add("a"), kill_broker(), add("b"), check("a", "b"), kill_broker(in_batch=True), add("c")),
            *(check_new("c"), restart_query(), add("d"), check_new("d"), crash_query("before write"), add("e")),
            *(check_new("e"), crash_query("after write"), add("f"), check_new("f"), check_each_record()),
        ],
        {},
    ),
    "a broker that stays away, and has its time again": (
        values,
        [
            *(add("a"), check("a"), advance(timedelta(days=400)), kill_broker(restart=False), start_broker()),
            *(do(lambda running: running.now() > datetime.now(UTC) + timedelta(days=399)), add("b"), check("a", "b")),
        ],
        {},
    ),
    "counts": (
        counted,
        [add("a", "b"), check(("a", 1), ("b", 1)), add("b"), restart_query(), check(("a", 1), ("b", 2))],
        {"output_mode": "complete"},
    ),
    "windows, by the time of records": (
        by_minute,
        [
            *(add("a", "b", at=NEW_YEAR), add("c", at=NEW_YEAR + timedelta(minutes=3)), check((SECONDS + 60, 2))),
            *(add("late", at=NEW_YEAR), add("d", at=NEW_YEAR + timedelta(minutes=6))),
            *(check((SECONDS + 60, 2), (SECONDS + 240, 1)),),
        ],
        {},
    ),
    "a query that runs for each check": (
        values,
        [add("a"), check("a"), add("b"), crash_query(), check_last_batch("b"), restart_query(), check_new()],
        {"available_now": True},
    ),
    "another version of the query": (
        values,
        [add("a"), check("a"), restart_query(louder), add("b"), check("a", "b!")],
        {},
    ),
}  # fmt: skip


# What the recipes show, and what no other one has; the others are by Spark's own options.
@pytest.mark.sample(
    of=lambda name: name.startswith(
        ("all rows", "committed", "records that are gone", "a broker and a query", "a query that", "windows")
    )
)
@pytest.mark.parametrize("name", PASSING)
def test_a_stream_that_does_as_expected_passes(over: StreamTest, name: str) -> None:
    query, actions, keywords = PASSING[name]

    over(query, *actions, **keywords)


def test_without_a_broker_a_test_has_one_of_its_own_without_topics_by_typo(spark: SparkSession) -> None:
    with pytest.raises(BrokerError, match="cannot produce to topic event: UNKNOWN_TOPIC_OR_PARTITION") as raised:
        stream_test(values, add("a"), check("a"), add("b", topic="event"), spark=spark)

    assert raised.value.__notes__ == ["in action 3, add('b', topic='event')"]


# -- what fails -----------------------------------------------------------------------------------------------

FAILING: dict[str, tuple[Callable[[DataFrame], DataFrame], list[Action], dict[str, Any], str]] = {
    "rows of aggregation": (
        counted,
        [add("a", "b", "b"), check(("a", 1), ("b", 1))],
        {"output_mode": "complete"},
        "action 2, check(('a', 1), ('b', 1)): the rows differ\n"
        "  lost: ('b', 1)\n  unexpected: ('b', 2), in batch 0",
    ),
    "rows whose records the query does not keep": (
        values,
        [add("a", "b"), add("b", "c"), check("a", "b", "b", "b")],
        {},
        "the rows differ\n  lost: 'b', of events-0 offset 1 or events-0 offset 2, 2 times instead of 3\n"
        "  unexpected: 'c', of events-0 offset 3, in batch ...",
    ),
    "a row of another width": (values, [add("a"), check(("a", 1))], {}, "('a', 1) is no row of the columns value"),
    "a query that is stopped": (values, [stop_query(), check()], {}, "the query is stopped; restart_query() has to"),
    "a broker that is down": (
        values,
        [process_all(), kill_broker(restart=False), check()],
        {},
        "action 3, check(): the broker is down; start_broker() has to come before",
    ),
    "records that are gone": (
        values,
        [add("a", "b"), stop_query(), delete_records("events", before=2), restart_query(), check()],
        {"options": {"startingOffsets": '{"events": {"0": 0}}'}},
        "action 5, check(): the query failed: Some data may have been lost because they are not available in Kafka any",
    ),
    "no failure": (values, [add("a"), expect_failure("x")], {}, "the query processed all there is, and did not fail"),
    "another failure": (
        values,
        [delete_topic("events"), expect_failure("some data")],
        {},
        "the query failed for another reason: ...UnknownTopicOrPartition",
    ),
    "a fault that never strikes": (values, [add("a"), check("a"), crash_query()], {}, "no batch came after the last"),
    "what a function says": (values, [do(lambda running: False)], {}, "action 1, do(<lambda>): it returned False"),
    "a topic that is not there": (values, [delete_topic("event")], {}, "action 1, delete_topic('event'): ..."),
}  # fmt: skip


def failure_of(run: Callable[[], None]) -> str:
    with pytest.raises(StreamTestFailure) as failed:
        run()
    assert failed.value.__cause__ is None and (failed.value.__suppress_context__ or failed.value.__context__ is None)
    return str(failed.value)


@pytest.mark.sample(of=lambda name: name.startswith(("rows", "records", "no failure", "a fault")))
@pytest.mark.parametrize("name", FAILING)
def test_what_differs_is_named_in_a_line(over: StreamTest, name: str) -> None:
    query, actions, keywords, expected = FAILING[name]

    message = failure_of(partial(over, query, *actions, **keywords))

    assert re.search(".*".join(map(re.escape, expected.split("..."))), message), message


class Sink:
    """Rows that a job has written, by a `foreachBatch` that may be wrong."""

    def __init__(self, wrong: str = "") -> None:
        self.rows: list[Any] = []
        self._wrong = wrong
        self._written: set[int] = set()

    def write(self, batch: DataFrame, number: int) -> None:
        if number in self._written and self._wrong != "doubles":
            return
        self.rows += (batch.where("value != 'c'") if self._wrong == "drops" else batch).collect()
        self._written.add(number)  # once it is: a restart may end the batch in the middle, and it comes again

    def read(self) -> list[Any]:
        return self.rows


@pytest.mark.sample(of=lambda query, wrong: (query is with_places) == (wrong == "drops"))
@pytest.mark.parametrize(
    ("query", "last"),
    [(values, check("a", "b", "c", "d")), (with_places, check_each_record())],
    ids=["without its place", "with its place"],
)
@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("drops", "lost: 'c', of events-1 offset 0"),
        ("doubles", "doubled: 'd', of events-1 offset 1, 2 times instead of 1"),
    ],
)
def test_a_row_that_is_lost_or_doubled_is_named_with_its_offset(
    over: StreamTest, query: Callable[[DataFrame], DataFrame], last: Action, wrong: str, line: str
) -> None:
    sink = Sink(wrong)
    actions = [add("a", "b", partition=0), add("c", partition=1), process_all(), crash_query(), add("d", partition=1)]

    run = partial(over, query, *actions, last, topics={"events": 2}, write=sink.write, read=sink.read)
    message = failure_of(run)

    assert message == f"action 6, {last}: the rows differ\n  {line}"


STEPS = [add("a"), process_all(), add("b", "c"), process_all(), add("d"), check_each_record()]


@pytest.mark.sample(of=lambda seed: seed == 5)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_sink_that_knows_its_batches_outlives_the_faults_of_a_seed(over: StreamTest, seed: int) -> None:
    sink = Sink()

    over(with_places, *STEPS, write=sink.write, read=sink.read, seed=seed)

    assert [row.value for row in sink.rows] == ["a", "b", "c", "d"]


def test_a_seed_tells_what_it_put_in_where_a_sink_doubles_rows(over: StreamTest) -> None:
    sink = Sink("doubles")
    for seed in range(20):
        try:
            over(with_places, *STEPS, write=sink.write, read=sink.read, seed=seed)
        except StreamTestFailure as failure:
            assert re.search("doubled: '[a-d]', of events-0 offset [0-3], 2 times instead of 1", str(failure))
            assert f"\nseed {seed} put in:\n  " in str(failure)
            assert "  crash_query('after write') before " in str(failure)
            return
        sink = Sink("doubles")
    pytest.fail("no seed found it")


def test_what_a_write_raises_goes_through_with_a_note(over: StreamTest) -> None:
    def write(batch: DataFrame, number: int) -> None:
        raise LookupError("of mine")

    with pytest.raises(LookupError, match="of mine") as raised:
        over(values, add("a"), check("a"), write=write, read=list)

    assert raised.value.__notes__ == ["in action 2, check('a')"]


@pytest.mark.parametrize(
    ("query", "actions", "message"),
    [(lambda records: None, [add("a")], "returned None; it has to return"), (values, ["a"], "'a' is not an action")],
)
def test_what_is_no_query_and_no_action_is_named(over: StreamTest, query: Any, actions: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        over(query, *actions)


def test_a_query_that_is_stopped_in_a_batch_can_look_for_the_reason(spark: SparkSession) -> None:
    """Spark searches the error of the batch, with the stacks of Python and the JVM in it, by such an expression."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None

    expression = jvm.java.util.regex.Pattern.compile("error(.|\\r\\n|\\r|\\n)*InterruptedException")

    assert expression.matcher(f"error{'x' * 20_000}InterruptedException").find()
