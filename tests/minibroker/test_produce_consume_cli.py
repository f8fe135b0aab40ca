"""`minibroker produce` and `minibroker consume`: what goes in comes out."""

from __future__ import annotations

import gc
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.cli.app import main
from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FIVE = ["a", "b", "c", "d", "e"]


class Typed(io.StringIO):
    """Standard input with these bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.buffer = io.BytesIO(data)  # type: ignore[misc]


def produce(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, data: bytes, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", Typed(data))
    return cli.run("produce", *arguments)


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# -- produce


def test_lines_of_standard_input_become_records(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cli.topic()

    done = produce(cli, monkeypatch, b"k:one\nl:two\r\n", topic, "-K", ":", "-H", "source=t\udcffwer")

    assert done == (0, f"produced: 2 records to {topic}\n", "")
    first, second = cli.records.read(topic, 2)
    assert (first.key, first.value, first.headers) == (b"k", b"one", [("source", b"t\xffwer")])
    assert (second.key, second.value) == (b"l", b"two\r")
    assert cli.out("consume", topic, "-f", "%e", "-n", 1) == "0"


def test_a_file_of_json_becomes_records(cli: CommandLine, tmp_path: Path) -> None:
    topic, file = cli.topic(partitions=2, retention_ms=-1), tmp_path / "records.jsonl"
    row = {"key": "UA", "value": {"delay": 2}, "headers": {"a": "b"}, "partition": 1, "timestamp": 1_357_020_000_000}
    file.write_text(json.dumps(row) + "\n")

    assert cli.document("produce", topic, "--file", file, "--json") == {"topic": topic, "records": 1}

    (record,) = cli.records.read(topic, 1, partition=1)
    assert (record.key, record.value, record.headers) == (b"UA", b'{"delay":2}', [("a", b"b")])
    assert record.timestamp == 1_357_020_000_000


@pytest.mark.parametrize("compression", ["gzip", "lz4"])
def test_records_may_be_compressed(cli: CommandLine, tmp_path: Path, compression: str) -> None:
    topic, file = cli.topic(), tmp_path / "lines"
    file.write_text("x\n" * 100)

    cli.out("produce", topic, "-f", file, "--compression", compression, "--acks", "1")

    assert cli.out("consume", topic) == "x\n" * 100


def test_a_topic_that_is_not_there_is_not_made_by_the_way(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    name = cli.new("missing")

    status, _, err = produce(cli, monkeypatch, b"x\n", name)

    assert status == 1
    assert f"topic {name} does not exist; `minibroker topics list`" in err
    assert name not in cli.out("topics", "list")


def test_the_lines_before_a_bad_one_are_records(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = cli.topic()

    status, _, err = produce(cli, monkeypatch, b'{"value": "x"}\nnonsense\n', topic, "-J")

    assert status == 1
    assert "line 2: not JSON" in err
    assert "; 1 record before it acknowledged" in err
    assert cli.out("consume", topic) == "x\n"


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of kafka-python, that tried to connect again
def test_a_broker_that_dies_meanwhile_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("minibroker.cli.produce.DELIVERY_TIMEOUT_MS", 1000)
    with Broker() as broker:
        broker.create_topic("orders")

        def lines_and_a_crash(*_: object) -> Iterator[bytes]:
            broker.kill()
            yield b"one\n"

        monkeypatch.setattr(sys, "stdin", Typed(b""))
        monkeypatch.setattr("minibroker.cli.produce.watched", lines_and_a_crash)
        status = main(["produce", "orders", "-b", broker.bootstrap_servers])
    gc.collect()

    gone, line = capsys.readouterr().err.splitlines()
    assert status == 1
    assert "does not answer; waiting until it is back" in gone
    assert "topic orders acknowledges no more records; check its brokers with" in line


@pytest.mark.parametrize(
    ("data", "arguments", "said"),
    [
        (b"x\n", ["-p", "7"], "has no partition 7: it has 1 partition,"),
        (b"x" * 2_000_000, [], "refuses a record"),
        (b"", ["-f", "no-such-file"], "cannot read no-such-file"),
    ],
)
def test_a_refused_record_is_an_error_with_the_next_step(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch, data: bytes, arguments: list[str], said: str
) -> None:
    status, out, err = produce(cli, monkeypatch, data, cli.topic(), *arguments)

    assert (status, out) == (1, "")
    assert said in err
    assert "; " in err


# -- consume


@pytest.fixture
def topic(cli: CommandLine) -> str:
    name = cli.topic(retention_ms=-1)
    cli.records.write(name, FIVE, timestamp_ms=1_357_020_000_000)
    return name


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ([], "abcde"),
        (["--from", "end"], ""),
        (["--from", "-2"], "de"),
        (["--from", "+1", "-n", "2"], "bc"),
        (["--from", "3"], "de"),
        (["--from", "@2013-01-01T06:00:02Z"], "cde"),
        (["-p", "0", "-n", "1"], "a"),
        (["--follow", "-n", "5"], "abcde"),
        (["--read-committed"], "abcde"),
    ],
)
def test_it_prints_from_a_position_to_the_end(cli: CommandLine, topic: str, arguments: list[str], values: str) -> None:
    assert cli.out("consume", topic, *arguments) == "".join(f"{value}\n" for value in values)


def test_several_partitions_are_read_and_a_missing_one_is_refused(cli: CommandLine) -> None:
    topic = cli.topic(partitions=4)
    for number in range(4):
        cli.records.write(topic, [f"in {number}"], partition=number)

    assert sorted(cli.lines("consume", topic, "-p", "0,2-3")) == [["in", "0"], ["in", "2"], ["in", "3"]]
    assert sorted(cli.lines("consume", topic, "-p", 1, "-p", 2, "--from", "@-1h")) == [["in", "1"], ["in", "2"]]
    assert cli.out("consume", topic, "--to", "@-1h") == ""
    assert "has no partition 5" in cli.complaint("consume", topic, "-p", "1,5")
    assert [
        row["partition"] for row in cli.document("topics", "delete-records", topic, "--before", 1, "-p", "1-2")
    ] == [
        1,
        2,
    ]


def test_aborted_records_are_left_out_when_asked_and_the_end_is_found_behind_the_marker(cli: CommandLine) -> None:
    topic = cli.topic()
    cli.records.transaction(topic, ["kept"], commit=True)
    cli.records.transaction(topic, ["dropped"], commit=False)

    assert cli.out("consume", topic) == "kept\ndropped\n"
    assert cli.out("consume", topic, "--read-committed") == "kept\n"
    assert cli.out("consume", topic, "--read-committed", "--group", cli.new("reports")) == "kept\n"


def test_a_distance_from_an_end_is_one_of_records(cli: CommandLine) -> None:
    topic = cli.topic()
    for value in "abc":
        cli.records.transaction(topic, [value], commit=True)
    cli.records.transaction(topic, ["dropped"], commit=False)

    assert cli.out("consume", topic, "--from", "-2", "-f", "%v ") == "c dropped "
    assert cli.out("consume", topic, "--from", "-2", "-f", "%v ", "--read-committed") == "b c "
    assert cli.out("consume", topic, "--from", "+1", "--to", "-1", "-f", "%v ") == "b c "
    assert cli.document("offsets", topic, "--at", "-1")[0]["offset"] == 6
    cli.out("topics", "delete-records", topic, "--before", "-3")
    assert cli.out("consume", topic, "-f", "%v ") == "b c dropped "


def test_a_format_chooses_the_fields_that_are_printed(cli: CommandLine, topic: str) -> None:
    assert cli.out("consume", topic, "-n", 2, "-f", r"%p %o %k=%v;\n") == "0 0 k0=a;\n0 1 k1=b;\n"


def test_json_is_an_object_a_line_and_goes_back_in(
    cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = cli.topic("copy", retention_ms=-1)
    printed = cli.out("consume", topic, "-o", "json")

    assert produce(cli, monkeypatch, printed.encode(), copy, "--json")[0] == 0

    again = rows(cli.out("consume", copy, "-o", "json"))
    assert [row | {"topic": topic} for row in again] == rows(printed)


def test_a_group_reads_on_from_what_was_printed_and_from_the_end_gets_nothing_old(cli: CommandLine, topic: str) -> None:
    group = cli.new("reports")

    first = cli.out("consume", topic, "--group", group, "-n", 2)
    rest = cli.out("consume", topic, "--group", group)

    assert (first, rest) == ("a\nb\n", "c\nd\ne\n")
    assert cli.document("groups", "describe", group)["partitions"][0]["committed"] == 5
    assert cli.out("consume", topic, "--group", cli.new("late"), "--from", "end") == ""


def test_following_prints_what_comes_until_interrupted(cli: CommandLine, topic: str) -> None:
    command = [sys.executable, "-m", "minibroker", "consume", topic, "--follow", "-b", cli.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        there = [process.stdout.readline() for _ in FIVE]
        cli.records.write(topic, ["new"])
        came = process.stdout.readline()
        process.send_signal(signal.SIGINT)

        assert (there, came) == ([f"{value}\n" for value in FIVE], "new\n")
        assert (process.wait(10), process.stderr.read()) == (130, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["missing"], "topic missing does not exist"), (["TOPIC", "-p", "7"], "has no partition 7: it has 1 partition,")],
)
def test_a_missing_topic_or_partition_is_an_error_with_the_next_step(
    cli: CommandLine, topic: str, arguments: list[str], said: str
) -> None:
    line = cli.complaint("consume", *(topic if word == "TOPIC" else word for word in arguments))

    assert said in line
    assert re.search("; .", line)


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "-g", "g", "--from", "3"],
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-f", "%q"],
        ["produce", "t", "-J", "-K", ":"],
        ["produce", "t", "-H", "x"],
    ],
)
def test_what_does_not_go_together_is_not_understood(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2

    assert "--help`" in capsys.readouterr().err
