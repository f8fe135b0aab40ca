"""The schema language: lives of fields, rows, nulls, flexible versions, spliced records, errors that say where."""

from __future__ import annotations

from typing import Any

import pytest
from construct import ConstructError

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import (
    Boolean,
    Bytes,
    Int8sb,
    Int16sb,
    Int32sb,
    Int64sb,
    Meaning,
    NullableBytes,
    NullableString,
    Records,
    Semantic,
    String,
    TopicPartition,
)
from minibroker.protocol.schema import (
    Message,
    array,
    array_of,
    contains,
    default,
    nullable_array,
    place_of,
    since,
    until,
    versions,
)
from tests.protocol.message_values import interpreted_decode, interpreted_encode, sample

LAST = 4
FIRST_FLEXIBLE = 3

Everything = versions("Everything", 0, LAST,
    "number" / Int32sb,
    "old" / Int64sb @ until(1, default=-1),
    "young" / Int16sb @ since(2, default=7),
    "short_lived" / Int8sb @ since(1, until=2, default=3),
    "is_true" / Boolean,
    "text" / String,
    "maybe_text" / NullableString,
    "data" / Bytes,
    "maybe_data" / NullableBytes,
    "rows" / array(
        "number" / Int32sb,
        "inner" / nullable_array("a" / Int64sb, "b" / Int16sb @ since(1, default=5)),
        "records" / Records),
    "maybe_names" / array_of(String, is_nullable=True),
    "numbers" / array_of(Int64sb),
    flexible=FIRST_FLEXIBLE,
)  # fmt: skip

Flexible = versions("Flexible", 0, 0, "name" / String, "rows" / array("id" / Int32sb), flexible=0)


class Slice:
    """Stands for a part of a file: all that the codec may know of it is its size."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


def encoded(message: Message, version: int, value: object) -> bytes:
    return b"".join(bytes(chunk) for chunk in message.encode(version, value))


every_version = pytest.mark.parametrize("version", range(LAST + 1))


@every_version
def test_every_kind_of_field_goes_there_and_back(version: int) -> None:
    value = sample(Everything, version)

    data = encoded(Everything, version, value)

    assert data == interpreted_encode(Everything, version, value)
    assert Everything.decode(version, data) == (value, len(data))
    assert interpreted_decode(Everything, version, data) == value


@every_version
def test_nulls_go_there_and_back(version: int) -> None:
    value = Everything(rows=[(1, None, None), (2, [(1, 5)], b"xy")], maybe_names=None, numbers=[])

    data = encoded(Everything, version, value)

    assert data == interpreted_encode(Everything, version, value)
    assert Everything.decode(version, data) == (value, len(data))
    assert interpreted_decode(Everything, version, data) == value


def test_call_without_values_has_every_default() -> None:
    assert Everything() == (0, -1, 7, 3, False, "", None, b"", None, (), None, ())
    assert Everything.row("rows")() == (0, None, None)
    assert Everything.row("rows.inner")(a=1) == (1, 5)


def test_field_that_a_version_lacks_decodes_to_its_default_and_is_not_encoded() -> None:
    value = Everything(old=11, young=12, short_lived=13)
    lives = {
        version: Everything.decode(version, encoded(Everything, version, value))[0][1:4] for version in range(LAST + 1)
    }

    assert lives == {0: (11, 7, 3), 1: (11, 7, 13), 2: (-1, 12, 13), 3: (-1, 12, 3), 4: (-1, 12, 3)}


@pytest.mark.parametrize("version", [-1, LAST + 1])
def test_version_that_was_not_declared_is_refused(version: int) -> None:
    with pytest.raises(KafkaProtocolError, match=f"Everything has no version {version}"):
        Everything.encode(version, Everything())
    with pytest.raises(KafkaProtocolError, match=f"Everything v{version}|no version {version}"):
        Everything.decode(version, b"\0" * 100)


def test_codec_of_a_version_is_generated_once_at_its_first_use() -> None:
    message = versions("Lazy", 0, 5, "number" / Int32sb)
    assert (len(message._decoders), len(message._encoders)) == (0, 0)

    message.encode(2, message())
    made = message._encoders[2]
    message.decode(2, b"\0\0\0\1")

    assert list(message._decoders) == list(message._encoders) == [2]
    assert message._encoders[2] is made


def test_rows_are_one_class_whoever_makes_them() -> None:
    data = encoded(Everything, 0, Everything(rows=[(1, [(2, 5)], None)]))

    value, _ = Everything.decode(0, data)

    assert type(value) is Everything.type
    assert type(value.rows[0]) is Everything.row("rows")
    assert type(value.rows[0].inner[0]) is Everything.row("rows.inner")
    assert value.rows[0].inner[0].a == 2


def test_plain_tuples_encode_as_named_ones_do() -> None:
    named = sample(Everything, LAST)
    plain = tuple(
        [(row.number, [tuple(inner) for inner in row.inner], row.records) for row in field] if index == 9 else field
        for index, field in enumerate(named)
    )

    assert encoded(Everything, LAST, plain) == encoded(Everything, LAST, named)


def test_decoding_starts_and_ends_where_it_is_told() -> None:
    message = versions("Number", 0, 0, "number" / Int32sb)

    assert message.decode(0, b"xx\0\0\0\5yyy", 2) == ((5,), 6)


# -- records --------------------------------------------------------------------------------------------------

Payload = versions("Payload", 0, 0, "id" / Int32sb, "records" / Records, "after" / Int32sb)


def test_records_decode_to_a_view_that_writes_through_to_the_frame() -> None:
    frame = bytearray.fromhex("00000001 00000003 616263 00000002")

    records = Payload.decode(0, frame)[0].records
    records[0] = 0x7A

    assert type(records) is memoryview
    assert frame == bytes.fromhex("00000001 00000003 7a6263 00000002")


def test_null_records_decode_to_none() -> None:
    assert Payload.decode(0, bytes.fromhex("00000001 ffffffff 00000002"))[0] == (1, None, 2)


def test_empty_records_decode_to_an_empty_view() -> None:
    records = Payload.decode(0, bytearray.fromhex("00000001 00000000 00000002"))[0].records

    assert type(records) is memoryview
    assert len(records) == 0


@pytest.mark.parametrize("records", [b"abc", bytearray(b"abc"), memoryview(b"abc"), Slice(3)])
def test_records_are_spliced_as_the_object_that_was_given(records: object) -> None:
    chunks = Payload.encode(0, (1, records, 2))

    assert chunks == [bytes.fromhex("00000001 00000003"), records, bytes.fromhex("00000002")]
    assert chunks[1] is records


def test_only_records_that_have_bytes_cut_the_output() -> None:
    message = versions("Many", 0, 0, "rows" / array("records" / Records))
    part = Slice(70_000)

    chunks = message.encode(0, ([(b"",), (None,), (Slice(0),), (part,), (b"",)],))

    assert chunks == [bytes.fromhex("00000005 00000000 ffffffff 00000000 00011170"), part, b"\0\0\0\0"]


# -- flexible versions ----------------------------------------------------------------------------------------


def test_flexible_version_has_compact_lengths_and_ends_each_struct_with_its_tags() -> None:
    data = encoded(Flexible, 0, ("ab", [(1,), (2,)]))

    assert data == bytes.fromhex("03 6162 03 00000001 00 00000002 00 00")


def test_compact_length_takes_as_many_bytes_as_it_needs() -> None:
    value = Flexible(name="x" * 20_000)

    data = encoded(Flexible, 0, value)

    assert data[:3] == bytes.fromhex("a19c01")
    assert Flexible.decode(0, data) == (value._replace(rows=[]), len(data))
    assert data == interpreted_encode(Flexible, 0, value)


Strings = versions("Strings", 0, 0, "names" / array_of(String), "text" / NullableString, "data" / Bytes, flexible=0)


def test_a_compact_string_is_as_long_as_it_can_be_in_other_versions_and_no_longer() -> None:
    longest = "ä" + "x" * 32_765

    value: Any
    for value in ([longest], "", b""), ([], longest, b""), ([], None, b"x" * 40_000):
        data = encoded(Strings, 0, value)
        assert Strings.decode(0, data) == (value, len(data))
        assert interpreted_decode(Strings, 0, data) == value


@pytest.mark.parametrize("value", [(["x" * 32_768], "", b""), ([], "x" * 32_768, b""), ([], "x" * 3_000_000, b"")])
def test_a_compact_string_that_is_longer_is_malformed(value: Any) -> None:
    data = encoded(Strings, 0, value)

    with pytest.raises(KafkaProtocolError, match="string too long"):
        Strings.decode(0, data)
    with pytest.raises(ConstructError):
        interpreted_decode(Strings, 0, data)


def test_tagged_fields_nobody_knows_are_skipped_wherever_they_are() -> None:
    data = bytes.fromhex("02 61 02 00000001 01 05 02 ffff 02 00 00 8101 03 010203")

    assert Flexible.decode(0, data) == (("a", [(1,)]), len(data))
    assert interpreted_decode(Flexible, 0, data) == ("a", [(1,)])


@pytest.mark.parametrize(
    "tags",
    [
        "01 00 05 00",
        "02 00 00",
        "ff ff ff ff 07",
        "01 00 ff ff ff ff 07",
        "ff ff ff ff ff 01",
        "80 80 80 80 80 00",
        "80",
    ],
    ids=["size", "count", "many", "large", "too long a varint", "a varint of six bytes", "cut varint"],
)
def test_tagged_fields_that_lie_are_refused(tags: str) -> None:
    with pytest.raises(KafkaProtocolError):
        Flexible.decode(0, bytes.fromhex("02 61 01" + tags))


# -- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ("00", "number"),
        ("00000001 0000000000000002 01 ffff", "text"),
        ("00000001 0000000000000002 01 0001 c3", "text"),
        ("00000001 0000000000000002 01 0000 fffe", "maybe_text"),
        ("00000001 0000000000000002 01 0000 ffff 7fffffff", "data"),
        ("00000001 0000000000000002 01 0000 ffff 00000000 fffffff0", "maybe_data"),
        ("00000001 0000000000000002 01 0000 ffff 00000000 ffffffff ffffffff", "rows"),
        ("00000001 0000000000000002 01 0000 ffff 00000000 ffffffff 00000001 00000001 7fffffff", "rows.*inner"),
        (
            "00000001 0000000000000002 01 0000 ffff 00000000 ffffffff 00000001 00000001 ffffffff 00000009",
            "rows.*records",
        ),
    ],
)
def test_error_names_message_version_and_field(data: str, path: str) -> None:
    with pytest.raises(KafkaProtocolError, match=rf"^Everything v0: .*{path}\b"):
        Everything.decode(0, bytes.fromhex(data))


def test_error_does_not_quote_what_the_client_sent() -> None:
    secret = b"secret".hex()

    with pytest.raises(KafkaProtocolError) as refused:
        Everything.decode(0, bytes.fromhex(f"00000001 0000000000000002 01 0006 {secret} fffe"))

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["text", "rows", "numbers", "data"])
def test_null_is_not_encoded_where_the_schema_has_none(name: str) -> None:
    with pytest.raises((TypeError, AttributeError)):
        Everything.encode(0, Everything(**{name: None}))


def test_walk_names_every_field_once() -> None:
    paths = [path for path, _ in Everything.walk()]

    assert len(paths) == len(set(paths)) == 17
    assert "rows.inner.b" in paths


def test_topic_partition_reads_as_kafka_writes_it() -> None:
    assert str(TopicPartition("flights", 3)) == "flights-3"


# -- what fields mean -----------------------------------------------------------------------------------------

Name = Semantic(NullableString, Meaning.TOPIC)
Number = Semantic(Int32sb, Meaning.PARTITION)
Meant = versions("Meant", 0, 1,
    "name" / Name @ since(1),
    "plain" / Int32sb,
    "rows" / array("numbers" / array_of(Number), "number" / Number @ default(-1)),
    flexible=1,
)  # fmt: skip
Plain = versions("Plain", 0, 1,
    "name" / NullableString @ since(1),
    "plain" / Int32sb,
    "rows" / array("numbers" / array_of(Int32sb), "number" / Int32sb),
    flexible=1,
)  # fmt: skip


def test_a_meaning_is_kept_with_its_field_or_with_its_array_of_values() -> None:
    assert {path: field.meaning for path, field in Meant.walk()} == {
        "name": Meaning.TOPIC,
        "plain": None,
        "rows": None,
        "rows.numbers": Meaning.PARTITION,
        "rows.number": Meaning.PARTITION,
    }


@pytest.mark.parametrize("version", [0, 1])
def test_a_meaning_changes_nothing_on_the_wire(version: int) -> None:
    value = sample(Meant, version)

    data = encoded(Meant, version, value)

    assert data == encoded(Plain, version, value) == interpreted_encode(Meant, version, value)
    assert Meant.decode(version, data)[0] == value == interpreted_decode(Meant, version, data)


def test_a_field_is_found_by_what_it_means() -> None:
    assert place_of(Meant.fields, Meaning.TOPIC) == 0
    assert place_of(Meant.fields, Meaning.PARTITION) is None
    assert place_of(Meant.fields_at("rows"), Meaning.PARTITION) == 0
    assert contains(Meant.fields, Meaning.PARTITION)
    assert not contains(Meant.fields, Meaning.GROUP)


def test_a_field_is_found_by_its_path() -> None:
    assert Meant.field("rows.number").name == "number"
    assert not Meant.field("name").is_in(0)


def test_what_is_always_on_the_wire_may_have_a_default_for_values_made_without_it() -> None:
    assert Meant.row("rows")(numbers=[]) == ([], -1)
