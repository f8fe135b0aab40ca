"""The demo: what it sends and expects, how it reads and judges Spark's result, and one run of it all."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import runpy
import shlex
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from confluent_kafka.admin import AdminClient
from rich.console import Console

from benchmarks.processes import ROOT, ServerProcess, free_port
from minibroker.demo import chart, flights, replay, report, result
from minibroker.demo.run import FIRST_DAY
from minibroker.demo.view import DAY, View
from minibroker.spark_jobs import command_lines
from tests.console.comparing import check_picture

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLUMNS = 80
CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


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


@pytest.mark.slow
def test_the_readme_shows_the_pictures_of_todays_demo(tmp_path: Path) -> None:
    script = runpy.run_path(str(ROOT / "docs" / "pictures" / "flight_delays.py"))

    for kept, theme in script["KEPT"].items():
        check_picture(script["drawn"](theme), kept, tmp_path, tolerance=0.02)


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


def test_a_picture_of_a_week_does_not_claim_to_be_of_the_year(delays: pd.DataFrame) -> None:
    headline = chart._headline(delays, 10.2)

    assert headline == "New York's flights left 10 minutes late on average, 1 January to 7 January 2013"


@pytest.mark.slow
def test_the_table_fits_a_terminal_of_80_columns(delays: pd.DataFrame) -> None:
    console = Console(width=80, file=io.StringIO())

    console.print(report.delay_table(delays, flights.airline_names()))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    names = flights.airline_names()
    for carrier in delays["carrier"].unique():
        assert f"{chart.short_name(names[carrier])} " in text


def test_files_that_a_killed_job_left_are_removed_and_a_moved_folder_is_still_the_result(tmp_path: Path) -> None:
    (tmp_path / "then").mkdir()
    write_log(tmp_path / "then", "0", "a.parquet")
    for name in ("a.parquet", "left-behind.parquet"):
        (tmp_path / "then" / name).touch()
    now = (tmp_path / "then").rename(tmp_path / "now")

    result.remove_uncommitted(now)

    assert result.committed_files(now) == [*now.glob("*.parquet")] == [now / "a.parquet"]


# -- the replay


class Clock:
    """Time that passes when it is waited for; the event that stops a replay, too."""

    def __init__(self, stops_at: float = 1e9) -> None:
        self.seconds = 100.0
        self._stops_at = stops_at

    def now(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> bool:
        self.seconds += seconds
        return self.is_set()

    def is_set(self) -> bool:
        return self.seconds >= self._stops_at


def records_at(*event_seconds: int) -> list[flights.FlightRecord]:
    return [flights.FlightRecord(b"", b"", 1000 * each) for each in event_seconds]


def paced(clock: Clock, *event_seconds: int) -> Iterator[flights.FlightRecord]:
    return replay.paced(records_at(*event_seconds), event_seconds_per_second=10, stop=clock, now=clock.now)  # type: ignore[arg-type]


def test_a_paced_replay_keeps_the_time_between_records_shortened() -> None:
    clock = Clock()

    sent = [clock.seconds for _ in paced(clock, 50, 50, 80, 150)]

    assert sent == pytest.approx([100, 100, 103, 110])


def test_a_replay_that_is_late_catches_up() -> None:
    clock = Clock()
    sent = []
    for _ in paced(clock, 0, 10, 20, 100):
        sent.append(clock.seconds)
        clock.seconds += 1.5

    assert sent == pytest.approx([100, 101.5, 103, 110])


@pytest.mark.parametrize("stops_at", [100, 104])
def test_a_replay_stops_between_records_and_while_it_waits(stops_at: float) -> None:
    with pytest.raises(replay.ReplayStopped):
        list(paced(Clock(stops_at), 0, 10, 100))


def test_the_end_of_the_stream_closes_the_window_of_the_last_flight() -> None:
    last = datetime(2013, 12, 31, 23, 59, tzinfo=UTC)

    end = json.loads(replay.end_of_stream(int(last.timestamp() * 1000)))

    assert end == {"scheduled_departure": "2014-01-15T23:59:00Z"}
    assert replay.CLOSES_AFTER >= (command_lines.WINDOW_DAYS + command_lines.WATERMARK_DAYS) * DAY


# -- what is shown


def shown(view: View, console: Console) -> list[str]:
    """The lines of the year that a terminal shows."""
    with console.capture() as captured:
        console.print(view._year())
    return captured.get().splitlines()


def batch_of(*, latest: str | None, watermark: str | None, number: int = 7) -> dict[str, Any]:
    facts = {"batch": number, "records": 40_000, "milliseconds": 1234}
    return facts | {"latest": latest, "watermark": watermark, "has_ended": watermark is None}


def test_a_terminal_shows_the_days_written_and_those_that_fill() -> None:
    console = Console(width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system=None)
    view = View(console, FIRST_DAY, 365)
    view.replayed = lambda: 123_456

    view.batch(batch_of(latest="2013-02-10T12:00:00.000Z", watermark="2013-01-27T12:00:00.000Z"))

    lines = shown(view, console)
    assert max(len(line) for line in lines) <= COLUMNS
    text = "\n".join(lines)
    assert "123,456 flights sent" in text
    assert "micro-batch 7: 40,000 records in 1.2 s" in text
    assert f"Days    {'█' * 4}{'▒' * 3}{'·' * 54}" in text
    assert "Jan  Feb" in text and "Dec" in text
    assert "█ 26 written to Parquet   ▒ 15 filling   · 324 to come" in text


@pytest.mark.parametrize("days", [1, 3, 14, 59, 60, 100, 365])
def test_the_days_fit_however_many_they_are_and_all_are_written_in_the_end(days: int) -> None:
    console = Console(width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system=None)
    view = View(console, FIRST_DAY, days)
    begun = shown(view, console)

    view.batch(batch_of(latest=None, watermark=None))

    assert max(len(line) for line in begun + shown(view, console)) <= COLUMNS
    assert (view.days_written, view.days_filling) == (days, 0)
    assert not set("▒·") & set(shown(view, console)[3])
    assert "·" * min(days, 50) in begun[3]


def test_without_a_terminal_each_micro_batch_is_a_line_and_nothing_moves() -> None:
    console = Console(width=COLUMNS, file=io.StringIO())
    view = View(console, FIRST_DAY, 365)

    with view.live():
        view.stage("starts its JVM")
        view.batch(batch_of(latest="2013-02-10T12:00:00.000Z", watermark="2013-01-27T12:00:00.000Z"))
        view.say("word " * 30)

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[:2] == [
        "0:00  Spark: starts its JVM",
        "0:00  micro-batch 7: 40,000 records in 1.2 s; 26 days written, 15 filling",
    ]
    assert all(len(line) <= COLUMNS and line.startswith(("0:00  word", "      word")) for line in lines[2:])


@pytest.mark.parametrize(
    ("shell", "path"),
    [("/home/me/clone", "out/broker"), ("/home/me", "clone/out/broker"), ("/tmp", "/home/me/clone/out/broker")],
)
def test_the_last_line_is_for_the_shell_it_is_pasted_into(
    shell: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", shell)
    monkeypatch.setattr("sys.executable", "/home/me/clone/.venv/bin/python")
    monkeypatch.setattr(Path, "exists", lambda _: True)

    words = shlex.split(report.serve_command(Path("/home/me/clone/out/broker")))

    assert words[0] == path.replace("out/broker", ".venv/bin/minibroker")
    assert words[1:] == ["serve", "--listen", "127.0.0.1:9092", "--data-dir", path]


# -- all of it


def printed_on_terminal(command: list[str], folder: Path) -> str:
    """Run the command on a terminal of 80 columns; return what it prints."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, COLUMNS))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    variables |= {"PWD": str(folder), "TERM": "xterm-256color"}
    process = subprocess.Popen(command, cwd=folder, env=variables, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    printed = bytearray()

    def read() -> None:
        # A terminal without a process that has it open is an error to read from.
        with suppress(OSError):
            while data := os.read(ours, 65_536):
                printed.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    assert process.wait(250) == 0, printed.decode()
    reader.join()
    os.close(ours)
    return CONTROL_SEQUENCE.sub("", printed.decode()).replace("\r", "\n")


@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_runs_to_its_end_over_the_files_of_an_earlier_run(
    bootstrap: str, jars: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for left in ("broker/flights-0/junk", "delays/_spark_metadata/0", "checkpoint/offsets/0", "logs/spark.log"):
        (out / left).parent.mkdir(parents=True)
        (out / left).write_text("of an earlier run")
    command = [sys.executable, "-m", "minibroker.demo", "--days", "10"]
    is_own_broker = "MINIBROKER_TEST_BOOTSTRAP" not in os.environ
    if not is_own_broker:
        command += ["--bootstrap-servers", bootstrap]

    printed = printed_on_terminal(command, tmp_path)

    lines = printed.split("\n")
    for words in ("Spark killed", "same checkpoint", "Spark is back", "written all 10 days", "Equal to the flights"):
        assert words in printed
    assert [line for line in lines if len(line) > COLUMNS and "minibroker serve" not in line] == []
    assert (out / "flight-delays.png").read_bytes().startswith(PNG_SIGNATURE)
    assert pd.read_parquet(out / "delays")["flights"].sum() == len(flights.load(10))
    assert not (out / "work").exists()
    if is_own_broker:
        serves_the_flights(printed.strip().splitlines()[-1], tmp_path)


def serves_the_flights(line: str, folder: Path) -> None:
    """The demo's last line, in a shell."""
    port = free_port()
    line = line.replace("9092", str(port))
    server = ServerProcess("the last line", ["bash", "-c", f"exec {line.strip()}"], folder / "served", directory=folder)
    try:
        server.wait_for_log("minibroker is ready")
        topics = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}).list_topics(timeout=30).topics
        assert len(topics["flights"].partitions) == replay.PARTITIONS
        assert server.terminate() == 0
    finally:
        server.kill()
