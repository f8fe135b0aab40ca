"""Records as text: format strings, JSON, and lines that are read back."""

from __future__ import annotations

import json

import pytest

from minibroker.any_cluster.record_lines import NewRecord, Template, records_of
from minibroker.any_cluster.record_text import ShownRecord, as_json, compile_format, harmless
from minibroker.errors import BadValue, CommandFailed
from minibroker.protocol.text import read_back, shown

RECORD = ShownRecord("flights", 2, 7, 1_357_020_000_000, b"UA", b"late", [("source", b"tower"), ("none", None)], 5)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%v\n", b"late\n"),
        (r"%t/%p@%o\t%k=%s", b"flights/2@7\tUA=late"),
        ("%T %K %V %S %%", b"1357020000000 2 4 4 %"),
        ("%h", b"source=tower,none=NULL"),
        (r"\x00\\é", b"\x00\\\xc3\xa9"),
        ("", b""),
        ("%R%v", b"\0\0\0\4late"),
        ("%H %e %d", b"2 5 1357020000000"),
        ("%k{hex} %v{base64} %s{hex}", b"5541 bGF0ZQ== 6c617465"),
        ('{"k":"%k"} %v\\x7bother} %%{hex}', b'{"k":"UA"} late{other} %{hex}'),
    ],
)
def test_a_format_prints_a_record(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_a_null_key_or_value_is_empty_and_its_size_minus_one() -> None:
    assert compile_format("[%k|%v|%K|%V|%R]")(RECORD._replace(key=None, value=None)) == b"[||-1|-1|\xff\xff\xff\xff]"


@pytest.mark.parametrize("text", ["%q", "%", "\\", r"\z", r"\x1", "%v{json}", "%k{}", "%p{hex}", "%R{base64}", "%x"])
def test_a_format_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="is not a format token"):
        compile_format(text)


@pytest.mark.parametrize("data", [None, b"", b"text", "\N{SNOWMAN}".encode(), b"\xff\x00", b"base64:", b"base64:!"])
def test_bytes_shown_are_read_back(data: bytes | None) -> None:
    assert read_back(shown(data)) == data


def test_a_terminal_gets_nothing_it_would_obey() -> None:
    assert harmless(b"a\tb\x1b[2J\n\xc2\x9bc\x7f\xc3\xa9") == b"a\tb\\x1b[2J\n\\x9bc\\x7f\xc3\xa9"


def test_records_consumed_as_json_can_be_produced() -> None:
    line = as_json(RECORD._replace(value=b"\xff"))

    (record,) = records_of([line], Template(is_json=True))

    assert json.loads(line)["value"] == "base64:/w=="
    assert record == NewRecord(b"UA", b"\xff", [("source", b"tower"), ("none", None)], 2, 1_357_020_000_000)


def test_lines_are_values_and_a_separator_divides_key_and_value_once() -> None:
    records = list(records_of([b"one\n", b"\n", b"two\r\n", b"\r", b"three"], Template(key=b"k", partition=1)))
    (divided,) = records_of([b"k::v::w\n"], Template(key_separator=b"::"))

    assert [record.value for record in records] == [b"one", b"", b"two\r", b"\r", b"three"]
    assert {(record.key, record.partition) for record in records} == {(b"k", 1)}
    assert (divided.key, divided.value) == (b"k", b"v::w")


def test_json_that_is_no_text_is_kept_as_json() -> None:
    lines = [b'{"value": {"delay": 2}, "headers": {"a": "b"}}', b'{"key": 7, "value": null}', b'{"value": "x"}']
    lines.append(b'{"value": {"a": [1.10, 123456789012345678901, "\\ud800"]}}')

    records = list(records_of(lines, Template(key=b"k", headers=[("c", b"d")], is_json=True)))

    assert [(record.key, record.value) for record in records] == [
        (b"k", b'{"delay":2}'),
        (b"7", None),
        (b"k", b"x"),
        (b"k", b'{"a":[1.1,123456789012345678901,"\\ud800"]}'),
    ]
    assert records[0].headers == [("a", b"b"), ("c", b"d")]


@pytest.mark.parametrize(
    ("line", "template", "said"),
    [
        (b"no separator", Template(key_separator=b":"), "no ':'"),
        (b"{", Template(is_json=True), "not JSON"),
        (b"\xff", Template(is_json=True), "not JSON"),
        (b'"text"', Template(is_json=True), "not an object"),
        (b"[" * 100_000, Template(is_json=True), "not JSON"),
        (b'{"delay": 2}', Template(is_json=True), '"delay" is not a field of a record'),
        (b'{"key": "k", "val": {"a": 1}}', Template(is_json=True), '"val" is not a field of a record'),
        (b'{"key": "k"}', Template(is_json=True), 'no "value"; write "value": null for a tombstone'),
        (b'{"value": 1e400}', Template(is_json=True), "1e400 would be rounded"),
        (b'{"value": {"a": 0.12345678901234567890}}', Template(is_json=True), "would be rounded"),
        (b'{"value": NaN}', Template(is_json=True), "NaN is not JSON"),
        (b'{"value": "a", "value": "b"}', Template(is_json=True), '"value" is twice'),
        (b'{"value": "a", "headers": {"h": "1", "h": "2"}}', Template(is_json=True), '"h" is twice'),
        (b'{"value": "\\ud800"}', Template(is_json=True), '"value" has half of a surrogate pair'),
        (b'{"value": "x", "headers": [["\\udcff", ""]]}', Template(is_json=True), "half of a surrogate pair"),
        (b'{"value": "x", "headers": [["base64:!", ""]]}', Template(is_json=True), "not base64"),
        (b'{"value": "base64:!"}', Template(is_json=True), "not base64"),
        (b'{"value": "x", "partition": -1}', Template(is_json=True), '"partition"'),
        (b'{"value": "x", "partition": 2147483648}', Template(is_json=True), '"partition"'),
        (b'{"value": "x", "timestamp": 9223372036854775808}', Template(is_json=True), "to 9223372036854775807;"),
        (b'{"value": "x", "timestamp": "now"}', Template(is_json=True), '"timestamp"'),
        (b'{"value": "x", "headers": [["a"]]}', Template(is_json=True), '"headers"'),
        (b'{"value": "x", "headers": 3}', Template(is_json=True), '"headers"'),
    ],
)
def test_an_unreadable_line_is_an_error_with_its_number(line: bytes, template: Template, said: str) -> None:
    good = b'{"value": "x"}' if template.is_json else b"a:b"
    records = records_of([good, line], template)

    next(records)
    with pytest.raises(CommandFailed, match="line 2: ") as failure:
        next(records)

    assert said in str(failure.value)
