"""The columns of a message: its fields with a meaning, found once, and their values in a message."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.message_rows import Column, changed, columns, rows, rows_at
from minibroker.protocol.primitives import ErrorCode16, Int32sb, Meaning, PartitionIndex, Records, String, TopicName
from minibroker.protocol.schema import array, array_of, nullable_array, since, until, versions

TOPIC, PARTITION, ERROR = Meaning.TOPIC, Meaning.PARTITION, Meaning.ERROR_CODE

Message = versions("Message", 0, 2,
    "time_ms" / Int32sb,
    "topics" / nullable_array(
        "partitions" / array(
            "partition" / PartitionIndex,
            "error_code" / ErrorCode16,
            "records" / Records),
        "name" / TopicName),
    "names" / array_of(TopicName) @ until(0),
    "error_code" / ErrorCode16 @ since(1),
    "plain" / array("text" / String),
)  # fmt: skip


def message(**values: Any) -> Any:
    return Message(**values)


def test_the_columns_of_a_row_come_before_those_of_its_arrays() -> None:
    assert list(rows(Message)) == [
        ((2,), None, TOPIC),
        ((), 3, ERROR),
        ((1,), 1, TOPIC),
        ((1, 0), 0, PARTITION),
        ((1, 0), 1, ERROR),
        ((1, 0), 2, Meaning.RECORDS),
    ]
    assert columns(Message, TOPIC) == (((2,), None, TOPIC), ((1,), 1, TOPIC))


def test_a_version_has_the_columns_that_live_in_it() -> None:
    assert [path for path, _, meaning in rows(Message, 1) if meaning is TOPIC] == [(1,)]
    assert [path for path, _, meaning in rows(Message, 0) if meaning is ERROR] == [(1, 0)]


def test_the_columns_of_a_version_are_found_once() -> None:
    assert rows(Message, 1) is rows(Message, 1)


def test_values_are_those_of_all_rows_and_null_arrays_have_none() -> None:
    body = message(names=["x", "y"], topics=[([(0, 3, b""), (1, 0, b"")], "a"), (None, "b"), ([(7, 5, b"")], "c")])

    assert [column.values(body) for column in columns(Message, TOPIC)] == [["x", "y"], ["a", "b", "c"]]
    assert [column.values(body) for column in columns(Message, ERROR)] == [[0], [3, 0, 5]]
    assert Column((1, 0), 1, ERROR).values(message(topics=None)) == []
    assert rows_at(body, ()) == [body]


def test_a_replaced_column_leaves_the_rest_and_null_arrays_as_they_are() -> None:
    body = message(error_code=1, topics=[([(0, 3, b"")], "a"), (None, "b")])
    own, of_partitions = columns(Message, ERROR)

    assert own.replaced(body, lambda code: code + 1) == body._replace(error_code=2)
    replaced = of_partitions.replaced(body, lambda code: -code)
    assert replaced == body._replace(topics=[([(0, -3, b"")], "a"), (None, "b")])
    assert of_partitions.replaced(message(topics=None), abs) == message(topics=None)


def test_a_changed_row_keeps_its_type() -> None:
    body = message(topics=[Message.row("topics")(partitions=[], name="a")])

    assert changed(body, (1, 1), str.upper).topics[0].name == "A"
    assert changed((1, [2]), (1,), sum) == (1, 2)
