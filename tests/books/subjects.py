"""The brokers that can be asked what a book asks, by name; and a conversation with one of them over the wire.

`memory` is a broker in the test's own process, `process` is `minibroker serve`, `compiled` the same from the folder
build/installed (`make wheel`), and `kafka-...` that release of Apache Kafka.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path
from typing import Any, NamedTuple

import trio

from benchmarks.apache_kafka import ApacheKafka, kafka_jars
from benchmarks.later_kafka import LaterKafka
from benchmarks.processes import ROOT
from minibroker.conformance.conversation import CLOSED, NO_ANSWER, SILENT, WAITS, SocketPeer, first_error
from minibroker.conformance.requests import frame
from minibroker.conformance.steps import KEYS
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import UnknownTopicById
from minibroker.protocol.topic_ids import BY_ID, name_topics
from tests.books import Book, Script
from tests.books.conversations import FEW, Conversation, is_timed
from tests.books.language import OF_COORDINATORS, UNFINISHED, line_of
from tests.broker.conftest import NO_SUCH_ID, NOW_MS
from tests.conformance.pair import KAFKA_SETTINGS
from tests.integration.brokers import Minibroker
from tests.requests import by_name, frame_by_ids

RELEASES = {"kafka-2.0.1": "2.0", "kafka-3.9.1": "3.9", "kafka-4.4.0": "4.4"}  # with the marks of their answers
SUBJECTS = ("memory", "process", "compiled", *RELEASES)
COMPILED = ROOT / "build" / "installed"
DAY_MS = 24 * 3600 * 1000
BY_VERSION = re.compile(r"v(\d+)(?:-(\d+))?:")
VERSION_OF_VERB = re.compile(r"\bversion=(\d+)")
API_OF_VERB = {"produce": "Produce", "offsets": "ListOffsets"}
OLD_FORMATS = re.compile("message.format.version|message_set")
PORT = 9092  # that answers show
POLL_SECONDS = 0.02
PATIENCE_SECONDS = 15.0
SETTLE_SECONDS = 1.0
# Records of 2017 stay, and a broker on this machine alone waits for more members like any other.
QUIET: dict[str, Any] = {
    "log.retention.check.interval.ms": 3_600_000,
    "group.initial.rebalance.delay.ms": 3000,
    "group.consumer.heartbeat.interval.ms": 5000,
}
# A marker of today follows a record of 2017 in its segment; configs of topics show it.
NEVER_ROLLED = {"log.roll.hours": 1_000_000}
# Requests and verbs that change what all clients see: who asks them has a broker of its own, or is cleaned up behind.
OF_ALL = {"UpdateFeatures", "CreateAcls", "DeleteAcls"}
CLEANED = {"AlterClientQuotas", "AlterUserScramCredentials"}
# What later Kafka starts with beside SETTINGS: a broker is alone, and topics are made when they are asked for.
LATER_SETTINGS = KAFKA_SETTINGS | {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
}
# Not compared with later Kafka: the words of messages, which change from release to release, and the last stable offset
# and aborted transactions where 2.0.1 has none (docs/differences.md, "versions of an API that 2.0.1 lacks").
TEXT = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
SHAPE = re.compile(r"[\s\[\](),:=]+")  # depends on how long an answer is
ROW = re.compile(r"[()]")
READS = re.compile("Describe|List|OffsetFetch|offsets|Metadata.*allow_auto_topic_creation=False")  # may be asked twice
OF_RELEASES = re.compile(
    rf"(?:, )?\b(?:(?:error_message|documentation)={TEXT}|last_stable_offset=\d+|aborted_transactions=\[\])"
)
NAMES = ("topic", "name", "group_id", "resource_name", "key", "transactional_id")
PLACES = ("partition", "partition_index")
Versions = Mapping[int, tuple[int, int]]  # the first and last of each API
VERSIONS: dict[str, Versions] = {}  # of the subjects that have been started


class Subject:
    """A broker that runs, and is asked over sockets."""

    def __init__(self, name: str, broker: Any, directory: Path, *, is_fresh: bool) -> None:
        self.name = name
        self.directory = directory
        self.broker = broker
        self.peer = SocketPeer(broker.host, broker.port)
        self.versions = {key: (first, last) for key, first, last in self.ask(ApiKey.API_VERSIONS, 0).api_keys}
        self.is_later = name in RELEASES and ApiKey.DESCRIBE_TRANSACTIONS in self.versions
        self.prefixes = (f"r{number:06d}-" for number in count())
        if not is_fresh:
            self.await_coordinators()

    def await_coordinators(self) -> None:
        """Kafka makes their topics some time after they are first asked for, and then loads them."""
        last = self.versions[ApiKey.FIND_COORDINATOR][1]
        asked: list[dict[str, Any]] = [{"key": "group"}, *([{"key": "transaction", "key_type": 1}] if last else [])]
        version = min(last, 1)
        self.until(lambda: not any(self.ask(ApiKey.FIND_COORDINATOR, version, **each).error_code for each in asked))
        if self.versions[ApiKey.OFFSET_FETCH][1] >= 2:
            self.until(lambda: not self.ask(ApiKey.OFFSET_FETCH, 2, group_id="group", topics=[]).error_code)

    def ask(self, key: ApiKey, version: int, /, **body: Any) -> Any:
        """The answer to a request that prepares a conversation, or looks at one."""
        self.peer.send("admin", frame(key, version, client_id="admin", **body))
        answer = self.peer.receive("admin")
        assert isinstance(answer, bytes), f"{self.name}: {key.name} v{version} is {answer}"
        return decode_response(key, version, answer)[1]

    def await_leaders(self, topic: str, ask_version: int) -> None:
        """Wait until the broker knows a new topic, and leads those of its partitions that it should."""
        body: dict[str, Any] = {"topics": by_name(topic)} | (
            {"allow_auto_topic_creation": False} if ask_version >= 4 else {}
        )
        self.until(lambda: not self.ask(ApiKey.METADATA, ask_version, **body).topics[0].error_code)
        rows = self.ask(ApiKey.METADATA, ask_version, **body).topics[0].partitions
        led = [(row.partition, -1, -1, 1) for row in rows if row.leader_id == 0]
        asked = {"replica_id": -1, "topics": [(topic, led)]}
        self.until(lambda: first_error(self.ask(ApiKey.LIST_OFFSETS, 1, **asked)) not in UNFINISHED["ListOffsets"])

    def await_end(self, transactional_id: str) -> None:
        """Wait until the markers of a transaction are written, which later Kafka can be asked."""
        if self.is_later:
            states = ("PrepareCommit", "PrepareAbort")
            asked = {"transactional_ids": [transactional_id]}
            self.until(lambda: self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, **asked).transactions[0].state not in states)

    def until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} is not ready")
            time.sleep(POLL_SECONDS)

    def forget_limits(self) -> None:
        """Remove all quotas, and the credentials of all users."""
        entries = self.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, components=[], strict=False).entries or []
        removed = [(row.entity, [(value.key, 0.0, True) for value in row.values]) for row in entries]
        self.ask(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=removed, validate_only=False)
        users = self.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None).results
        deletions = [(row.user, each.mechanism) for row in users for each in row.credential_infos]
        self.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletions, upsertions=[])


def reason_against(name: str, book: Book, script: Script) -> str:
    """Why a conversation cannot be held over the wire with a subject of this name; nothing if it can."""
    for step in (*book.steps_before(script), *script.steps):
        word = word_of(step)
        if word not in KEYS and not hasattr(OverTheWire, word):
            return f"`{word}` needs a broker in memory"
        if word == "limit":
            return "its throttle times are those of a clock that jumps"
    settings = book.settings | script.settings
    heads = [*book.head.splitlines(), *script.heads]
    if reason := next((line for line in heads if line.startswith("in memory ")), ""):
        return reason.removeprefix("in memory ")
    for line in script.heads:
        releases, _, reason = line.removeprefix("not ").partition(": ")
        if line.startswith("not ") and RELEASES.get(name) in releases.split():
            return reason
    if "act-as" in settings and name in RELEASES:
        return "it acts as another release"
    if "kafka-2.0.1" != name in RELEASES and OLD_FORMATS.search(script.text + " ".join(settings)):
        return "later Kafka has no old message formats"
    return (
        "its listeners are not on the wire" if any("listeners" in each or ".host." in each for each in settings) else ""
    )


def needs_own_broker(book: Book, script: Script) -> bool:
    """Whether a conversation would see what others have done, or they what it does."""
    steps = [*book.steps_before(script), *script.steps]
    words = {word_of(step) for step in steps}
    alters_broker = any("AlterConfigs" in step and "[(4, " in step for step in steps)
    asks_for_all = any("topics=None" in step and "OffsetFetch" not in step for step in steps)
    return is_fresh(script) or "alone" in script.heads or asks_for_all or alters_broker or bool(words & OF_ALL)


def is_fresh(script: Script) -> bool:
    """Whether a conversation needs a broker with its defaults that nobody has asked for a coordinator."""
    return "fresh" in script.heads


def word_of(step: str) -> str:
    return line_of(step).word


def versions_held(versions: Versions, book: Book, script: Script) -> list[int]:
    """The versions of a conversation in which a broker with these has all APIs; none if it lacks one."""
    fixed, varied = [], set()
    for step in (*book.steps_before(script), *script.steps):
        line = line_of(step)
        word = line.word
        named = VERSION_OF_VERB.search(line.rest)
        if word in KEYS:
            text = line.version
        elif named is not None:
            word, text = API_OF_VERB.get(word, "Fetch"), named[1]
        elif word in ("produce", "write", "fill", "write_at"):
            word, text = "Produce", "7"
        elif word == "follow":
            word, text = "Fetch", "8"
        elif word in ("fetch", "offsets"):
            word, text = API_OF_VERB.get(word, "Fetch"), "*"
        else:
            continue
        if text == "*":
            varied.add(word)
        else:
            fixed.append((word, int(text)))

    def has(word: str, version: int) -> bool:
        first, last = versions.get(KEYS[word], (0, -1))
        return first <= version <= last

    if not all(has(*each) for each in fixed):
        return []
    return [each for each in script.versions or (0,) if all(has(word, each) for word in varied)]


@contextmanager
def started(name: str, directory: Path, settings: Mapping[str, object], *, is_fresh: bool = False) -> Iterator[Subject]:
    """Raises KafkaUnavailable."""
    given: dict[str, Any] = QUIET | FEW | ({} if is_fresh else NEVER_ROLLED) | dict(settings)
    if name in ("process", "compiled"):
        own = os.environ.get("PYTHONPATH")
        if name == "compiled":
            os.environ["PYTHONPATH"] = str(COMPILED)
        options = ("--act-as", str(given.pop("act-as"))) if "act-as" in given else ()
        broker: Any = Minibroker(directory, "--set", "broker.id=0", *options, settings=given)
        if own is not None:
            os.environ["PYTHONPATH"] = own
        elif name == "compiled":
            del os.environ["PYTHONPATH"]
        start: Callable[[], Any] = broker.wait_until_ready
    elif name == "kafka-2.0.1":
        broker = ApacheKafka(kafka_jars(), directory, settings=given | KAFKA_SETTINGS, heap="512m")
        start = broker.start
    else:
        texts = {key: str(value) for key, value in (given | LATER_SETTINGS).items()}
        broker = LaterKafka(directory, texts, release=name.removeprefix("kafka-"))
        start = broker.start
    try:
        start()
        subject = Subject(name, broker, directory / "data", is_fresh=is_fresh)
        yield subject
        subject.peer.close()
    finally:
        broker.kill()


class OverTheWire(Conversation):
    """A conversation with a subject, whose names begin with a prefix that answers do not show."""

    def __init__(self, subject: Subject, book: Book, script: Script, version: int) -> None:
        super().__init__(book, script, version, next(subject.prefixes))
        self._subject = subject
        self._directory = str(subject.directory)
        self._peer = subject.peer
        self._now_ms = time.time_ns() // 1_000_000
        self._producers: dict[int, int] = {}
        self._parked: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {}
        self._named: set[str] = set()  # topics whose ids requests have had
        self._starting = ""  # the name of a request that may wait, while a verb makes it
        self.expected: list[str] = []  # of the step that is taken

    def close(self) -> None:
        for name in self._parked:
            self._peer.drop(name)

    async def _called(self, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        if self._starting:
            return await self._start(self._starting, key, version, body)
        return self._asked_over(self._source or "main", key, version, body)

    async def _asked(self, key: ApiKey, version: int, **body: Any) -> Any:
        return self._asked_over("admin", key, version, body)

    def _asked_over(self, connection: str, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        client_id = "admin" if connection == "admin" else self._client_id
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self._peer.send(connection, self._frame(key, version, client_id, body))
            if key is ApiKey.PRODUCE and body.get("acks") == 0:
                return "no answer" if self._peer.sync(connection) else CLOSED
            answer = self._answer(self._peer.receive(connection), key, version, body)
            if time.monotonic() > deadline or not self._is_early(answer):
                break
            time.sleep(POLL_SECONDS)
        if key is ApiKey.END_TXN and not isinstance(answer, str) and not answer.error_code:
            self._subject.await_end(body["transactional_id"])
        return answer

    def _is_early(self, answer: Any) -> bool:
        """Whether a coordinator has yet to load, or to end a transaction, which the book does not say."""
        error = 0 if isinstance(answer, str) else first_error(answer)
        return error in OF_COORDINATORS and not any(ErrorCode(error).name in line for line in self.expected)

    def _answer(self, data: bytes | str, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        if isinstance(data, str):
            return "no answer" if data in (SILENT, NO_ANSWER) else data
        answer = decode_response(key, version, data)[1]
        ids = BY_ID.get(key)
        if ids is not None and version >= ids.first:
            name_topics(answer, ids.answered, self._topics_now())
        if getattr(answer, "producer_id", -1) >= 0 and not answer.error_code:
            self._producers.setdefault(answer.producer_id, len(self._producers))
        is_ordered = key is ApiKey.FETCH or self._subject.name not in RELEASES
        return arranged(answer, {} if is_ordered else places_in(body), self._is_foreign)

    def _frame(self, key: ApiKey, version: int, client_id: str, body: dict[str, Any]) -> bytes:
        return frame_by_ids(key, version, self._id_of, client_id, **body)

    def _id_of(self, topic: str | bytes) -> bytes:
        if isinstance(topic, bytes):
            return topic
        body = {"topics": by_name(topic), "allow_auto_topic_creation": False}
        row = self._subject.ask(ApiKey.METADATA, 12, **body).topics[0]
        if row.error_code:
            return NO_SUCH_ID
        self._named.add(topic)
        return bytes(row.topic_id)

    def _topics_now(self) -> dict[bytes, Any]:
        """The topics that requests have named, by the ids that they have now."""
        body = {"topics": by_name(*self._named), "allow_auto_topic_creation": False}
        rows = self._subject.ask(ApiKey.METADATA, 12, **body).topics if self._named else ()
        return {row.topic_id: row.name for row in rows if not row.error_code}

    def _is_foreign(self, row: Any) -> bool:
        """Whether a row of a list of everything is of another conversation."""
        name = next((getattr(row, each) for each in NAMES if hasattr(row, each)), "")
        return isinstance(name, str) and name[:1] == "r" and name[7:8] == "-" and not name.startswith(self._prefix)

    async def _start(self, name: str, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        self._peer.drop(name)
        self._peer.send(name, self._frame(key, version, self._client_id, body))
        self._parked[name] = key, version, body
        return await self.look(name)

    async def _start_verb(self, name: str, verb: Callable[[], Any]) -> Any:
        self._starting = name
        try:
            return await verb()
        finally:
            self._starting = ""

    # -- verbs ----------------------------------------------------------------------------------------------------

    async def look(self, name: str) -> Any:
        if name not in self._parked:
            return self._known.get(name, "nothing asked")
        seen = self._peer.seen(name)
        if seen == WAITS:
            return WAITS
        self._known[name] = answer = self._answer(seen, *self._parked.pop(name))
        return answer

    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def keep_id(self, topic: str, name: str) -> None:
        self._known[name] = self._id_of(topic)

    async def delete_topic(self, name: str) -> None:
        await super().delete_topic(name)
        body = {"topics": by_name(name), "allow_auto_topic_creation": False}
        if self._subject.is_later:
            self._subject.until(lambda: self._subject.ask(ApiKey.METADATA, 5, **body).topics[0].error_code)

    async def _created(self, topic: tuple[Any, ...]) -> None:
        await super()._created(topic)
        self._subject.await_leaders(topic[0], min(5, self._subject.versions[ApiKey.METADATA][1]))

    # -- answers --------------------------------------------------------------------------------------------------

    def _value(self, name: str, value: Any, default: Any) -> str | None:
        if name == "port" and value == self._subject.broker.port:
            value = PORT
        if name == "producer_id" and value in self._producers:
            value = self._producers[value]
        if isinstance(value, int) and not isinstance(value, bool) and abs(value - self._now_ms) < DAY_MS:
            value = NOW_MS
        if isinstance(value, str) and not isinstance(value, UnknownTopicById):
            value = value.replace(self._prefix, "")
        return super()._value(name, value, default)


def places_in(body: Any) -> dict[str, int]:
    """The order in which a request names things."""
    places: dict[str, int] = {}

    def find(value: Any) -> None:
        if isinstance(value, str):
            places.setdefault(value, len(places))
        elif isinstance(value, dict):
            find(list(value.values()))
        elif isinstance(value, list | tuple):
            for each in value:
                find(each)

    find(body)
    return places


def arranged(value: Any, places: Mapping[str, int], is_foreign: Callable[[Any], bool]) -> Any:
    """An answer in the order of its request, where Kafka has that of a hash map, and without others' topics."""
    if hasattr(value, "_make") and hasattr(value, "_fields"):
        return value._make(arranged(each, places, is_foreign) for each in value)
    if not isinstance(value, list):
        return value
    rows = [arranged(each, places, is_foreign) for each in value if not is_foreign(each)]
    if places and rows and hasattr(rows[0], "_fields"):
        rows.sort(key=lambda row: place_of(row, places))
    return rows


def place_of(row: Any, places: Mapping[str, int]) -> int:
    for each in NAMES:
        if hasattr(row, each):
            return places.get(getattr(row, each), len(places))
    return next((getattr(row, each) for each in PLACES if hasattr(row, each)), 0)


class Held(NamedTuple):
    """A conversation that was held with a subject: in these versions, and what is answered otherwise than it says."""

    book: Book
    script: Script
    versions: list[int]
    otherwise: list[dict[int, list[str]]]  # of each step, by version

    def shown(self, name: str) -> list[str]:
        """A text for each step that is answered otherwise."""
        return [
            "\n".join(
                [f"-- {self.book.path.stem}: {self.script.title}", f"> {self.script.steps[number]}"]
                + [f"< {line}" for line in expected_of(name, self.script, number, min(found))]
                + [f"{name}< {line}" for line in self._lines(found)]
            )
            for number, found in enumerate(self.otherwise)
            if found
        ]

    def marked(self, name: str, script: Script) -> Script:
        """The conversation as its book has it now, with what this release of Apache Kafka answers otherwise."""
        marks = [
            marks | ({RELEASES[name]: self._lines(found)} if found else {})
            for marks, found in zip(script.marks, self.otherwise, strict=True)
        ]
        return script._replace(marks=marks)

    def _lines(self, found: dict[int, list[str]]) -> list[str]:
        lines: list[str] = []
        for answer, group in groupby(self.versions, key=found.get):
            versions = list(group)
            if len(versions) == len(self.versions):
                return answer or ["nothing"]
            if answer is not None:
                title = f"v{versions[0]}-{versions[-1]}:" if versions[1:] else f"v{versions[0]}:"
                lines += [title, *(f"  {each}" for each in answer or ["nothing"])]
        return lines


async def held_over_the_wire(subject: Subject, book: Book, script: Script) -> Held:
    """Hold a conversation in each version that the subject has."""
    held = Held(book, script, versions_held(subject.versions, book, script), [{} for _ in script.steps])
    for version in held.versions:
        conversation = OverTheWire(subject, book, script, version)
        try:
            for step in book.steps_before(script):
                await conversation.step(step)
            for number, step in enumerate(script.steps):
                conversation.expected = expected = expected_of(subject.name, script, number, version)
                deadline = time.monotonic() + (SETTLE_SECONDS if READS.match(step) else 0)
                while True:  # Kafka does some things after it has answered
                    found = await outcome_over_the_wire(conversation, step)
                    is_equal = comparable(found, subject) == comparable(expected, subject)
                    if is_equal or time.monotonic() >= deadline or found in ([WAITS], ["no answer"]):
                        break
                    await trio.sleep(POLL_SECONDS)
                if not is_equal:
                    held.otherwise[number][version] = found
        except AssertionError as error:
            if not subject.is_later:
                held.otherwise[0][version] = [str(error)]
                continue
            # Small segments, or replicas on brokers that are not there: what is prepared for 2.0.1 is refused.
            print(f"-- {book.path.stem}: {script.title}\n{subject.name} cannot hold it: {error}", flush=True)
            return Held(book, script, [], [])
        finally:
            conversation.close()
    return held


async def outcome_over_the_wire(conversation: OverTheWire, step: str) -> list[str]:
    try:
        return await conversation.step(step)
    except (AttributeError, NameError, OSError) as error:  # it needs the answer to an earlier step, which was another
        return [str(error)]


def expected_of(name: str, script: Script, number: int, version: int) -> list[str]:
    """The answer that a subject is to give: the one marked with its release, else the one without a mark."""
    marked = of_version(script.marks[number].get(RELEASES.get(name, "")), version)
    return (of_version(script.answers[number], version) or []) if marked is None else marked


def of_version(lines: list[str] | None, version: int) -> list[str] | None:
    """The answer of one version, where a book has it by versions; None if it has none of this version."""
    if not (lines and BY_VERSION.fullmatch(lines[0])):
        return lines
    kept, is_kept = [], False
    for line in lines:
        if bounds := BY_VERSION.fullmatch(line):
            is_kept = int(bounds[1]) <= version <= int(bounds[2] or bounds[1])
        elif is_kept:
            kept.append(line[2:])
    return [] if kept == ["nothing"] else kept or None


def comparable(lines: list[str], subject: Subject) -> list[str]:
    """Without why a connection closes, which only a broker in memory says, and what changes from release to release."""
    shown = ["closed" if line.startswith("closed") else line for line in lines]
    if subject.name not in RELEASES:
        return shown
    text = OF_RELEASES.sub("", " ".join(shown)) if subject.is_later else " ".join(shown)
    rows = (sorted(set(SHAPE.split(row)) - {"", "ok"}) for row in ROW.split(text))  # in the order of a hash map
    return sorted(" ".join(row) for row in rows if row)


def groups_of(name: str, books: Iterable[Book], *, is_slow: bool) -> list[list[tuple[Book, Script]]]:
    """The conversations that can be held, those together that share a broker."""
    found: dict[object, list[tuple[Book, Script]]] = defaultdict(list)
    for book in books:
        for script in book.scripts.values():
            if not reason_against(name, book, script) and (is_slow or not is_timed(book, script)):
                settings = tuple(sorted((book.settings | script.settings).items()))
                found[script.title if needs_own_broker(book, script) else settings].append((book, script))
    return list(found.values())


def held_by(name: str, group: list[tuple[Book, Script]]) -> Iterator[Held]:
    """Hold conversations with a broker of this name; it is not started for APIs that it is known to lack."""
    book, first = group[0]
    if name in VERSIONS and not any(versions_held(VERSIONS[name], *each) for each in group):
        return
    settings, is_new = book.settings | first.settings, is_fresh(first)
    with tempfile.TemporaryDirectory() as folder, started(name, Path(folder), settings, is_fresh=is_new) as subject:
        VERSIONS[name] = subject.versions
        for book, script in group:
            held = trio.run(held_over_the_wire, subject, book, script)
            yield held
            if held.versions and any(word_of(step) in CLEANED for step in (*book.steps_before(script), *script.steps)):
                subject.forget_limits()
