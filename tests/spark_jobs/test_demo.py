"""The demo: what it sends and expects, how it reads and judges Spark's result, and one run of it all."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from minibroker.demo import chart, flights, report, result

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def week() -> pd.DataFrame:
    return flights.load(7)


@pytest.fixture(scope="module")
def delays(week: pd.DataFrame) -> pd.DataFrame:
    """A result as the job would write it."""
    table = flights.expected_delays(week)
    table["window_end"] = table["window_start"] + pd.Timedelta(days=1)
    return table.assign(mean_delay_minutes=0.0, p90_delay_minutes=5)


@pytest.mark.slow
def test_the_year_has_all_of_its_flights_and_their_delays() -> None:
    expected = flights.expected_delays(flights.load())

    assert expected["flights"].sum() == 336_776
    assert expected["cancelled"].sum() == 8_255
    assert expected["delay_minutes"].sum() == 4_152_200
    assert expected["window_start"].nunique() == 365


@pytest.mark.slow
def test_flights_are_sent_in_order_of_scheduled_departure(week: pd.DataFrame) -> None:
    messages = list(flights.messages(week))

    assert len(week) == len(messages)
    assert sorted(message.timestamp_ms for message in messages) == [message.timestamp_ms for message in messages]


@pytest.mark.slow
def test_a_flight_is_sent_as_json_keyed_by_its_aircraft(week: pd.DataFrame) -> None:
    first = next(flights.messages(week))

    assert first.key == b"N14228"
    assert first.timestamp_ms == 1357035300000
    assert json.loads(first.value) == {
        "scheduled_departure": "2013-01-01T10:15:00Z",
        "origin": "EWR",
        "destination": "IAH",
        "carrier": "UA",
        "flight": 1545,
        "tail_number": "N14228",
        "departure_delay_minutes": 2,
    }


@pytest.mark.slow
def test_a_cancelled_flight_is_sent_without_delay_and_keyed_by_its_number(week: pd.DataFrame) -> None:
    cancelled = week[week["tail_number"].isna()].head(1)

    (message,) = flights.messages(cancelled)

    assert f"{cancelled['carrier'].iloc[0]}{cancelled['flight'].iloc[0]}".encode() == message.key
    assert json.loads(message.value)["departure_delay_minutes"] is None


def test_the_right_result_passes(week: pd.DataFrame, delays: pd.DataFrame) -> None:
    result.check(delays, flights.expected_delays(week))


@pytest.mark.parametrize("column", result.COUNTS)
def test_a_wrong_number_is_noticed(week: pd.DataFrame, delays: pd.DataFrame, column: str) -> None:
    wrong = delays.copy()
    wrong.loc[3, column] += 1

    with pytest.raises(result.WrongResult, match="1 of"):
        result.check(wrong, flights.expected_delays(week))


def test_a_window_missing_or_written_twice_is_noticed(week: pd.DataFrame, delays: pd.DataFrame) -> None:
    with pytest.raises(result.WrongResult, match="1 of"):
        result.check(delays.drop(index=5), flights.expected_delays(week))
    with pytest.raises(result.WrongResult):
        result.check(pd.concat([delays, delays.head(1)]), flights.expected_delays(week))


def write_log(folder: Path, name: str, *files: str) -> None:
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    lines = [json.dumps({"path": f"file://{folder}/{file}", "action": "add"}) for file in files]
    (folder / "_spark_metadata" / name).write_text("\n".join(["v1", *lines]))


def test_only_files_that_spark_committed_are_read_and_a_compacted_log_stands_for_those_before_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "left-behind.parquet").touch()
    write_log(tmp_path, "0", "a.parquet")
    write_log(tmp_path, "1")
    write_log(tmp_path, "2", "b.parquet", "c%20d.parquet")
    assert [tmp_path / name for name in ("a.parquet", "b.parquet", "c d.parquet")] == result.committed_files(tmp_path)

    write_log(tmp_path, "9.compact", "a.parquet", "b.parquet")
    write_log(tmp_path, "10", "c.parquet")
    assert [tmp_path / name for name in ("a.parquet", "b.parquet", "c.parquet")] == result.committed_files(tmp_path)


@pytest.mark.slow
def test_the_picture_is_drawn_of_a_week_as_of_a_year(delays: pd.DataFrame, tmp_path: Path) -> None:
    chart.draw(delays, flights.airline_names(), tmp_path / "week.png")

    assert (tmp_path / "week.png").read_bytes().startswith(PNG_SIGNATURE)


@pytest.mark.slow
def test_the_table_fits_a_terminal_of_80_columns(delays: pd.DataFrame) -> None:
    console = Console(width=80, file=io.StringIO())

    console.print(report.delay_table(delays, flights.airline_names()))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    names = flights.airline_names()
    for carrier in delays["carrier"].unique():
        assert f"{chart.short_name(names[carrier])} " in text


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_runs_to_its_end_over_what_an_earlier_run_left(
    bootstrap: str, jars: list[Path], tmp_path: Path
) -> None:
    for left in ("broker/flights-0/junk", "delays/_spark_metadata/0", "checkpoint/offsets/0", "logs/spark.log"):
        (tmp_path / left).parent.mkdir(parents=True)
        (tmp_path / left).write_text("of an earlier run")
    command = [sys.executable, "-m", "minibroker.demo", "--days", "3", "--out", str(tmp_path)]
    if "MINIBROKER_TEST_BOOTSTRAP" in os.environ:
        command += ["--bootstrap-servers", bootstrap]

    run = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    assert run.returncode == 0, run.stderr
    assert "none lost, none counted twice" in " ".join(run.stdout.split())
    assert (tmp_path / "flight-delays.png").read_bytes().startswith(PNG_SIGNATURE)
