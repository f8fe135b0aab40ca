"""The goals, one per row: a number, or a ratio to Apache Kafka or raw sockets; of the compiled form where it says so.

A ratio applies to every machine; an absolute number to two cores like those it was set on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.measurements import COMPILED, KAFKA, KAFKA_3, LATER_KAFKA, MINIBROKER, PLAIN, RAW, Measurement, Spread

MET = "met"
MISSED = "missed"
NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """`metric` of `case` must be at most or at least `target`, or that many times the value of `against`."""

    case: str
    metric: str
    text: str
    target: float
    at_least: bool
    against: str | None = None
    worst_of_all_rounds: bool = False
    of: str = MINIBROKER

    @property
    def target_text(self) -> str:
        sign = "≥" if self.at_least else "≤"
        return f"{sign} {self.target:.3g}" + (f" × {self.against}" if self.against else "")


class Verdict(NamedTuple):
    """The result of a goal."""

    goal: Goal
    measured: Spread | None
    unit: str
    mark: str


def at_most(case: str, metric: str, text: str, target: float, *, worst: bool = False) -> Goal:
    return Goal(case, metric, text, target, at_least=False, worst_of_all_rounds=worst)


def at_most_times(case: str, metric: str, text: str, target: float, against: str) -> Goal:
    return Goal(case, metric, text, target, at_least=False, against=against)


def at_least_times(case: str, metric: str, text: str, target: float, against: str) -> Goal:
    return Goal(case, metric, text, target, at_least=True, against=against)


def compiled(case: str, metric: str, text: str, *, at_least: float = 0, at_most: float = 0) -> Goal:
    """So many times Apache Kafka's value."""
    return Goal(case, metric, f"compiled: {text}", at_least or at_most, bool(at_least), KAFKA, of=COMPILED)


GOALS = (
    at_most("start", "first_answer_s", "first answer after the command, s", 0.15),
    at_most("start", "rss_at_rest_mb", "memory at rest, MB", 40),
    at_most("start", "rss_after_5_gb_mb", "memory after 5 GB was served, MB", 45),
    at_least_times("consume", "1_kib_mb_per_s", "consume 1 KiB values", 1.0, KAFKA),
    at_most_times("consume", "1_kib_cpu_s_per_gb", "server CPU of it", 0.5, KAFKA),
    at_least_times("consume", "100_b_mb_per_s", "consume 100 B values", 1.0, KAFKA),
    at_least_times("produce", "1_kib_mb_per_s", "produce 1 KiB values", 3.0, KAFKA),
    at_least_times("produce", "100_b_mb_per_s", "produce 100 B values", 1.0, KAFKA),
    at_least_times("tls", "consume_1_kib_mb_per_s", "consume 1 KiB values over TLS", 1.0, KAFKA),
    at_least_times("tls", "produce_1_kib_mb_per_s", "produce 1 KiB values over TLS", 1.0, KAFKA),
    at_most_times("latency", "p50_us", "produce to consume, p50", 1 / 3, KAFKA),
    at_most_times("latency", "busy_p50_us", "the same with --busy-poll-ms 5", 1 / 3, KAFKA),
    at_least_times("consumers", "session_per_s", "Fetch in a session of ten partitions, caught up", 0.7, KAFKA),
    at_least_times("requests", "produce_per_s", "Produce of one 100 B batch", 1.0, KAFKA),
    at_least_times("requests", "api_versions_per_s", "ApiVersions", 1.0, KAFKA),
    at_least_times("requests", "metadata_per_s", "Metadata of ten partitions", 1.0, KAFKA),
    at_least_times("requests", "api_versions_per_s", "ApiVersions", 0.55, RAW),
    at_least_times("watched", "watched_per_s", "small requests while a console looks", 0.97, PLAIN),
    at_most_times("watched", "watched_cpu_us", "server CPU of them", 1.03, PLAIN),
    at_least_times("metrics", "produce_per_s", "Produce of one 100 B batch, counted", 0.97, PLAIN),
    at_least_times("metrics", "session_per_s", "Fetch in a session, counted", 0.97, PLAIN),
    at_least_times("metrics", "commit_per_s", "OffsetCommit of one partition, counted", 0.97, PLAIN),
    at_least_times("metrics", "api_versions_per_s", "ApiVersions, counted", 0.97, PLAIN),
    at_most("fetches", "1_conn_over_100_ms", "hot 1 MiB answers over 100 ms, one reader", 0, worst=True),
    at_most("fetches", "10_conns_over_100_ms", "hot 1 MiB answers over 100 ms, ten readers", 0, worst=True),
    at_least_times("fetches", "1_conn_gb_per_s", "1 MiB answers, one reader", 0.85, RAW),
    at_least_times("spark", "records_per_s", "Spark batch read, 1 KiB values", 1.0, KAFKA),
    at_least_times("spark", "cold_records_per_s", "the same in a new session", 1.0, KAFKA),
    at_most("spark", "rss_after_mb", "memory after all batch reads, MB", 45),
    at_most_times("spark real-time", "p50_us", "topic to topic by Spark's Real-time Mode, p50", 1.0, KAFKA),
    at_least_times("spark jobs", "archived_per_s", "archive, beside a plain query to the same folders", 0.9, PLAIN),
    at_least_times("spark jobs", "replayed_per_s", "replay, beside Spark's own Kafka sink", 0.9, PLAIN),
    at_least_times("groups", "commits_per_s", "OffsetCommit of one partition", 1.0, KAFKA),
    at_most_times("groups", "rebalance_p50_ms", "rebalance of 50 members", 1.0, KAFKA),
    at_least_times("groups", "transactions_per_s", "transactions of one message", 1.0, KAFKA),
    at_least_times("cluster", "1_kib_mb_per_s", "acks=all to three brokers, 1 KiB values", 1.0, KAFKA_3),
    at_least_times("cluster", "100_b_mb_per_s", "acks=all to three brokers, 100 B values", 1.0, KAFKA_3),
    at_most_times("cluster", "record_p50_us", "one record with acks=all", 0.5, KAFKA_3),
    at_most_times("cluster", "transaction_p50_us", "a transaction of four records", 0.7, KAFKA_3),
    at_most_times("cluster", "fail_over_s", "a leader's death until its client goes on", 0.5, KAFKA_3),
    at_least_times("consumer groups", "heartbeats_per_s", "ConsumerGroupHeartbeat", 1.0, LATER_KAFKA),
    at_most_times("consumer groups", "joined_s", "a large group settles", 1.0, LATER_KAFKA),
    at_most_times("consumer groups", "group_cpu_s", "server CPU of a large group", 1.0, LATER_KAFKA),
    at_most_times("consumer groups", "expression_cpu_s", "server CPU of an expression", 0.5, LATER_KAFKA),
    at_most("parked", "parked_core", "9,000 fetches parked at 5 s, core", 0.1),
    at_most("parked", "parked_probe_p99_us", "a small request's p99 beside them, us", 500),
    at_most("parked", "parked_kib_each", "memory of one of them, KiB", 8),
    at_most("parked", "idle_kib_each", "memory of one of 10,000 idle connections, KiB", 6),
    at_most("parked", "idle_probe_p99_us", "a small request's p99 beside those, us", 300),
    compiled("requests", "api_versions_per_s", "ApiVersions", at_least=1.3),
    compiled("requests", "metadata_per_s", "Metadata of ten partitions", at_least=1.0),
    compiled("requests", "produce_per_s", "Produce of one 100 B batch", at_least=1.2),
    compiled("consumers", "session_per_s", "Fetch in a session of ten partitions, caught up", at_least=1.5),
    compiled("consumers", "appended_per_s", "the same, an append every ten", at_least=1.3),
    compiled("consumers", "moving_per_s", "full Fetch of ten partitions, a batch of each", at_least=3.0),
    compiled("groups", "commits_per_s", "OffsetCommit of one partition", at_least=0.8),
    compiled("groups", "heartbeats_per_s", "Heartbeat", at_least=1.2),
    compiled("groups", "rebalance_p50_ms", "rebalance of 50 members", at_most=1 / 1.5),
    compiled("groups", "transactions_per_s", "transactions of one message", at_least=1.5),
    compiled("latency", "p50_us", "produce to consume, p50", at_most=0.6),
    compiled("latency", "busy_p50_us", "the same with --busy-poll-ms 5", at_most=0.35),
    compiled("consume", "100_b_mb_per_s", "consume 100 B values", at_least=1.0),
    compiled("fetches", "10_conns_gb_per_s", "1 MiB answers, ten readers", at_least=1.0),
    Goal("start", "first_answer_s", "compiled: first answer after the command, s", 0.13, False, of=COMPILED),
    Goal("start", "rss_at_rest_mb", "compiled: memory at rest, MB", 40, False, of=COMPILED),
    Goal("start", "rss_after_5_gb_mb", "compiled: memory after 5 GB was served, MB", 45, False, of=COMPILED),
)


def judge(measurements: Sequence[Measurement], cases: Sequence[str]) -> list[Verdict]:
    """A verdict on every goal of these cases, and of the contenders that took part."""
    found = {(measurement.case, measurement.metric): measurement for measurement in measurements}
    present = {MINIBROKER, *(contender for measurement in measurements for contender in measurement.samples)}
    goals = [goal for goal in GOALS if goal.case in cases and goal.of in present]
    return [_verdict(goal, found.get((goal.case, goal.metric))) for goal in goals]


def _verdict(goal: Goal, measurement: Measurement | None) -> Verdict:
    if measurement is None:
        return Verdict(goal, None, "", NOT_MEASURED)
    if goal.against is None:
        measured, unit = measurement.of(goal.of), measurement.unit
    else:
        measured, unit = measurement.ratio(goal.of, goal.against), "×"
    if measured is None:
        return Verdict(goal, None, unit, NOT_MEASURED)
    value = measured.high if goal.worst_of_all_rounds else measured.median
    met = value >= goal.target if goal.at_least else value <= goal.target
    return Verdict(goal, measured, unit, MET if met else MISSED)
