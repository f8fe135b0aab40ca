"""Format fields of kcat and rpk, records from bytes, and options that exclude each other."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from minibroker.cli.app import main
from minibroker.cli.cluster import TopicPartition, error_of, errors
from minibroker.cli.failures import CommandFailed
from minibroker.cli.groups import offsets_of
from minibroker.cli.parameters import cluster_of
from minibroker.cli.record_clients import KafkaPythonConsumer
from minibroker.cli.record_lines import Template, pieces_of, records_of, records_with_lengths
from minibroker.cli.record_text import ShownRecord, as_json, compile_format
from minibroker.cli.transaction_admin import TransactionAdmin

RECORD = ShownRecord("flights", 2, 7, 1_357_020_000_000, b"UA", b"late", [("source", b"tower"), ("none", None)], 5)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%R%v", b"\0\0\0\4late"),
        ("%H %e %d", b"2 5 1357020000000"),
        ("%k{hex} %v{base64} %s{hex}", b"5541 bGF0ZQ== 6c617465"),
        ('{"k":"%k"} %v{other}', b'{"k":"UA"} late{other}'),
        ("%v", b"late"),
    ],
)
def test_a_format_has_the_fields_of_kcat_and_rpk(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_the_size_of_a_null_value_is_minus_one_in_four_bytes() -> None:
    assert compile_format("%R")(RECORD._replace(value=None)) == b"\xff\xff\xff\xff"


def test_the_name_of_a_header_that_is_no_text_is_escaped_in_json() -> None:
    row = json.loads(as_json(RECORD._replace(headers=[("\udcff", b"tower")])))

    assert row["headers"] == [["\udcff", "tower"]]


@pytest.mark.parametrize("text", ["%t{hex}", "%R{base64}", "%x"])
def test_only_keys_and_values_are_encoded(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a format token"):
        compile_format(text)


@pytest.mark.parametrize(
    "field", ["%t", "%p", "%o", "%k", "%v", "%s", "%h", "%H", "%T", "%d", "%e", "%K", "%V", "%S", "%R"]
)
def test_every_field_is_in_the_help(field: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["consume", "--help"])
    assert field in capsys.readouterr().out
    assert compile_format(field)(RECORD)


class Dripping(io.BytesIO):
    """Gives a byte at a time, as a slow pipe may."""

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(1)


@pytest.mark.parametrize("source", [io.BytesIO, Dripping])
@pytest.mark.parametrize(
    ("data", "delimiter", "pieces"),
    [
        (b"a\0b\0", b"\0", [b"a", b"b"]),
        (b"a--b-c", b"--", [b"a", b"b-c"]),
        (b"\0\0", b"\0", [b"", b""]),
        (b"", b"\0", []),
    ],
)
def test_a_delimiter_divides_however_the_bytes_arrive(
    source: type[io.BytesIO], data: bytes, delimiter: bytes, pieces: list[bytes]
) -> None:
    assert list(pieces_of(source(data), delimiter)) == pieces


def test_pieces_keep_what_ends_a_line() -> None:
    assert [each.value for each in records_of([b"a\r\n"], Template(), by_line=False)] == [b"a\r\n"]


def test_values_come_after_their_sizes() -> None:
    records = records_with_lengths(io.BytesIO(b"\0\0\0\1a\xff\xff\xff\xff\0\0\0\0\0\0\0\2b"), Template(key=b"k"))

    assert [next(records).value for _ in range(3)] == [b"a", None, b""]
    with pytest.raises(CommandFailed, match="record 4: the input ends after 1 byte of 2; "):
        next(records)


def test_offsets_are_read_from_a_file_of_kafka_or_of_rpk(tmp_path: Path) -> None:
    (file := tmp_path / "offsets").write_text('"a",0,1\n\nb 2 3\n')

    assert offsets_of(file) == {TopicPartition("a", 0): 1, TopicPartition("b", 2): 3}


@pytest.mark.parametrize(
    ("code", "kind"),
    [(10, errors.MessageSizeTooLargeError), (-192, errors.KafkaTimeoutError), (-195, errors.KafkaConnectionError)],
)
def test_an_error_of_librdkafka_is_one_of_kafka_python(code: int, kind: type[Exception]) -> None:
    assert type(error_of(code, "why")) is kind


def test_the_position_is_behind_the_last_record_of_each_partition() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    polled = {here: [SimpleNamespace(offset=3), SimpleNamespace(offset=7)], there: [SimpleNamespace(offset=1)]}
    client: Any = SimpleNamespace(poll=lambda timeout, max_records: polled, assignment=lambda: {here})
    consumer = KafkaPythonConsumer(client)

    assert len(consumer.poll(0, at_most=None)) == 3
    assert consumer.positions() == {here: 8}


def test_an_abort_marker_has_a_coordinator_epoch_even_of_a_new_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    at = TopicPartition("t", 0)
    row = SimpleNamespace(
        producer_id=7,
        producer_epoch=2,
        last_sequence=0,
        last_timestamp=0,
        coordinator_epoch=-1,
        current_transaction_start_offset=0,
    )
    sent: list[Any] = []
    client = SimpleNamespace(
        describe_topics=lambda topics: [{"name": "t", "error_code": 0, "partitions": [{"partition_index": 0}]}],
        describe_producers=lambda partitions: {at: SimpleNamespace(active_producers=[row])},
        abort_transaction=sent.append,
    )

    TransactionAdmin(cluster_of(None), client).abort_in(at, 7)

    assert [(each.producer_id, each.producer_epoch, each.coordinator_epoch) for each in sent] == [(7, 2, 0)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "-f", "%v", "-o", "json"],
        ["consume", "t", "--follow", "--to", "3"],
        ["consume", "t", "--group", "g", "--to", "3"],
        ["consume", "--regex", "("],
        ["produce", "t", "file", "--json"],
        ["produce", "t", "-R", "-D", "x"],
        ["produce", "t", "-D", r"\q"],
        ["produce", "t", "-D", ""],
        ["topics", "list", "-X", "novalue"],
        ["topics", "list", "--command-config", "/nonexistent"],
        ["groups", "reset", "g"],
        ["groups", "reset", "g", "--to", "end", "--to-group", "h"],
        ["transactions", "abort"],
        ["transactions", "abort", "id", "--topic", "t"],
    ],
)
def test_options_that_exclude_each_other_are_usage_errors(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    assert "--help`" in capsys.readouterr().err
