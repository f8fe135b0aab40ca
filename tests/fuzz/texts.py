"""Texts that commands read: plans of offsets, records, conditions, histories, checkpoints of Spark, data files."""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from minibroker.any_cluster.record_filter import fulfilling, parse_condition
from minibroker.any_cluster.record_lines import NewRecord, Template, pieces_of, records_of, records_with_lengths
from minibroker.any_cluster.record_text import ATTRIBUTES, ShownRecord, compile_format, json_renderer
from minibroker.cli.checkpoint_files import read_checkpoint
from minibroker.cli.data_files import rows_of
from minibroker.cli.options import parse_broker_ids, parse_delimiter, parse_partitions
from minibroker.cli.reset_plan import plan_in
from minibroker.errors import BadValue, CommandFailed
from minibroker.history.checking import check
from minibroker.history.lines import read_lines
from minibroker.history.model import HistoryError
from tests.broker.kept_files import FILES
from tests.fuzz.targets import ODD_VALUES, Target, bounded

REFUSALS = (BadValue, CommandFailed, HistoryError)
SEPARATED = Template(key_separator=b":", key_encoding="base64", value_encoding="hex")
RENDER = json_renderer()
# The parts of a checkpoint of Spark, which zeros part in an input.
CHECKPOINT = ("metadata", "offsets/0", "offsets/1", "commits/0", "sources/0/0", "state/0/_metadata/metadata")
DATA_FILES = [name for name, _, _ in FILES.values() if "." in name or "checkpoint" in name]


def plan(folder: Path, data: bytes) -> None:
    (path := folder / "plan.csv").write_bytes(data)
    plan_in(path, "g")


def plain_lines(folder: Path, data: bytes) -> None:
    list(records_of(pieces_of(io.BytesIO(data), b"\n"), SEPARATED, by_line=False))


def json_lines(folder: Path, data: bytes) -> None:
    """Records that are read are also written, and read again."""
    for each in records_of(io.BytesIO(data), Template(is_json=True)):
        (again,) = records_of([RENDER(shown(each))], Template(is_json=True))
        assert (again.key, again.value, again.headers) == (each.key, each.value, each.headers)


def lengths(folder: Path, data: bytes) -> None:
    list(records_with_lengths(io.BytesIO(data), Template()))


def condition(folder: Path, data: bytes) -> None:
    """A condition, and behind a zero the value of a record."""
    text, _, value = data.partition(b"\0")
    wanted = parse_condition(text.decode(errors="surrogateescape"))
    fulfilling([shown(NewRecord(value, value, [("h", value)]))], ATTRIBUTES, [wanted])


def options(folder: Path, data: bytes) -> None:
    """A format of records, and what options of commands have."""
    text = data.decode(errors="surrogateescape")
    for read in (parse_partitions, parse_broker_ids, parse_delimiter):
        with suppress(BadValue):
            read(text)
    compile_format(text)(shown(NewRecord(b"k", None, [("h", None)])))


def history(folder: Path, data: bytes) -> None:
    (path := folder / "history.jsonl").write_bytes(data)
    check(read_lines(path))


def checkpoint(folder: Path, data: bytes) -> None:
    for name, content in zip(CHECKPOINT, data.split(b"\0"), strict=False):
        (path := folder / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    read_checkpoint(folder)


def data_file(folder: Path, data: bytes) -> None:
    """A file of a data directory, whose kind the first byte chooses, as `dump-log` shows it."""
    (path := folder / DATA_FILES[data[0] % len(DATA_FILES)]).write_bytes(data[1:])
    for row in rows_of(path, with_records=True):
        json.dumps(row)


def shown(record: NewRecord) -> ShownRecord:
    partition, timestamp_ms = record.partition or 0, record.timestamp_ms or 0
    return ShownRecord("t", partition, 5, timestamp_ms, record.key, record.value, record.headers)


def lines(*rows: object) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


READERS: tuple[tuple[Callable[[Path, bytes], None], tuple[bytes, ...]], ...] = (
    (plan, (b"t,0,5\nt,1,7\n", b"g,t,0,5\nh,t,0,6\n", b'"t ""x""" 0 5', "t,0,5".encode("utf-16"))),
    (plain_lines, (b"aw==:76\naw==:\n:76",)),
    (
        json_lines,
        (
            lines({"key": "k", "value": {"a": [1, 2.5, None, True]}, "partition": 1, "timestamp": 5}),
            lines({"value": None, "headers": {"h": "base64:aw==", "i": None}}, {"value": "\ud800"}),
            lines({"value": "v", "headers": [["h", "1"], ["h", "2"]], "topic": "t", "offset": 3}),
        ),
    ),
    (lengths, (b"\0\0\0\x02ab\xff\xff\xff\xff\0\0\0\0",)),
    (
        condition,
        (
            b'value.delay>60\0{"delay":61.5}',
            b'value.a.0~x\0{"a":["xy"]}',
            b"key!=UA\0UA",
            b"header.h=1\x001",
            b'value.a=2\0{"a":5}',
            b'value.a<2\0{"a":5}',
        ),
    ),
    (options, (b"%t %p %o %k %v %h\\n", b"%k:hex %v:base64 \\x0a %%", b"0,2-4", b"2,3,1", b"\\t\\x1f")),
    (
        history,
        (
            lines(
                {"process": "p", "event": "invoke", "operation": "begin", "id": 1},
                {"process": "p", "event": "ok", "operation": "begin", "id": 1},
                {"process": "p", "event": "invoke", "operation": "send", "topic": "t", "partition": 0, "value": "a"},
                {"process": "p", "event": "ok", "operation": "send", "offset": 17},
                {"process": "p", "event": "ok", "operation": "commit"},
                {"process": "q", "event": "ok", "operation": "subscribe", "topics": ["t"]},
                {"process": "q", "event": "ok", "operation": "poll", "records": [["t", 0, 17, "a"]]},
            ),
            lines(
                {"process": 1, "event": "ok", "operation": "assign", "partitions": [["t", 0]]},
                {"process": 1, "event": "ok", "operation": "seek", "topic": "t", "partition": 0, "offset": 2},
                {"process": 1, "event": "info", "operation": "send", "topic": "t", "value": None},
                {"process": 1, "event": "ok", "operation": "delete_records", "topic": "t", "partition": 0, "offset": 3},
                {"process": 1, "event": "ok", "operation": "poll", "isolation": "read_uncommitted", "records": []},
                {"process": 1, "event": "info", "operation": "crash"},
                {"process": 1, "event": "ok", "operation": "abort"},
            ),
        ),
    ),
    (
        checkpoint,
        (
            b"\0".join(
                (
                    b'{"id":"q"}',
                    b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":5}\n{"t":{"0":5}}',
                    b'v1\n{"batchTimestampMs":6}\n-',
                    b'v1\n{"nextBatchWatermarkMs":0}',
                    b'v1\n{"t":{"0":0}}',
                    b'v1\n{"operatorInfo":{"operatorName":"dedupe"},"stateStoreInfo":[{"storeName":"default",'
                    b'"numPartitions":2}]}',
                )
            ),
        ),
    ),
    (data_file, ()),
)


def seeds_of_data_files() -> list[bytes]:
    found = []
    for name, write, _ in FILES.values():
        if name in DATA_FILES:
            with tempfile.TemporaryDirectory(prefix="minibroker-fuzz-") as directory:
                write(path := Path(directory) / name)
                found.append(bytes((DATA_FILES.index(name),)) + path.read_bytes())
    return found


class Texts(Target):
    """The first byte of an input chooses what reads it."""

    name = "texts"

    def seeds(self) -> list[bytes]:
        found = [(number, each) for number, (_, some) in enumerate(READERS) for each in some]
        for number, each in tuple(found):
            found += [(number, each.replace(b"5", value, 1)) for value in ODD_VALUES if b"5" in each]
        found += [(len(READERS) - 1, each) for each in seeds_of_data_files()]
        return [bytes((number,)) + each for number, each in found]

    def run(self, data: bytes) -> None:
        if len(data) < 2:
            return
        read, _ = READERS[data[0] % len(READERS)]
        with tempfile.TemporaryDirectory(prefix="minibroker-fuzz-") as folder:
            bounded(partial(self._read, read, Path(folder), data[1:]), math.inf)  # by a command, and not in the loop

    def _read(self, read: Callable[[Path, bytes], None], folder: Path, data: bytes) -> None:
        with suppress(*REFUSALS):
            read(folder, data)
