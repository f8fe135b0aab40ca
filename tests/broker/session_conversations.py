"""Conversations of fetch sessions, held with Apache Kafka 2.0.1 to record its answers, and with this broker.

A conversation is a generator: it yields what is asked and is sent the answer, so that it needs no socket and no
clock. To record anew:  python -m tests.broker.session_conversations FOLDER_OF_KAFKA_JARS
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.apache_kafka import ApacheKafka
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.integration.wire import RawConnection

RECORDED = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-fetch-sessions.json.gz"
RECORD_TIMESTAMP_MS = 1_500_000_000_000
PARKING_SECONDS = 0.5
MAX_WAIT_MS = 8000
AT_ONCE_SECONDS = 5.0  # a topic takes its time
CACHE_SLOTS = 3

NEW = (0, 0)  # session id and epoch of a request that begins a session
NONE = (0, -1)  # of one that wants none
Row = tuple[Any, ...]  # topic, partition, offset, and max_bytes if it matters
Conversation = Generator["Step", Any, None]


class Step(NamedTuple):
    """A request on one of several connections. `kind` is "call", or "send" and later "receive" for one that waits."""

    kind: str
    label: str
    key: ApiKey = ApiKey.FETCH
    version: int = 8
    body: Any = None
    connection: str = "main"

    @property
    def frame(self) -> bytes:
        return encode_request(self.key, self.version, 1, "sessions", self.body)

    def answer_in(self, frame: bytes) -> Any:
        """The response's body; only Fetch may fail in a conversation."""
        body = decode_response(self.key, self.version, frame)[1]
        if self.key == ApiKey.PRODUCE:
            assert body.topics[0].partitions[0].error_code == 0, body
        elif self.key != ApiKey.FETCH:
            assert body.topics[0].error_code == 0, body
        return body


def create(topic: str, partitions: int) -> Step:
    configs = [("retention.ms", "-1")]
    request = API_TABLE[ApiKey.CREATE_TOPICS].request
    body = request(topics=[(topic, partitions, 1, [], configs)], timeout_ms=5000)
    return Step("call", f"create {topic}", ApiKey.CREATE_TOPICS, 2, body)


def delete(topic: str) -> Step:
    body = API_TABLE[ApiKey.DELETE_TOPICS].request(topic_names=[topic], timeout_ms=5000)
    return Step("call", f"delete {topic}", ApiKey.DELETE_TOPICS, 1, body)


def produce(topic: str, partition: int, *values: bytes) -> Step:
    batch = build_batch([Record(n, RECORD_TIMESTAMP_MS, None, value, ()) for n, value in enumerate(values)])
    body = API_TABLE[ApiKey.PRODUCE].request(acks=-1, timeout_ms=5000, topics=[(topic, [(partition, batch)])])
    return Step("call", f"produce to {topic}-{partition}", ApiKey.PRODUCE, 5, body)


def fetch(
    label: str,
    session: tuple[int, int],
    *rows: Row,
    forget: tuple[tuple[str, int], ...] = (),
    kind: str = "call",
    connection: str = "main",
    version: int = 8,
    **options: int,
) -> Step:
    """Fetch in `session` (id, epoch); rows of one topic that follow each other are sent as one topic."""
    topics = [
        (topic, [(row[1], -1, row[2], -1, -1, row[3] if len(row) > 3 else 1 << 20) for row in group])
        for topic, group in groupby(rows, key=lambda row: row[0])
    ]
    forgotten = [(topic, [row[1] for row in group]) for topic, group in groupby(forget, key=lambda row: row[0])]
    session_id, epoch = session
    given = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, **options}
    body = API_TABLE[ApiKey.FETCH].request(
        session_id=session_id, session_epoch=epoch, topics=topics, forgotten_topics=forgotten, **given
    )
    return Step(kind, label, ApiKey.FETCH, version, body, connection)


def life_of_a_session() -> Conversation:
    yield create("a", 4)
    yield create("b", 2)
    yield produce("a", 0, b"a0")
    begun = yield fetch("begins with data", NEW, ("a", 0, 0), ("a", 1, 0), ("b", 0, 0))
    one = begun.session_id
    yield fetch("nothing new but the data again, for the offset is the old one", (one, 1))
    yield fetch("moves on: nothing has changed", (one, 2), ("a", 0, 1))
    yield fetch("still nothing", (one, 3))
    yield produce("a", 1, b"a1", b"a1")
    yield produce("b", 0, b"b0")
    yield fetch("data in two partitions", (one, 4))
    yield fetch("adds a partition and moves on in two", (one, 5), ("b", 1, 0), ("a", 1, 2), ("b", 0, 1))
    yield produce("b", 1, b"b1")
    yield produce("a", 0, b"a0 again")
    yield fetch("order after answers", (one, 6))
    yield fetch("forgets a partition", (one, 7), ("a", 0, 2), forget=(("b", 1), ("a", 3)))
    yield produce("b", 1, b"unseen")
    yield fetch("the forgotten one is silent", (one, 8))
    yield fetch("comes back as a new one", (one, 9), ("b", 1, 1))
    yield fetch("forgets and names the same", (one, 10), ("a", 1, 0), forget=(("a", 1),))
    yield fetch("it is forgotten", (one, 11))
    yield fetch("forgets all", (one, 12), forget=(("a", 0), ("b", 0), ("b", 1)))
    yield fetch("is gone", (one, 13))


def epochs_and_ids() -> Conversation:
    yield create("a", 2)
    yield fetch("unknown id", (12345, 1), ("a", 0, 0))
    yield fetch("an epoch without an id", (0, 5), ("a", 0, 0))
    yield fetch("an epoch below -1", (0, -2), ("a", 0, 0))
    begun = yield fetch("begins", NEW, ("a", 0, 0), ("a", 1, 0))
    one = begun.session_id
    yield fetch("too far", (one, 2))
    yield fetch("too far changes nothing", (one, 7), ("a", 0, 99), forget=(("a", 1),))
    yield fetch("its epoch", (one, 1))
    yield fetch("the same again", (one, 1))
    yield fetch("a negative epoch", (one, -3))
    yield fetch("goes on", (one, 2), version=7)
    begun = yield fetch("begins anew in its place", (one, 0), ("a", 1, 0), version=7)
    two = begun.session_id
    yield fetch("the old one is gone", (one, 3))
    yield fetch("the new one is there", (two, 1))
    yield fetch("an end with partitions", (two, -1), ("a", 0, 0))
    yield fetch("is ended", (two, 2))
    yield fetch("an unknown one ended", (two, -1), ("a", 0, 0))
    yield fetch("an unknown one begun anew", (two, 0), ("a", 0, 0))
    begun = yield fetch("begins with nothing", NEW)
    three = begun.session_id
    yield fetch("nothing goes on", (three, 1))
    yield fetch("nothing is gone", (three, 2))
    begun = yield fetch("begins with nothing again", NEW)
    yield fetch("something comes to nothing", (begun.session_id, 1), ("a", 0, 0))
    yield fetch("and stays", (begun.session_id, 2))


def errors_in_a_session() -> Conversation:
    yield create("a", 2)
    yield produce("a", 0, b"a0")
    begun = yield fetch("begins with errors", NEW, ("late", 0, 0), ("a", 0, 7), ("a", 1, 0), ("a", 9, 0))
    one = begun.session_id
    yield fetch("errors again", (one, 1))
    yield fetch("one is mended", (one, 2), ("a", 0, 1))
    yield create("late", 1)
    yield fetch("a topic appears", (one, 3))
    yield fetch("only the unknown partition", (one, 4))
    yield fetch("out of range again", (one, 5), ("a", 1, 5), forget=(("a", 9),))
    yield fetch("mended again: the high watermark is told", (one, 6), ("a", 1, 0))
    yield fetch("quiet", (one, 7))
    yield delete("late")
    yield fetch("a topic disappears", (one, 8))
    yield fetch("it stays away", (one, 9), forget=(("late", 0),))
    yield fetch("quiet again", (one, 10))
    begun = yield fetch("begins with only errors", NEW, ("late", 0, 0), max_wait_ms=MAX_WAIT_MS)
    yield fetch("only errors", (begun.session_id, 1), max_wait_ms=MAX_WAIT_MS)


def order_and_limits() -> Conversation:
    yield create("a", 4)
    for partition in range(4):
        yield produce("a", partition, b"x" * 300)
    begun = yield fetch("begins under a limit", NEW, *(("a", n, 0) for n in (2, 0, 3, 1)), max_bytes=100)
    one = begun.session_id
    for epoch in range(1, 6):
        yield fetch(f"one after the other {epoch}", (one, epoch), max_bytes=100)
    yield fetch("two fit", (one, 6), max_bytes=800)
    yield fetch("two others", (one, 7), max_bytes=800)
    yield fetch("smaller share", (one, 8), ("a", 0, 0, 50), ("a", 1, 0, 50), ("a", 2, 0, 50), ("a", 3, 0, 50))
    yield fetch("committed only", (one, 9), ("a", 0, 1), isolation_level=1)
    yield fetch("twice in one request", (one, 10), ("a", 1, 1), ("a", 2, 1), ("a", 1, 0), ("a", 3, 1))
    yield fetch("twice without a session", NONE, ("a", 1, 1), ("a", 2, 1), ("a", 1, 0), max_bytes=100)
    yield fetch("twice unknown", NONE, ("c", 1, 1), ("a", 2, 1), ("c", 1, 0), max_bytes=100)
    begun = yield fetch("twice beginning one", NEW, ("a", 1, 1), ("a", 2, 1), ("a", 1, 0), max_bytes=100)
    yield fetch("twice begun", (begun.session_id, 1))


def requests_that_overlap() -> Conversation:
    yield create("a", 2)
    begun = yield fetch("begins", NEW, ("a", 0, 0), ("a", 1, 0))
    one = begun.session_id
    waits: dict[str, Any] = {"kind": "send", "connection": "other", "max_wait_ms": MAX_WAIT_MS}
    yield fetch("waits", (one, 1), **waits)
    yield fetch("sent again", (one, 1))
    yield produce("a", 0, b"wakes")
    yield Step("receive", "woken with the data", connection="other")
    yield fetch("waits again", (one, 2), ("a", 0, 1), **waits)
    yield fetch("overtakes", (one, 3))
    yield produce("a", 1, b"wakes")
    yield Step("receive", "overtaken", connection="other")
    yield fetch("the overtaker goes on", (one, 4), ("a", 1, 0))
    yield fetch("waits a third time", (one, 5), ("a", 1, 1), **waits)
    yield fetch("ends it meanwhile", (one, -1))
    yield produce("a", 1, b"wakes")
    yield Step("receive", "woken without a session", connection="other")
    yield fetch("there is no session", (one, 6))
    yield fetch("a full request waits", NEW, ("a", 0, 1), ("a", 1, 2), **waits)
    yield produce("a", 0, b"wakes")
    begun = yield Step("receive", "a full request is woken", connection="other")
    yield fetch("its session goes on", (begun.session_id, 1))


def room_in_the_cache() -> Conversation:
    yield create("a", 4)
    rows = [("a", partition, 0) for partition in range(4)]
    large = yield fetch("a large one", NEW, *rows)
    small = yield fetch("a small one", NEW, *rows[:1])
    middle = yield fetch("a middle one", NEW, *rows[:2])
    yield fetch("no room for another consumer", NEW, *rows)
    yield fetch("a follower takes the place of the small one", NEW, *rows[:1], replica_id=5)
    yield fetch("the small one is gone", (small.session_id, 1))
    yield fetch("the middle one becomes the largest", (middle.session_id, 1), rows[2], rows[3], ("b", 0, 0))
    yield fetch("a second follower takes the place of the large one", NEW, *rows[:3], replica_id=5)
    yield fetch("the large one is gone", (large.session_id, 1))
    yield fetch("the middle one is there", (middle.session_id, 2))
    yield fetch("a third follower takes its place", NEW, *rows[:2], replica_id=6)
    yield fetch("the middle one is gone", (middle.session_id, 3))
    yield fetch("no room for a fourth", NEW, *rows, replica_id=7)


CONVERSATIONS: dict[str, Callable[[], Conversation]] = {
    each.__name__: each
    for each in (
        life_of_a_session,
        epochs_and_ids,
        errors_in_a_session,
        order_and_limits,
        requests_that_overlap,
        room_in_the_cache,
    )
}


def settings_of(name: str) -> dict[str, int]:
    return {"max.incremental.fetch.session.cache.slots": CACHE_SLOTS} if name == "room_in_the_cache" else {}


class Transcript:
    """What was answered, in a form that compares: session ids by the order in which they appear, records as hex."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, Any]] = []
        self._session_ids = {0: 0}

    def add(self, step: Step, body: Any) -> None:
        if step.key != ApiKey.FETCH or step.kind == "send":
            return
        known = self._session_ids.setdefault(body.session_id, len(self._session_ids))
        self.answers.append((step.label, plain(body._replace(session_id=known))))


def plain(value: Any) -> Any:
    """Values as JSON has them."""
    if isinstance(value, memoryview):
        return value.hex()
    if hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def record(jars: Path) -> None:
    """Hold every conversation with an Apache Kafka of its own and keep what it answered."""
    recorded = {}
    for name, conversation in CONVERSATIONS.items():
        with (
            tempfile.TemporaryDirectory() as directory,
            ApacheKafka(jars, Path(directory), settings=settings_of(name), heap="512m") as kafka,
        ):
            recorded[name] = hold_over_sockets(conversation(), kafka.host, kafka.port)
        print(f"{name}: {len(recorded[name])} answers")
    # No time in the file: the same answers are the same bytes.
    RECORDED.write_bytes(gzip.compress(json.dumps(recorded, separators=(",", ":")).encode(), mtime=0))


def hold_over_sockets(conversation: Conversation, host: str, port: int) -> list[tuple[str, Any]]:
    transcript = Transcript()
    sent: dict[str, Step] = {}
    with RawConnection(host, port) as main, RawConnection(host, port) as other:
        connections = {"main": main, "other": other}
        body = None
        try:
            while True:
                step = conversation.send(body)
                connection = connections[step.connection]
                if step.kind == "receive":
                    step = sent.pop(step.connection)._replace(kind="call", label=step.label)
                else:
                    connection.send(step.frame)
                if step.kind == "send":
                    sent[step.connection] = step
                    time.sleep(PARKING_SECONDS)
                    body = None
                    continue
                asked = time.monotonic()
                frame = connection.receive_frame()
                assert frame is not None, step.label
                assert time.monotonic() - asked < AT_ONCE_SECONDS, f"{step.label}: it waited"
                body = step.answer_in(frame)
                transcript.add(step, body)
        except StopIteration:
            return transcript.answers


if __name__ == "__main__":
    record(Path(sys.argv[1]))
