"""The language of books: a line of text is a step, which any broker can be asked (`subjects.py`).

    > create "@t", 2, segment_bytes=100     make a topic; `@` is the prefix of the run's names
    > JoinGroup 3 member_id=""              a request: API, version, fields as they are written in Python
    > one: JoinGroup 3 member_id=""         `one` is its answer: later requests may have `one.member_id`
    > again EndTxn 1 is_commit=True         it is asked again while the coordinator loads or ends a transaction
    > from 127.0.9.2 Metadata 4             over a connection from that address
    > fetch ("@t", 0, 5), session_epoch=1   a Fetch of (topic, partition, offset)..., or of `At` where more is asked
    > start two: JoinGroup 3                a request that may wait, on a connection of its own
    > look "two"                            its answer, or that it waits; `take` waits for the answer, `drop` hangs up
    > settle 400                          fetch what is not there for so many ms: Kafka does some things after an answer
    > restart                               kill the broker, and start it again
    > for 0 1 2: Heartbeat $                the same for each of these in the place of $
    > restart  # why                        a comment

`defaults JoinGroup group_id="g"` above the first title has fields that requests of that API have if they name no other.
`raw=b"..."` sends these bytes as the body, `client_id=` is of the header.
"""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minibroker.conformance.asking import CODECS, TIME_MS, config_rows, records
from minibroker.conformance.requests import At, fetch_body
from minibroker.conformance.steps import (
    KEYS,
    Batch,
    FromNow,
    IdOf,
    Joined,
    ProducerOf,
    SessionOf,
    Step,
    Subscribed,
    Told,
    Wrapper,
    call,
    drop,
    look,
    restart,
    take,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID
from tests.books import Book, Script

LINE = re.compile(r"(again )?(?:from (\S+) )?(start )?(?:(\w+): )?(\w+)(?: (.*))?", re.DOTALL)
EACH = re.compile(r"for ([^:]*): (.*)", re.DOTALL)
COMMENT = re.compile(r"  # [^\n]*")
PLACE = "$"
FETCH_VERSION = 8
# Upon these errors a request is asked again: Kafka does some things after it has answered.
OF_COORDINATORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
UNFINISHED = {
    "ListOffsets": (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
    )
}


class Answer:
    """The answer to a step that is yet to be taken: its fields are put in when a request is sent."""

    def __init__(self, step: str) -> None:
        self._step = step

    def __getattr__(self, field: str) -> Any:
        if field == "session_id":
            return SessionOf(self._step)
        return ProducerOf(self._step) if field == "producer_id" else Told(self._step, field)


class Names(dict[str, Any]):
    """Names that expressions may have; any other is an answer."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        return Answer(name)


def batch(count: int = 3, size: int = 20, codec: str = "none", *, rows: Any = None, **options: Any) -> Batch:
    """A batch of records, or of `rows` of (time, key, value) and maybe headers; see `Batch`."""
    kept = {name: options.pop(name) for name in ("time_ms", "key") if name in options}
    given = tuple(map(tuple, rows)) if rows else rows_of(count, size, **kept)
    edits = tuple(options.pop("edits", ()))
    return Batch(given, codec=CODECS[codec], edits=edits, **options)


def rows_of(count: int, size: int, *, time_ms: Any = TIME_MS, key: bytes | None = b"key") -> Any:
    if isinstance(time_ms, FromNow):
        return tuple((FromNow(time_ms.delta_ms + number), key, size) for number in range(count))
    return records(count, size, time_ms=time_ms, key=key)


def wrapper(*offsets: int, outside: int, codec: str = "gzip", rows: Any = None, **options: Any) -> Wrapper:
    """A compressed message set with these offsets inside; see `Wrapper`."""
    for name in ("edits", "damage"):
        options[name] = tuple(options.get(name, ()))
    return Wrapper(tuple(rows or records(len(offsets))), offsets, outside, codec=CODECS[codec], **options)


def joined(*parts: Any, cut: int = 0) -> Joined:
    return Joined(parts, cut)


def member(answer: Any) -> dict[str, Any]:
    """The identity of who has joined, for its next requests."""
    return {"generation_id": answer.generation_id, "member_id": answer.member_id}


def consumer(answer: Any) -> dict[str, Any]:
    """The identity of a member of the consumer protocol, which owns what it was last assigned."""
    owned = {"topic_partitions": answer.assignment}
    return {"member_id": answer.member_id, "member_epoch": answer.member_epoch, **owned}


def subscribed(*topics: str) -> Subscribed:
    return Subscribed(topics)


KNOWN = {
    "At": At,
    "consumer": consumer,
    "member": member,
    "NO_ID": ZERO_UUID,
    "TIME_MS": TIME_MS,
    "inf": math.inf,
    "joined": joined,
    "nan": math.nan,
    "now": FromNow,
    "records": batch,
    "rows": rows_of,
    "subscribed": subscribed,
    "topic_id": IdOf,
    "wrapper": wrapper,
}


def steps_of(book: Book, script: Script) -> list[Step]:
    """The steps of a conversation, after those of the ones that it comes after."""
    lines = [*book.steps_before(script), *script.steps]
    return [step_of(line, book.defaults, Names(KNOWN)) for text in lines for line in each_of(text)]


def each_of(text: str) -> Iterator[str]:
    found = EACH.fullmatch(text)
    if found is None:
        yield text
    else:
        yield from (found[2].replace(PLACE, value) for value in found[1].split())


class Line(NamedTuple):
    """A step as it is written."""

    again: bool
    source: str
    start: bool
    name: str
    word: str
    rest: str

    @property
    def version(self) -> str:
        """The version of a request: a number, or `*`."""
        return self.rest.partition(" ")[0]

    def body(self, defaults: Mapping[str, str], known: dict[str, Any]) -> dict[str, Any]:
        """The fields of a request."""
        texts = defaults.get(self.word, ""), self.rest.partition(" ")[2]
        found: dict[str, Any] = {}
        for text in texts:
            found |= eval(f"dict({text})", {}, known)
        return found

    def arguments(self, known: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a verb."""
        found: tuple[tuple[Any, ...], dict[str, Any]]
        found = eval(f"(lambda *args, **options: (args, options))({self.rest})", {}, known)
        return found


def line_of(text: str) -> Line:
    found = LINE.fullmatch(COMMENT.sub("", text))
    assert found is not None, text
    again, source, start, name, word, rest = found.groups()
    return Line(bool(again), source or "", bool(start), name or "", word, rest or "")


def step_of(
    text: str, defaults: Mapping[str, str], known: dict[str, Any], verbs: Mapping[str, Any] | None = None
) -> Step:
    line = line_of(text)
    options: dict[str, Any] = {"name": line.name}
    if line.again:
        options["retry"] = tuple(map(int, UNFINISHED.get(line.word, OF_COORDINATORS)))
    if line.source or line.start:
        options |= {"connection": line.source or line.name, "kind": "park" if line.start else "call"}
    if line.word in KEYS:
        return call(line.word, int(line.version), **(options | line.body(defaults, known)))
    arguments, more = line.arguments(known)
    step: Step = (verbs or VERBS)[line.word](*arguments, **({} if line.word in OF_CONNECTIONS else options), **more)
    return step


def create(topic: str, partitions: int = 1, *, name: str = "", **configs: Any) -> Step:
    rows: list[Any] = [(topic, partitions, 1, [], config_rows(configs))]
    return call("CreateTopics", 2, name=name, topics=rows, timeout_ms=20_000)


def fetch(*rows: tuple[Any, ...], version: int = FETCH_VERSION, **options: Any) -> Step:
    return call("Fetch", version, **fetch_body(*rows, **options))


def settle(milliseconds: int, topic: str = "@t", **options: Any) -> Step:
    """Fetch what is not there, until Apache Kafka has done what it does after it has answered."""
    waits = {"version": 11, "max_wait_ms": milliseconds, "max_bytes": 1}
    return fetch(At(topic, 0, 0, max_bytes=1), **waits, **options)


OF_CONNECTIONS = ("look", "take", "drop", "restart")
VERBS: dict[str, Any] = {
    "create": create,
    "fetch": fetch,
    "look": look,
    "take": take,
    "drop": drop,
    "restart": restart,
    "settle": settle,
}
