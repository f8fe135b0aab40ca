"""Options of jobs, the line of a batch, when an alert comes, what a replay sorts; no Spark is started."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import nullcontext
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType

from minibroker.spark_jobs import flight_delays, kafka_options, micro_batches, sending
from minibroker.spark_jobs.alerts import Alerting, KeyState, Rule, judge
from minibroker.spark_jobs.errors import JobFailed

MINUTE_MS = 60_000
NEEDED = ("--bootstrap-servers", "b:9092", "--subscribe", "flights", "--output", "out", "--checkpoint", "at")


def options_of(*arguments: str) -> dict[str, str]:
    return kafka_options.source_options(flight_delays.options().parse_args([*NEEDED, *arguments]))


def test_options_not_given_are_left_to_the_source() -> None:
    assert options_of() == {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "flights",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
    }


def test_an_option_of_the_source_may_have_an_equals_sign_in_its_value() -> None:
    found = options_of("--kafka-option", "kafka.client.id=a=b", "--max-offsets-per-trigger", "5")

    assert (found["kafka.client.id"], found["maxOffsetsPerTrigger"]) == ("a=b", "5")


@pytest.mark.parametrize(
    ("troubles", "end"),
    [({}, "watermark w"), ({"unreadable": 1000, "too_late": 2}, "1,000 unreadable: not in the result, 2 too late")],
)
def test_records_that_are_not_in_the_result_are_counted(troubles: dict[str, Any], end: str) -> None:
    facts = {"batch": 3, "records": 7, "records_so_far": 1234, "watermark": "w", "behind": 0, "has_ended": False}
    facts |= {"unreadable": 0, "too_late": 0, "milliseconds": 1500}

    line = micro_batches.sentence(facts | troubles, left_out=["unreadable"])

    assert line.startswith("batch 3: 7 records in 1.5 s, 1,234 so far, watermark w")
    assert end in line
    assert bool(troubles) == ("not in the result" in line)


class EndedQuery:
    """A query that has ended after one micro-batch between these offsets."""

    def __init__(self, begin: Any, end: Any) -> None:
        source = {"startOffset": json.dumps(begin), "endOffset": json.dumps(end), "latestOffset": json.dumps(end)}
        progress = {"batchId": 4, "numInputRows": 0, "batchDuration": 1, "eventTime": {}, "observedMetrics": {}}
        self.recentProgress = [progress | {"stateOperators": [], "sources": [source]}]
        self.is_stopped = False

    def awaitTermination(self, seconds: float) -> bool:
        return True

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize(
    ("begin", "end", "anew"),
    [
        ({"t": {"0": 20}}, {"t": {"0": 25}}, ""),
        ({"t": {"0": 20, "1": 3}}, {"t": {"0": 20, "1": 2}}, "t-1: made anew: it was read up to offset 3, and now en"),
        (None, {"t": {"0": 5}}, ""),
        (7, 3, ""),  # of another source
    ],
)
def test_a_topic_that_is_made_anew_under_a_query_ends_it(begin: Any, end: Any, anew: str) -> None:
    query: Any = EndedQuery(begin, end)

    with pytest.raises(JobFailed, match=anew) if anew else nullcontext():
        assert len(list(micro_batches.micro_batches(query, stop=threading.Event()))) == 1
    assert query.is_stopped is bool(anew)


def rule(**state: Any) -> Rule:
    return Rule("celsius > 80", StructType(), **state)


@pytest.mark.parametrize(
    ("state", "minutes", "alerted"),
    [
        ({"times": 3}, [1, 2, 300, 301, 302, 303], {300: 3, 303: 3}),
        ({"times": 3, "within_ms": 10 * MINUTE_MS}, [1, 2, 12, 13, 14], {14: 3}),
        ({"once": True}, [1, 2, -3, 4, 5], {1: 1, 4: 1}),
        ({"times": 2, "once": True}, [1, 2, 3, -4, 5, -6, 7, 8], {2: 2, 8: 2}),
        ({"times": 2, "within_ms": 5 * MINUTE_MS, "once": True}, [1, 7, 12, 13], {12: 2}),
    ],
)
def test_an_alert_counts_the_matches_before(state: dict[str, Any], minutes: list[int], alerted: dict[int, int]) -> None:
    kept = KeyState()
    found = {}
    for minute in minutes:  # below 0: no match
        kept, matches = judge(rule(**state), kept, is_match=minute > 0, at_ms=abs(minute) * MINUTE_MS)
        if matches:
            found[minute] = matches

    assert found == alerted


@pytest.mark.parametrize(("minutes", "kept"), [([1, 2], KeyState()), ([1], KeyState((MINUTE_MS,)))])
def test_a_key_that_is_done_with_keeps_no_state(minutes: list[int], kept: KeyState) -> None:
    state = KeyState()
    for minute in minutes:
        state, _ = judge(rule(times=2), state, is_match=True, at_ms=minute * MINUTE_MS)

    assert state == kept


def surveyed(partition: int, lane: int, first: int, last: int, *, in_order: bool = True) -> sending.Surveyed:
    return sending.Surveyed(partition, "t", lane, lane, last - first + 1, first, last, in_order, 0)


@pytest.mark.parametrize(
    ("found", "turns"),
    [
        ([surveyed(0, 1, 5, 9), surveyed(1, 0, 0, 9), surveyed(2, 1, 0, 4)], "1 2,0"),
        ([surveyed(0, 0, 0, 9), surveyed(0, 1, 0, 9)], None),
        ([surveyed(0, 0, 0, 9), surveyed(1, 0, 9, 12)], None),
        ([surveyed(0, 0, 0, 9, in_order=False)], None),
    ],
    ids=["files of lanes", "two lanes in a file", "files that overlap", "a file out of order"],
)
def test_rows_in_order_in_their_files_take_no_sorting(found: list[sending.Surveyed], turns: str | None) -> None:
    assert sending.turns(found) == turns


@pytest.mark.slow
def test_state_needs_nothing_of_this_package_on_the_executors() -> None:
    code = "import sys, pickle; sys.modules['minibroker'] = None; print(pickle.load(sys.stdin.buffer)._rule.times)"

    pickled = cloudpickle.dumps(Alerting(Rule("celsius > 80", StructType(), times=3)))  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=False)

    assert (done.stdout, done.stderr) == (b"3\n", b"")
