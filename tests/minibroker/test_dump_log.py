"""`minibroker dump-log`: the facts it prints are those Apache Kafka 2.0.1's own DumpLogSegments prints.

tests/golden/kafka-2.0.1-dump-log.json.gz holds what that tool said of the files in kafka-2.0.1-logs.tar.gz: of each
file, and of each record (--print-data-log --deep-iteration; sizes instead of keys and values).
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from minibroker.cli.app import main
from minibroker.cli.data_files import transaction_index_rows
from minibroker.protocol.compression import Codec
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files import disk
from minibroker.storage.files.checkpoints import write_checkpoint
from minibroker.storage.index.transaction_index import AbortedTxn, TransactionIndex
from tests.conftest import GOLDEN
from tests.storage.recorded_logs import unpack_recorded_logs

Row = dict[str, Any]
SEGMENT = "00000000000000000000.log"


@functools.cache
def kafka_said() -> Row:
    document: Row = json.loads(gzip.decompress((GOLDEN / "kafka-2.0.1-dump-log.json.gz").read_bytes()))
    return document


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_recorded_logs(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def dump(capsys: pytest.CaptureFixture[str]) -> Dump:
    return Dump(capsys)


class Dump:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *arguments: object, status: int = 0) -> str:
        assert main(["dump-log", *map(str, arguments)]) == status
        printed = self._capsys.readouterr()
        assert printed.err == ""
        return printed.out

    def rows(self, *arguments: object, status: int = 0) -> list[Row]:
        rows = [json.loads(line) for line in self.text(*arguments, "-o", "json", status=status).splitlines()]
        for row in rows:
            del row["file"]
        return rows


def as_kafka_names_it(row: Row) -> Row:
    """A row of ours with the names and values of DumpLogSegments, all text."""
    row = {re.sub("_(.)", lambda letter: letter[1].upper(), name): value for name, value in row.items()}
    time_name = {None: "NoTimestampType", "CREATE_TIME": "CreateTime", "LOG_APPEND_TIME": "LogAppendTime"}
    if "baseOffset" in row:
        row[time_name[row.pop("timestampType", None)]] = row.pop("maxTimestamp", -1)
        row["isvalid"], row["compresscodec"] = row.pop("isValid"), row.pop("codec")
        if row["magic"] < 2:
            row["offset"] = row.pop("baseOffset")
            assert row.pop("lastOffset") == row["offset"]
    if "currentTxnFirstOffset" in row:
        first_offset = row["currentTxnFirstOffset"]
        row["currentTxnFirstOffset"] = "None" if first_offset == -1 else f"Some({first_offset})"
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in row.items()}


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_files_of_every_kind_are_shown_as_kafkas_own_tool_shows_them(recorded: Path, dump: Dump, kind: str) -> None:
    # What Kafka's tool works out or leaves constant, and no file holds.
    derived = {"snapshot": ["firstSequence"], "txnindex": ["version"]}.get(kind, [])
    expected = {
        name: [without(row, *derived) for row in rows]
        for name, rows in kafka_said()["files"].items()
        if name.endswith(f".{kind}")
    }
    assert sum(map(len, expected.values())) > 0

    found = {name: [as_kafka_names_it(row) for row in dump.rows(recorded / name)] for name in expected}

    assert found == expected


def test_the_recorded_segments_have_every_format_codec_and_kind_of_batch(recorded: Path, dump: Dump) -> None:
    rows = dump.rows(*sorted(recorded.rglob("*.log")))

    assert {row["magic"] for row in rows} == {0, 1, 2}
    assert {(row["magic"], row["codec"]) for row in rows} >= {
        (magic, codec) for magic in (0, 1, 2) for codec in ("NONE", "GZIP", "SNAPPY", "LZ4")
    }
    assert {row.get("is_control") for row in rows} == {None, False, True}


def test_records_are_those_kafkas_own_tool_shows(recorded: Path, dump: Dump) -> None:
    for name, expected in kafka_said()["records"].items():
        rows = dump.rows(recorded / name, "--records")

        records = [row for row in rows if "base_offset" not in row]
        assert [shape_of(record) for record in records] == [shape_said_by_kafka(record) for record in expected], name


def shape_of(record: Row) -> tuple[object, ...]:
    if "end_txn_marker" in record:
        return record["offset"], record["timestamp"], record["end_txn_marker"], record["coordinator_epoch"]
    sizes = [-1 if data is None else len(bytes_of(data)) for data in (record["key"], record["value"])]
    return record["offset"], record.get("timestamp", -1), *sizes, record["sequence"]


def shape_said_by_kafka(record: Row) -> tuple[object, ...]:
    timestamp = next(int(record[name]) for name in ("CreateTime", "LogAppendTime", "NoTimestampType") if name in record)
    if "endTxnMarker" in record:
        return int(record["offset"]), timestamp, record["endTxnMarker"], int(record["coordinatorEpoch"])
    sizes = int(record["keysize"]), int(record["valuesize"])
    return int(record["offset"]), timestamp, *sizes, int(record.get("sequence", -1))


def bytes_of(shown: str) -> bytes:
    return base64.b64decode(shown.removeprefix("base64:")) if shown.startswith("base64:") else shown.encode()


def test_checkpoints_and_properties_are_shown_line_by_line(recorded: Path, dump: Dump) -> None:
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        lines = (recorded / name).read_text().splitlines()[2:]
        rows = dump.rows(recorded / name)
        assert Counter(lines) == Counter(f"{row['topic']} {row['partition']} {row['offset']}" for row in rows)
    assert dump.rows(recorded / "fi-g1-0" / "leader-epoch-checkpoint") == [{"leader_epoch": 0, "start_offset": 0}]
    assert dump.rows(recorded / "meta.properties") == [{"broker.id": "0"}, {"version": "0"}]


# -- as a person reads it


def segment(tmp_path: Path, *batches: bytearray, name: str = SEGMENT) -> Path:
    path = tmp_path / name
    path.write_bytes(b"".join(batches))
    return path


def test_text_names_the_file_and_leaves_out_empty_fields(tmp_path: Path, dump: Dump) -> None:
    record = Record(0, 1_600_000_000_123, b"key", "grüße".encode(), (("h", None),))
    path = segment(tmp_path, build_batch([record], codec=Codec.GZIP))

    title, batch, shown = dump.text(path, "-r").splitlines()

    assert title == str(path)
    assert batch.startswith("  base_offset: 0  last_offset: 0  count: 1  position: 0  size: ")
    assert "codec: GZIP" in batch
    assert "max_timestamp: 1600000000123 (2020-09-13T12:26:40.123Z)" in batch
    assert not [name for name in ("producer_id", "is_control", "is_valid", "sequence") if name in batch + shown]
    assert shown.startswith("    offset: 0  timestamp: 1600000000123 (")
    assert shown.endswith('key: "key"  value: "grüße"  headers: [["h", null]]')


def test_bytes_that_are_no_text_are_base64_and_nothing_commands_the_terminal(tmp_path: Path, dump: Dump) -> None:
    values = [b"\xff\x00", b"base64:", b"\x1b[2J\n", "\x9b2J".encode(), None, b""]
    path = segment(tmp_path, build_batch([Record(offset, 0, None, value) for offset, value in enumerate(values)]))

    shown = [row["value"] for row in dump.rows(path, "-r") if "value" in row]
    text = dump.text(path, "-r")

    assert shown == ["base64:/wA=", "base64:YmFzZTY0Og==", "\x1b[2J\n", "\x9b2J", None, ""]
    assert "\x1b" not in text and "\x9b" not in text
    assert len(text.splitlines()) == 2 + len(values)
    assert '"\\u001b[2J\\n"' in text and '"\\u009b2J"' in text


def test_files_on_their_way_out_are_read_too_and_the_last_timestamp_there_is_has_a_date(
    tmp_path: Path, dump: Dump
) -> None:
    path = segment(tmp_path, build_batch([Record(0, 2**63 - 1, None, b"v")]), name=f"{SEGMENT}.deleted")

    assert "9223372036854775807 (292278994-08-17T07:12:55.807Z)" in dump.text(path)


def test_files_without_content_say_so(tmp_path: Path, dump: Dump) -> None:
    path = segment(tmp_path)

    assert dump.text(path) == f"{path}\n  empty\n"
    assert dump.rows(path) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_room_at_the_end_of_an_index_in_use_is_no_entry(tmp_path: Path, dump: Dump, suffix: str) -> None:
    size = {".index": 8, ".timeindex": 12}[suffix]
    empty, used = tmp_path / f"{7:020d}{suffix}", tmp_path / f"{9:020d}{suffix}"
    empty.write_bytes(bytes(10 * size))
    used.write_bytes(bytes(size - 1) + b"\x05" + bytes(10 * size))

    assert dump.rows(empty) == []
    (row,) = dump.rows(used)
    assert row in ({"offset": 9, "position": 5}, {"timestamp": 0, "offset": 14})


# -- damage


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        pytest.param(build_batch([Record(0, 0, None, b"v")])[:30], "ends in a partial batch of 30 bytes", id="torn"),
        pytest.param(bytearray(100), "minimum record overhead", id="no batch"),
    ],
)
def test_a_tail_that_is_no_batch_ends_the_dump_with_its_place(
    tmp_path: Path, dump: Dump, tail: bytearray, said: str
) -> None:
    batch = build_batch([Record(0, 0, None, b"v")])

    whole, damaged = dump.rows(segment(tmp_path, batch, tail), status=1)

    assert (whole["base_offset"], whole["is_valid"], damaged["position"]) == (0, True, len(batch))
    assert said in damaged["error"]


def test_a_batch_with_a_wrong_crc_is_an_error_before_the_next_batch(tmp_path: Path, dump: Dump) -> None:
    damaged = build_batch([Record(0, 0, None, b"v")])
    damaged[-1] ^= 1
    path = segment(tmp_path, damaged, build_batch([Record(1, 0, None, b"w")], base_offset=1))

    rows = dump.rows(path, "-r", status=1)

    assert [row.get("is_valid") for row in rows] == [False, None, True, None]
    assert rows[1] == {"error": "the CRC of the batch is wrong", "position": 0}
    assert rows[3]["value"] == "w"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("00000000000000000000.index", bytes(7), "ends in a partial entry of 7 bytes"),
        ("00000000000000000000.timeindex", b"\x01" * 13, "ends in a partial entry of 1 byte"),
        ("00000000000000000000.txnindex", bytes(35), "ends in a partial entry of 1 byte"),
        ("00000000000000000000.txnindex", b"\x01" * 34, "unexpected entry version 257"),
        ("00000000000000000000.snapshot", bytes(3), "3 bytes are too few for a snapshot"),
        ("00000000000000000000.snapshot", b"\0\1" + bytes(8), "the CRC is not"),
        ("replication-offset-checkpoint", b"0\n2\na 0 1\n", "2 entries expected, 1 found"),
        ("replication-offset-checkpoint", b"0\n1\na 0 x\n", "invalid literal"),
        ("leader-epoch-checkpoint", b"5\n0\n", "unrecognized version '5'"),
    ],
)
def test_damage_in_other_files_is_an_error(tmp_path: Path, dump: Dump, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)

    *_, last = dump.rows(tmp_path / name, status=1)

    assert said in last["error"]
    assert str(tmp_path) not in last["error"]


def test_an_index_that_grows_meanwhile_has_no_partial_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "00000000000000000000.txnindex"
    index = TransactionIndex(path, 0)
    index.append(AbortedTxn(1, 0, 1, 0))
    read = disk.read_file

    def read_before_an_append(path: Path) -> bytes:
        content = read(path)
        index.append(AbortedTxn(1, 2, 3, 2))
        return content

    monkeypatch.setattr(disk, "read_file", read_before_an_append)
    assert [row["last_offset"] for row in transaction_index_rows(path)] == [1]


# -- arguments


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing.log", "No such file or directory; name files of a partition"),
        ("folder", "Is a directory; name files of a partition"),
        ("notes.txt", "unknown kind of file; this command reads .log"),
        ("segment.log", "unknown kind of file; this command reads .log"),
    ],
)
def test_a_file_that_cannot_be_dumped_is_one_line_and_the_rest_is_dumped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "segment.log").write_text("")
    write_checkpoint(tmp_path / "replication-offset-checkpoint", ["t 0 5"])

    status = main(["dump-log", str(tmp_path / name), str(tmp_path / "replication-offset-checkpoint")])

    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert status == 1
    assert f"{tmp_path / name}: {said}" in line
    assert "topic: t  partition: 0  offset: 5" in printed.out
