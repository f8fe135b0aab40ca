"""The flight job's transform on rows that are simply there: no Kafka, no stream."""

from __future__ import annotations

import datetime
import json

import pytest
from pyspark.sql import Row, SparkSession

from minibroker.spark_jobs.flight_delays import transform

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def flight(departure: str, delay: int | None = 0, *, origin: str = "JFK", carrier: str = "B6") -> str:
    value = {"scheduled_departure": departure, "origin": origin, "carrier": carrier, "flight": 1}
    return json.dumps(value | {"departure_delay_minutes": delay})


def delays(spark: SparkSession, *values: str, **options: str) -> list[Row]:
    records = spark.createDataFrame([(bytearray(value, "utf-8"),) for value in values], "value binary")
    return transform(records, **options).orderBy("window_start", "origin", "carrier").collect()


def test_a_flight_counts_in_the_day_of_new_york_it_was_scheduled_on(spark: SparkSession) -> None:
    rows = delays(spark, flight("2013-01-02T04:59:00Z"), flight("2013-01-02T05:00:00Z"))

    assert [datetime.datetime(2013, 1, 1, 5), datetime.datetime(2013, 1, 2, 5)] == [
        row.window_start.astimezone(datetime.UTC).replace(tzinfo=None) for row in rows
    ]
    assert [row.flights for row in rows] == [1, 1]


def test_origin_and_carrier_are_counted_apart(spark: SparkSession) -> None:
    day = "2013-01-02T12:00:00Z"

    rows = delays(spark, flight(day), flight(day, carrier="UA"), flight(day, origin="EWR"), flight(day))

    assert [(row.origin, row.carrier, row.flights) for row in rows] == [
        ("EWR", "B6", 1),
        ("JFK", "B6", 2),
        ("JFK", "UA", 1),
    ]


def test_a_cancelled_flight_is_counted_and_has_no_delay(spark: SparkSession) -> None:
    day = "2013-01-02T12:00:00Z"

    (row,) = delays(spark, flight(day, None), flight(day, 15), flight(day, 14), flight(day, -5))

    assert (row.flights, row.cancelled, row.late, row.delay_minutes) == (4, 1, 1, 24)
    assert row.mean_delay_minutes == 8.0
    assert row.p90_delay_minutes == 15


def test_a_day_on_which_nothing_left_has_no_mean(spark: SparkSession) -> None:
    (row,) = delays(spark, flight("2013-01-02T12:00:00Z", None))

    assert (row.flights, row.cancelled, row.late) == (1, 1, 0)
    assert (row.delay_minutes, row.mean_delay_minutes) == (None, None)


def test_rows_that_are_no_flights_are_left_out_as_is_the_end_of_the_stream(spark: SparkSession) -> None:
    end = json.dumps({"scheduled_departure": "2013-01-17T12:00:00Z"})

    rows = delays(spark, "not json", "{}", '{"scheduled_departure": "soon"}', end, flight("2013-01-02T12:00:00Z"))

    assert [row.flights for row in rows] == [1]


def test_the_window_is_the_callers_choice(spark: SparkSession) -> None:
    values = flight("2013-01-02T12:10:00Z"), flight("2013-01-02T12:50:00Z")

    rows = delays(spark, *values, window="30 minutes", window_start="0 minutes")

    assert [row.flights for row in rows] == [1, 1]
