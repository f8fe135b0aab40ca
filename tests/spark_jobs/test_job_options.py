"""The flight job's options, and the line it prints for a batch; no Spark is started."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.spark_jobs import flight_delays, kafka_options, micro_batches

NEEDED = ("--bootstrap-servers", "b:9092", "--subscribe", "flights", "--output", "out", "--checkpoint", "at")


def options_of(*arguments: str) -> dict[str, str]:
    return kafka_options.source_options(flight_delays.options().parse_args([*NEEDED, *arguments]))


def test_what_is_not_given_is_left_to_the_source() -> None:
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
