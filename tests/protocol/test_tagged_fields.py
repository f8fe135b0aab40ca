"""Tagged fields, rows, uuids and fields that may not be null yet: in both codecs, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from construct import ConstructError

from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.primitives import (
    ZERO_UUID,
    Boolean,
    Int16sb,
    Int32sb,
    Int64sb,
    NullableString,
    Records,
    String,
    Uuid,
)
from minibroker.protocol.schema import (
    Message,
    array,
    array_of,
    null_since,
    nullable_array,
    row,
    since,
    tagged,
    versions,
)
from tests.protocol.message_values import interpreted_decode, interpreted_encode, interpreted_rejects

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

Plain = versions("Plain", 0, 1, "rows" / array("a" / Int32sb, "b" / Int64sb), "after" / Int16sb, flexible=1)

Young = versions("Young", 0, 2,
    "names" / array_of(String, is_nullable=True) @ null_since(1),
    "name" / NullableString @ null_since(2),
    flexible=2,
)  # fmt: skip


def encoded(message: Message, version: int, value: Any) -> bytes:
    """What the generated codec makes of a value, which must be what the interpreted one makes."""
    data = b"".join(bytes(chunk) for chunk in message.encode(version, value))
    assert data == interpreted_encode(message, version, value)
    return data


def decoded(message: Message, version: int, data: bytes) -> Any:
    """What both codecs read."""
    value, position = message.decode(version, bytearray(data))
    assert position == len(data)
    assert interpreted_decode(message, version, data) == value
    return value


def assert_refused(message: Message, version: int, data: bytes) -> None:
    with pytest.raises(KafkaProtocolError):
        message.decode(version, bytearray(data))
    assert interpreted_rejects(message, version, data)


# -- tagged fields --------------------------------------------------------------------------------------------


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
def test_a_known_tag_must_be_just_as_long_as_it_says(tags: str) -> None:
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


# -- rows of one size -----------------------------------------------------------------------------------------


def test_rows_of_one_size_are_read_whether_or_not_they_have_tags() -> None:
    rows = [(number, -number) for number in range(5)]
    data = encoded(Plain, 1, Plain(rows=rows, after=3))
    with_unknown_tag = bytes.fromhex(
        "03  00000001 0000000000000002 01 05 02 ffff  00000003 0000000000000004 00  0007 00"
    )

    assert decoded(Plain, 1, data) == (rows, 3)
    assert decoded(Plain, 1, with_unknown_tag) == ([(1, 2), (3, 4)], 7)


@pytest.mark.parametrize("cut", range(1, 15))
def test_rows_of_one_size_that_are_cut_short_are_refused(cut: int) -> None:
    data = encoded(Plain, 1, Plain(rows=[(1, 2)], after=3))

    assert_refused(Plain, 1, data[:-cut])


# -- uuids and nulls ------------------------------------------------------------------------------------------


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
