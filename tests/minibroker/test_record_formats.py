"""Format fields of kcat and rpk, records from bytes, and options that exclude each other."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from minibroker.any_cluster import transaction_admin
from minibroker.any_cluster.kafka_python import KafkaPythonConsumer
from minibroker.any_cluster.librdkafka import error_of
from minibroker.any_cluster.record_lines import Template, pieces_of, records_of, records_with_lengths
from minibroker.any_cluster.record_text import ShownRecord, compile_format
from minibroker.cli.app import main
from minibroker.cli.reset_plan import plan_in
from minibroker.client.errors import NoAnswer
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.minibroker.answering import Answers, metadata, row, topic

RECORD = ShownRecord("flights", 2, 7, 1_357_020_000_000, b"UA", b"late", [("source", b"tower"), ("none", None)], 5)


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


def test_pieces_keep_the_ends_of_lines() -> None:
    assert [each.value for each in records_of([b"a\r\n"], Template(), by_line=False)] == [b"a\r\n"]


def test_keys_and_values_of_lines_are_written_in_hex_or_base64() -> None:
    template = Template(key_separator=b":", key_encoding="hex", value_encoding="base64")

    (record,) = records_of([b"00fF:/wA=\n"], template)

    assert (record.key, record.value) == (b"\0\xff", b"\xff\0")
    for line, reason in (
        (b"0x:AA==\n", "line 1: key '0x' is not hex; correct the line, or --key-encoding"),
        (b"\xc3\xa9:AA==\n", "line 1: key 'é' is not hex"),
        (b"00:A\n", "line 1: value 'A' is not base64; correct the line, or --value-encoding"),
    ):
        with pytest.raises(CommandFailed, match=re.escape(reason)):
            next(records_of([line], template))


def test_values_come_after_their_sizes() -> None:
    records = records_with_lengths(io.BytesIO(b"\0\0\0\1a\xff\xff\xff\xff\0\0\0\0\0\0\0\2b"), Template(key=b"k"))

    assert [next(records).value for _ in range(3)] == [b"a", None, b""]
    with pytest.raises(CommandFailed, match="record 4: the input ends after 1 byte of 2; "):
        next(records)


@pytest.mark.parametrize(
    ("content", "of_other_groups"),
    [
        (b'"a",0,1\n\nb 2 3\n', 0),
        ('"a",0,1\r\n"b",2,3\r\n'.encode("utf-8-sig"), 0),  # as editors of Windows save it
        ("a,0,1\r\nb,2,3\r\n".encode("utf-16"), 0),  # as PowerShell redirects it
        (b'"g ""1""","a",0,1\n"g, too","a",0,4\n"g ""1""","b",2,3\n', 1),
    ],
    ids=["rpk and Kafka", "byte order mark", "UTF-16", "several groups"],
)
def test_a_plan_is_read_as_other_tools_write_it(tmp_path: Path, content: bytes, of_other_groups: int) -> None:
    (file := tmp_path / "offsets").write_bytes(content)

    assert plan_in(file, 'g "1"') == ({TopicPartition("a", 0): 1, TopicPartition("b", 2): 3}, of_other_groups)


@pytest.mark.parametrize(
    ("code", "meant"),
    [(10, ErrorCode.MESSAGE_TOO_LARGE), (-192, ErrorCode.REQUEST_TIMED_OUT), (-195, None)],
)
def test_an_error_of_librdkafka_is_one_of_our_client(code: int, meant: ErrorCode | None) -> None:
    found = error_of(code, "why")

    assert found.code == meant if isinstance(found, KafkaError) else isinstance(found, NoAnswer)


def test_the_position_is_behind_the_last_record_of_each_partition() -> None:
    here, there = TopicPartition("t", 0), TopicPartition("t", 1)
    polled = {here: [SimpleNamespace(offset=3), SimpleNamespace(offset=7)], there: [SimpleNamespace(offset=1)]}
    client: Any = SimpleNamespace(poll=lambda timeout, max_records: polled, assignment=lambda: {here})
    consumer = KafkaPythonConsumer(client)

    assert len(consumer.poll(0, at_most=None)) == 3
    assert consumer.positions() == {here: 8}


def test_an_abort_marker_has_a_coordinator_epoch_even_of_a_new_producer() -> None:
    at = TopicPartition("t", 0)
    producer = row(
        producer_id=7,
        producer_epoch=2,
        last_sequence=0,
        last_timestamp=0,
        coordinator_epoch=-1,
        current_txn_start_offset=0,
    )
    written = row(topics=[row(partitions=[row()])])
    client = Answers(
        metadata=metadata(topic("t", 0)),
        describe_producers=row(topics=[row(partitions=[row(partition=0, active_producers=[producer])])]),
        write_txn_markers=row(markers=[written]),
    )

    transaction_admin.abort_in(client, at, 7)

    (marker,) = client.asked[-1].body["markers"]
    assert marker == (7, 2, False, [("t", [0])], 0, 0)
