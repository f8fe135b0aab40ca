"""Fetch sessions: their life, their epochs, errors inside them, the order of partitions, requests that overlap."""

from __future__ import annotations

from typing import Any

from tests.conformance.asking import TIME_MS, Row, create, fetch, in_session, produce
from tests.conformance.steps import Batch, Script, Step, call, take

NEW = (0, 0)  # session id and epoch of a request that begins a session
NONE = (0, -1)  # of one that wants none
WAITS: dict[str, Any] = {"kind": "park", "connection": "other", "max_wait_ms": 8000}


def begin(name: str, *rows: Row, **options: Any) -> Step:
    return fetch(*rows, session=NEW, name=name, **options)


def go_on(begun_by: str, epoch: int, *rows: Row, **options: Any) -> Step:
    """Fetch in the session that the step of that name began."""
    return fetch(*rows, session=in_session(begun_by, epoch), **options)


def write(partition: int, *values: bytes, topic: str = "@a") -> Step:
    return produce(topic, Batch(tuple((TIME_MS, None, value) for value in values)), partition)


def life_of_a_session() -> Script:
    return [
        create("@a", 4),
        create("@b", 2),
        write(0, b"a0"),
        begin("one", ("@a", 0, 0), ("@a", 1, 0), ("@b", 0, 0)),
        go_on("one", 1),  # the data again, for the offset is the old one
        go_on("one", 2, ("@a", 0, 1)),
        go_on("one", 3),
        write(1, b"a1", b"a1"),
        write(0, b"b0", topic="@b"),
        go_on("one", 4),
        go_on("one", 5, ("@b", 1, 0), ("@a", 1, 2), ("@b", 0, 1)),
        write(1, b"b1", topic="@b"),
        write(0, b"a0 again"),
        go_on("one", 6),  # in another order: what was answered last comes last
        go_on("one", 7, ("@a", 0, 2), forget=[("@b", [1]), ("@a", [3])]),
        write(1, b"unseen", topic="@b"),
        go_on("one", 8),
        go_on("one", 9, ("@b", 1, 1)),  # comes back as a new one
        go_on("one", 10, ("@a", 1, 0), forget=[("@a", [1])]),  # named and forgotten is forgotten
        go_on("one", 11),
        go_on("one", 12, forget=[("@a", [0]), ("@b", [0, 1])]),
        go_on("one", 13),
    ]


def epochs_and_ids_of_sessions() -> Script:
    return [
        create("@a", 2),
        *(fetch(("@a", 0, 0), session=session) for session in ((12345, 1), (0, 5), (0, -2))),
        begin("one", ("@a", 0, 0), ("@a", 1, 0)),
        go_on("one", 2),
        go_on("one", 7, ("@a", 0, 99), forget=[("@a", [1])]),  # changes nothing
        *(go_on("one", epoch) for epoch in (1, 1, -3)),
        go_on("one", 2, version=7),
        go_on("one", 0, ("@a", 1, 0), version=7, name="two"),  # begins anew in its place
        go_on("one", 3),
        go_on("two", 1),
        go_on("two", -1, ("@a", 0, 0)),
        go_on("two", 2),
        go_on("two", -1, ("@a", 0, 0)),
        go_on("two", 0, ("@a", 0, 0)),
        begin("nothing"),
        go_on("nothing", 1),
        go_on("nothing", 2),
        begin("nothing yet"),
        go_on("nothing yet", 1, ("@a", 0, 0)),
        go_on("nothing yet", 2),
    ]


def errors_in_a_session() -> Script:
    return [
        create("@a", 2),
        write(0, b"a0"),
        begin("one", ("@late", 0, 0), ("@a", 0, 7), ("@a", 1, 0), ("@a", 9, 0)),
        go_on("one", 1),
        go_on("one", 2, ("@a", 0, 1)),
        create("@late"),
        go_on("one", 3),
        go_on("one", 4),
        go_on("one", 5, ("@a", 1, 5), forget=[("@a", [9])]),
        go_on("one", 6, ("@a", 1, 0)),  # mended: its high watermark is answered
        go_on("one", 7),
        call("DeleteTopics", 1, topic_names=["@late"], timeout_ms=20_000),
        go_on("one", 8),
        go_on("one", 9, forget=[("@late", [0])]),
        go_on("one", 10),
        begin("errors", ("@late", 0, 0), max_wait_ms=8000),  # answered at once
        go_on("errors", 1, max_wait_ms=8000),
    ]


def order_and_limits_of_a_session() -> Script:
    twice = [("@a", 1, 1), ("@a", 2, 1), ("@a", 1, 0)]
    return [
        create("@a", 4),
        *(write(partition, b"x" * 300) for partition in range(4)),
        begin("one", *(("@a", partition, 0) for partition in (2, 0, 3, 1)), max_bytes=100),
        *(go_on("one", epoch, max_bytes=100) for epoch in range(1, 6)),
        *(go_on("one", epoch, max_bytes=800) for epoch in (6, 7)),
        go_on("one", 8, *(("@a", partition, 0, 50) for partition in range(4))),
        go_on("one", 9, ("@a", 0, 1), isolation_level=1),
        go_on("one", 10, *twice, ("@a", 3, 1)),
        fetch(*twice, session=NONE, max_bytes=100),
        fetch(("@c", 1, 1), ("@a", 2, 1), ("@c", 1, 0), session=NONE, max_bytes=100),
        begin("twice", *twice, max_bytes=100),
        go_on("twice", 1),
    ]


def sessions_of_requests_that_overlap() -> Script:
    return [
        create("@a", 2),
        begin("one", ("@a", 0, 0), ("@a", 1, 0)),
        go_on("one", 1, **WAITS),
        go_on("one", 1),
        write(0, b"wakes"),
        take("other"),
        go_on("one", 2, ("@a", 0, 1), **WAITS),
        go_on("one", 3),  # overtakes
        write(1, b"wakes"),
        take("other"),
        go_on("one", 4, ("@a", 1, 0)),
        go_on("one", 5, ("@a", 1, 1), **WAITS),
        go_on("one", -1),  # ends it meanwhile
        write(1, b"wakes"),
        take("other"),
        go_on("one", 6),
        begin("late", ("@a", 0, 1), ("@a", 1, 2), **WAITS),
        write(0, b"wakes"),
        take("other"),
        go_on("late", 1),
    ]
