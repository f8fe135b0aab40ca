"""The schema language: lives of fields, rows, nulls, flexible versions, tags, spliced records, errors with a place."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from construct import ConstructError

from minibroker.protocol.codegen import write_uvarint
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import (
    ZERO_UUID,
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
    Uuid,
)
from minibroker.protocol.schema import (
    Message,
    array,
    array_of,
    contains,
    default,
    null_since,
    nullable_array,
    nullable_row,
    nullable_tagged_row,
    row,
    since,
    tagged,
    until,
    versions,
)
from tests.protocol.message_values import Slice, interpreted_decode, interpreted_encode, interpreted_rejects, sample

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


def encoded(message: Message, version: int, value: Any) -> bytes:
    """Encode by the generated codec, whose bytes must be those of the interpreted one."""
    data = b"".join(bytes(chunk) for chunk in message.encode(version, value))
    assert data == interpreted_encode(message, version, value)
    return data


def decoded(message: Message, version: int, data: bytes) -> Any:
    """Decode by both codecs."""
    value, position = message.decode(version, bytearray(data))
    assert position == len(data)
    assert interpreted_decode(message, version, data) == value
    return value


def assert_refused(message: Message, version: int, data: bytes) -> None:
    with pytest.raises(KafkaProtocolError):
        message.decode(version, bytearray(data))
    assert interpreted_rejects(message, version, data)


every_version = pytest.mark.parametrize("version", range(LAST + 1))


@every_version
def test_every_kind_of_field_and_null_go_there_and_back(version: int) -> None:
    nulls = Everything(rows=[(1, None, None), (2, [(1, 5)], b"xy")], maybe_names=None, numbers=[])

    for value in (sample(Everything, version), nulls):
        assert decoded(Everything, version, encoded(Everything, version, value)) == value


def test_call_without_values_has_every_default_also_of_required_fields() -> None:
    assert Everything() == (0, -1, 7, 3, False, "", None, b"", None, (), None, ())
    assert Everything.row("rows")() == (0, None, None)
    assert Everything.row("rows.inner")(a=1) == (1, 5)
    assert Meant.row("rows")(numbers=[]) == ([], -1)


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


def test_a_remembered_value_is_encoded_once_a_version_and_others_as_ever() -> None:
    message = versions("Again", 0, 1, "number" / Int32sb, "more" / Int32sb @ since(1, default=0))
    value = message(number=1, more=2)
    message.remember(value)

    assert [message.encode(version, value) for version in (0, 1, 0)] == [
        [b"\0\0\0\1"],
        [b"\0\0\0\1\0\0\0\2"],
        [b"\0\0\0\1"],
    ]
    assert message.encode(1, value) is message.encode(1, value)
    assert message.encode(0, message(number=3)) == [b"\0\0\0\3"]
    with pytest.raises(KafkaProtocolError, match="no version 2"):
        message.encode(2, value)


def test_rows_are_one_class_whoever_makes_them_and_plain_tuples_encode_as_they_do() -> None:
    data = encoded(Everything, 0, Everything(rows=[(1, [(2, 5)], None)]))

    value, _ = Everything.decode(0, data)

    assert type(value) is Everything.type
    assert type(value.rows[0]) is Everything.row("rows")
    assert type(value.rows[0].inner[0]) is Everything.row("rows.inner")
    assert value.rows[0].inner[0].a == 2
    assert encoded(Everything, 0, tuple(value)) == data


def test_decoding_starts_and_ends_at_the_given_positions() -> None:
    message = versions("Number", 0, 0, "number" / Int32sb)

    assert message.decode(0, b"xx\0\0\0\5yyy", 2) == ((5,), 6)


Payload = versions("Payload", 0, 0, "id" / Int32sb, "records" / Records, "after" / Int32sb)


def test_records_decode_to_a_view_that_writes_through_to_the_frame_and_null_to_none() -> None:
    frame = bytearray.fromhex("00000001 00000003 616263 00000002")

    records = Payload.decode(0, frame)[0].records
    empty = Payload.decode(0, bytearray.fromhex("00000001 00000000 00000002"))[0].records
    records[0] = 0x7A

    assert frame == bytes.fromhex("00000001 00000003 7a6263 00000002")
    assert (type(records), type(empty), len(empty)) == (memoryview, memoryview, 0)
    assert Payload.decode(0, bytes.fromhex("00000001 ffffffff 00000002"))[0] == (1, None, 2)


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


def test_flexible_version_has_compact_lengths_and_ends_each_struct_with_its_tags() -> None:
    data = encoded(Flexible, 0, ("ab", [(1,), (2,)]))

    assert data == bytes.fromhex("03 6162 03 00000001 00 00000002 00 00")


Strings = versions("Strings", 0, 0, "names" / array_of(String), "text" / NullableString, "data" / Bytes, flexible=0)


def test_a_compact_string_is_as_long_as_it_can_be_in_other_versions_and_no_longer() -> None:
    longest = "ä" + "x" * 32_765

    value: Any
    for value in ([longest], "", b""), ([], longest, b""), ([], None, b"x" * 40_000):
        assert decoded(Strings, 0, encoded(Strings, 0, value)) == value


@pytest.mark.parametrize("value", [(["x" * 32_768], "", b""), ([], "x" * 32_768, b""), ([], "x" * 3_000_000, b"")])
def test_a_compact_string_that_is_longer_is_malformed(value: Any) -> None:
    data = b"".join(Strings.encode(0, value))

    with pytest.raises(KafkaProtocolError, match="string too long"):
        Strings.decode(0, data)
    assert interpreted_rejects(Strings, 0, data)


Nullables = versions("Nullables", 0, 1,
    "text" / NullableString,
    "data" / NullableBytes,
    "rows" / nullable_array("id" / Int32sb),
    "names" / array_of(String, is_nullable=True),
    flexible=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, "ffff ffffffff ffffffff ffffffff"),
        (0, "fffe fffffffe fffffffe fffffffe"),
        (0, "8000 80000000 80000000 80000000"),
        (1, "00 00 00 00 00"),
        (1, "ffffffff0f ffffffff0f ffffffff0f ffffffff0f 00"),
        (1, "8180808008 8180808008 ffffffff7f 8180808008 00"),
    ],
)
def test_any_negative_length_is_null(version: int, data: str) -> None:
    assert decoded(Nullables, version, bytes.fromhex(data)) == (None, None, None, None)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"a\xff\xc3(b", "a\ufffd\ufffd(b"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xed\xa0\x80\xf4\x90\x80\x80\xc0\x80", "\ufffd" * 7),  # as Java counts them
        (b"\xff" * 10_922, "\ufffd" * 10_922),
        (b"a" * 32_764 + b"\xff", "a" * 32_764 + "\ufffd"),
    ],
)
def test_text_that_is_not_utf8_is_read_with_the_replacement_character(sent: bytes, text: str) -> None:
    lengths = {0: struct.pack(">h", len(sent)), 1: write_uvarint(len(sent) + 1)}
    nulls = {0: b"\xff" * 12, 1: b"\0" * 4}

    for version in (0, 1):
        assert decoded(Nullables, version, lengths[version] + sent + nulls[version])[0] == text


@pytest.mark.parametrize("sent", [b"\xff" * 10_923, b"a" * 32_766 + b"\xff"])
def test_text_that_could_not_be_written_again_is_malformed(sent: bytes) -> None:
    assert_refused(Nullables, 0, struct.pack(">h", len(sent)) + sent + b"\xff" * 12)
    assert_refused(Nullables, 1, write_uvarint(len(sent) + 1) + sent + b"\0" * 4)


def test_unknown_tagged_fields_are_skipped_wherever_they_are() -> None:
    data = bytes.fromhex("02 61 02 00000001 01 05 02 ffff 02 00 00 8101 03 010203")

    assert decoded(Flexible, 0, data) == ("a", [(1,)])


@pytest.mark.parametrize(
    "tags",
    [
        "01 00 05 00",
        "02 00 00",
        "ff ff ff ff 07",
        "ff ff ff ff 0f",
        "01 00 ff ff ff ff 07",
        "01 00 ff ff ff ff 0f",
        "ff ff ff ff ff 01",
        "80 80 80 80 80 00",
        "80",
    ],
    ids=[
        "size",
        "count",
        "many",
        "negative",
        "large",
        "a negative size",
        "too long a varint",
        "a varint of six bytes",
        "cut varint",
    ],
)
def test_tagged_fields_that_lie_are_refused(tags: str) -> None:
    assert_refused(Flexible, 0, bytes.fromhex("02 61 01" + tags))


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ("00", "number"),
        ("00000001 0000000000000002 01 ffff", "text"),
        ("00000001 0000000000000002 01 0002 c3", "text"),
        ("00000001 0000000000000002 01 0000 0001", "maybe_text"),
        ("00000001 0000000000000002 01 0000 ffff 7fffffff", "data"),
        ("00000001 0000000000000002 01 0000 ffff fffffffe", "data"),
        ("00000001 0000000000000002 01 0000 ffff 00000000 0000000f", "maybe_data"),
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


def test_error_does_not_quote_the_request() -> None:
    with pytest.raises(KafkaProtocolError) as refused:
        Everything.decode(0, bytes.fromhex(f"00000001 0000000000000002 01 0006 {b'secret'.hex()} fffe"))

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

    assert data == encoded(Plain, version, value)
    assert decoded(Meant, version, data) == value


def test_a_field_is_found_by_its_meaning_and_by_its_path() -> None:
    assert contains(Meant.fields, Meaning.PARTITION)
    assert not contains(Meant.fields, Meaning.GROUP)
    assert Meant.field("rows.number").name == "number"
    assert not Meant.field("name").is_in(0)


ID = bytes(range(16))

# Tags of every kind, declared in no order; "late" is of version 2 only.
Tagged = versions("Tagged", 0, 2,
    "end" / row("epoch" / Int32sb, "offset" / Int64sb) @ tagged(2, since=1),
    "number" / Int64sb @ tagged(1, since=1, default=-1),
    "text" / NullableString @ tagged(0, since=1),
    "is_true" / Boolean @ tagged(3, since=1),
    "rows" / array("name" / String, "id" / Uuid) @ tagged(4, since=1),
    "ids" / array_of(Uuid) @ tagged(130, since=1),
    "late" / Int16sb @ tagged(131, since=2, default=9),
    "name" / String,
    flexible=1,
)  # fmt: skip

Rows = versions("Rows", 0, 1,
    "rows" / array(
        "id" / Int32sb,
        "before" / nullable_array("a" / Int64sb),
        "extra" / Int32sb @ since(1, default=-1),
        "records" / Records,
        "end" / row("epoch" / Int32sb, "offset" / Int64sb) @ tagged(0, since=1)),
    flexible=1,
)  # fmt: skip

OneSize = versions("OneSize", 0, 1, "rows" / array("a" / Int32sb, "b" / Int64sb), "after" / Int16sb, flexible=1)

Young = versions("Young", 0, 2,
    "names" / array_of(String, is_nullable=True) @ null_since(1),
    "name" / NullableString @ null_since(2),
    flexible=2,
)  # fmt: skip


def test_fields_at_their_defaults_are_not_on_the_wire_and_decode_to_them() -> None:
    assert encoded(Tagged, 1, Tagged(name="n")) == bytes.fromhex("02 6e 00")
    assert encoded(Tagged, 0, Tagged(name="n")) == bytes.fromhex("0001 6e")
    assert encoded(Tagged, 1, Tagged(name="n", rows=[], ids=[])) == bytes.fromhex("02 6e 00")
    assert decoded(Tagged, 2, b"\x01\x00") == (None, -1, None, False, (), (), 9, "")


def test_others_follow_in_the_order_of_their_tags_each_with_its_size() -> None:
    value = Tagged(end=(3, 7), number=5, text="t", name="n")

    assert encoded(Tagged, 1, value) == bytes.fromhex(
        "02 6e  03  00 02 02 74  01 08 0000000000000005  02 0d 00000003 0000000000000007 00"
    )


def test_every_kind_goes_there_and_back() -> None:
    value = Tagged(
        end=Tagged.row("end")(epoch=1, offset=2),
        number=0,
        text="text",
        is_true=True,
        rows=[Tagged.row("rows")(name="a" * 200, id=ID), Tagged.row("rows")(name="", id=ZERO_UUID)],
        ids=[ID, ZERO_UUID],
        late=0,
        name="n",
    )

    assert decoded(Tagged, 2, encoded(Tagged, 2, value)) == value
    assert decoded(Tagged, 1, encoded(Tagged, 1, value)) == value._replace(late=9)


Maybe = versions("Maybe", 0, 0,
    "before" / Int32sb,
    "maybe" / nullable_row("name" / String, "rows" / array("id" / Int32sb)),
    "tagged" / nullable_tagged_row("id" / Int32sb) @ tagged(0, since=0, default=(0,)),
    flexible=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Maybe(), "00000000 ff 00"),
        (Maybe(maybe=Maybe.row("maybe")(name="n")), "00000000 01 026e0100 00"),
        (Maybe(before=5, tagged=Maybe.row("tagged")(id=7)), "00000005 ff 01 00 06 01 00000007 00"),
        (Maybe(tagged=None), "00000000 ff 01 00 01 00"),
    ],
)
def test_row_that_may_be_null_begins_with_a_byte_and_so_does_one_with_a_tag(value: Any, data: str) -> None:
    """The bytes of kafka 4.4.0 for its messages with such rows."""
    assert encoded(Maybe, 0, value) == bytes.fromhex(data)
    assert encoded(Maybe, 0, decoded(Maybe, 0, bytes.fromhex(data))) == bytes.fromhex(data)


def test_unknown_tags_between_known_ones_are_skipped_and_of_one_that_comes_twice_the_last_counts() -> None:
    data = bytes.fromhex("02 6e  04  01 08 0000000000000005  03 01 01  8301 02 ffff  01 08 0000000000000006")

    value = decoded(Tagged, 1, data)

    assert (value.number, value.is_true, value.name) == (6, True, "n")


@pytest.mark.parametrize(
    "tags",
    [
        "01  01 07 00000000000005",
        "01  01 09 000000000000000500",
        "01  01 08 00000000000005",
        "01  00 01 03",
        "01  00 04 02 7475 76",
        "01  02 0c 00000003 0000000000000007",
        "01  04 02 7f 00",
        "02  01 08 0000000000000005",
    ],
    ids=["too short", "too long", "cut", "inner length", "rest", "row without its tags", "count", "one is missing"],
)
def test_a_known_tag_must_have_exactly_its_declared_length(tags: str) -> None:
    assert_refused(Tagged, 1, bytes.fromhex("02 6e") + bytes.fromhex(tags))


def test_rows_with_records_have_their_tags_behind_them() -> None:
    value = Rows(rows=[(1, None, -1, b"abc", None), (2, None, -1, b"", (5, 6)), (3, [(1,)], 4, None, (7, 8))])

    data = encoded(Rows, 1, value)

    assert decoded(Rows, 1, data) == value
    assert data.startswith(bytes.fromhex("04  00000001 00 ffffffff 04 616263 00  00000002 00 ffffffff 01 01 00 0d"))


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_151, 2_097_152])
def test_lengths_take_the_bytes_they_need(size: int) -> None:
    value = Rows(rows=[(1, None, -1, bytes(size), None)] * 2)

    data = encoded(Rows, 1, value)

    assert [len(each.records) for each in Rows.decode(1, data)[0].rows] == [size, size]


def test_rows_of_one_size_are_read_whether_or_not_they_have_tags() -> None:
    rows = [(number, -number) for number in range(5)]
    data = encoded(OneSize, 1, OneSize(rows=rows, after=3))
    with_unknown_tag = bytes.fromhex(
        "03  00000001 0000000000000002 01 05 02 ffff  00000003 0000000000000004 00  0007 00"
    )

    assert decoded(OneSize, 1, data) == (rows, 3)
    assert decoded(OneSize, 1, with_unknown_tag) == ([(1, 2), (3, 4)], 7)


def test_a_uuid_is_its_16_bytes() -> None:
    message = versions("Id", 0, 0, "id" / Uuid, "number" / Int32sb)

    assert encoded(message, 0, message(id=ID, number=1)) == ID + b"\0\0\0\1"
    assert decoded(message, 0, ID + b"\0\0\0\1") == (ID, 1)
    assert message().id == ZERO_UUID


def test_null_is_neither_read_nor_written_before_the_version_that_allows_it() -> None:
    assert_refused(Young, 0, bytes.fromhex("ffffffff 0000"))
    assert_refused(Young, 1, bytes.fromhex("ffffffff ffff"))
    assert decoded(Young, 1, bytes.fromhex("ffffffff 0000")) == (None, "")
    assert decoded(Young, 2, bytes.fromhex("00 00 00")) == (None, None)
    assert encoded(Young, 2, Young()) == bytes.fromhex("00 00 00")
    with pytest.raises((TypeError, AttributeError)):
        Young.encode(1, Young(names=[]))
    with pytest.raises(ConstructError):
        interpreted_encode(Young, 1, Young(names=[]))
