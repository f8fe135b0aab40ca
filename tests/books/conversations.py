"""Conversations that are recorded with their answers: requests of users, and what any broker answers (`subjects.py`).

`tests/golden/conversations/*.txt` have them, each under a title that states a behaviour. `python -m tests.books memory
--record BOOK` asks the requests again and writes the answers down: read the diff of the file.

    == a fetch below the log's start is out of range     a conversation
    settings log.segment.bytes=100                       of its broker; above the first title: of all in the file
    versions 0-12                                        it is held in each; `*` in a request is the version
    changes log.roll.ms=5                                settings, or `configs` of topics, that change its answers
    after two members                                    the steps of another conversation of the file come first
    row leader epochs                                    the row of docs/differences.md that says why Kafka differs
    alone                                                over the wire it has a broker of its own, `fresh` one with
                                                         defaults that nobody has asked for a coordinator
    change in kafka 4.0 a segment has a mebibyte         or the change of a later release of Apache Kafka
    not 3.9 4.4: REASON                                  why it is not held with these releases of Apache Kafka
    beside 1 2:b                                         brokers of its cluster, by id and rack, that are not there
    in memory REASON                                     why it is not held over the wire; above: none in the file is
    > create "@t", 2                                     a verb: a method of `Conversation`; `@` is the run's prefix
    > one: JoinGroup 3 member_id=""                      a request: API, version, fields; `one` is its answer
    > Heartbeat 3 **member(one)                          fields are written as in Python, and may use earlier answers
    > start two: JoinGroup 3                             a request that may wait; `look two` shows its answer
    < member_id="..."                                    an answer, without the fields that are as their defaults
    2.0< member_id="..."                                 the answer of Apache Kafka 2.0.1, where it is another

`defaults JoinGroup group_id="g"` above the first title has fields that requests of that API have if they name no other.
An answer that differs by version is there once for each range of versions.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.config.profiles import profile_of
from minibroker.broker.principal import Principal
from minibroker.conformance.asking import config_rows
from minibroker.conformance.requests import At, fetch_body
from minibroker.conformance.steps import KEYS, resolved
from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import iter_all_records, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.consumer_protocol import write_assignment
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.primitives import ZERO_UUID, UnknownTopicById
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.protocol.rights import Operation, Pattern, Permission
from minibroker.storage.files import disk as system_disk
from tests.books import GOLDEN, Book, Script, as_recorded
from tests.books.cluster_verbs import ClusterVerbs, beside_others, racks_of
from tests.books.language import KNOWN, line_of
from tests.broker.asking import batch_of, on_disk
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.group_clients import subscription
from tests.broker.scripted_follower import lead_elsewhere, partition_of
from tests.protocol.batch_bytes import commit_marker, with_fields
from tests.requests import by_name, produce_body

if TYPE_CHECKING:  # a broker may lack the wing
    from minibroker.broker.wings.testing.faults.fault import Fault
    from tests.broker.faulty import Faulty

FOLDER = GOLDEN / "conversations"
OPERATIONS = {each.title: each for each in Operation}
ALWAYS_SHOWN = ("partition", "partition_index", "name")
FEW = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}  # to be quick
DAY_MS = 24 * 3600 * 1000
MOST_ROWS = 20  # of a list
LONG = 60  # bytes of a value
LONGEST = 1000  # characters of a text that is shown whole
WIDTH = 118
KAFKA_ID = re.compile(r"[\w-]{22}")
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_timed(book: Book, script: Script) -> bool:
    """Whether time is to jump, for waits and quotas. Else a session would end while a thread writes."""
    return any(step.startswith(("wait ", "limit ", "muted")) for step in (*book.steps_before(script), *script.steps))


class Conversation:
    """Requests to a broker, and the answers so far, by name. Public methods are the verbs of steps."""

    def __init__(self, book: Book, script: Script, version: int, prefix: str = "") -> None:
        self._book = book
        self._version = version
        self._prefix = prefix
        self._client_id = "test"
        self._directory = ""  # of the logs
        self._masks: dict[object, str] = {}
        self._now_ms = NOW_MS
        self._source = ""  # where the next request comes from
        self._known: dict[str, Any] = KNOWN | {"configs": script.configs}
        self._known |= {"batch": batch_of, "message_set": message_set, "producer": producer}
        self._known |= {"in_transaction": in_transaction, "subscription": subscription, "assignment": assignment_of}
        self._known |= {"NOW_MS": NOW_MS, "scram": scram, "batches": batches, "Codec": Codec}
        self._known |= {"commit_marker": commit_marker, "with_fields": with_fields}

    async def step(self, text: str) -> list[str]:
        """Take a step; return the lines that show what came of it."""
        line = line_of(text)
        self._source = line.source
        if line.word in KEYS:
            version = self._version if line.version == "*" else int(line.version)
            call = KEYS[line.word], version, self._placed(line.body(self._book.defaults, self._known))
            answer = await (self._start(line.name, *call) if line.start else self._called(*call))
        else:
            arguments, options = self._placed(line.arguments(self._known))
            verb = partial(getattr(self, line.word), *arguments, **options)
            answer = await (self._start_verb(line.name, verb) if line.start else outcome_of(verb))
        if line.name and not line.start:
            self._known[line.name] = answer
        return self._shown(answer)

    def _placed(self, value: Any) -> Any:
        return resolved(value, self._prefix, self._now_ms, {})

    async def _called(self, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        """The answer, or a text: `no answer`, or why the connection closes."""
        raise NotImplementedError

    async def _start(self, name: str, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        """Ask what may wait; the answer if it does not."""
        raise NotImplementedError

    async def _start_verb(self, name: str, verb: Callable[[], Any]) -> Any:
        raise NotImplementedError

    async def _asked(self, key: ApiKey, version: int, **body: Any) -> Any:
        """As the super user, who prepares what a conversation is about."""
        return await self._called(key, version, body)

    # -- verbs ----------------------------------------------------------------------------------------------------

    async def client_is(self, client_id: str) -> None:
        self._client_id = client_id

    async def create(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Create a topic, as the super user."""
        await self._created((name, partitions, 1, [], config_rows(configs)))

    async def assign(self, name: str, *replicas: Sequence[int], **configs: object) -> None:
        """Create a topic with the brokers of each partition; this one is 0."""
        await self._created((name, -1, -1, list(enumerate(replicas)), config_rows(configs)))

    async def _created(self, topic: tuple[Any, ...]) -> None:
        answer = await self._asked(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=20_000)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    async def delete_topic(self, name: str) -> None:
        await self._asked(ApiKey.DELETE_TOPICS, 3, topic_names=[name], timeout_ms=1000)

    async def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = 1, version: int = 7) -> Any:
        """Write one batch of values; show the row of the partition."""
        return await self._produced(self._called, batch_of_values(values), topic, partition, acks, version)

    async def _produced(
        self, ask: Any, batch: bytes | bytearray, topic: str, partition: int = 0, acks: int = 1, version: int = 7
    ) -> Any:
        body = produce_body(topic, batch, partition=partition, acks=acks) | {"timeout_ms": 1000}
        answer = await ask(ApiKey.PRODUCE, version, body)
        return None if isinstance(answer, str) else answer.topics[0].partitions[0]

    async def write(self, topic: str, *values: bytes, **options: Any) -> None:
        """Produce as the super user, without an error."""
        await self._written(topic, batch_of_values(values), **options)

    async def _written(self, topic: str, batch: bytes | bytearray, **options: Any) -> None:
        row = await self._produced(
            lambda key, version, body: self._asked(key, version, **body), batch, topic, **options
        )
        assert row is None or row.error_code == ErrorCode.NONE, row

    async def fill(self, topic: str, partition: int = 0, *, batches: int = 1, size: int = 100) -> None:
        """Write batches of one record; one of a hundred bytes has 170."""
        for _ in range(batches):
            await self._written(topic, batch_of_values([b"x" * size]), partition=partition)

    async def write_at(self, topic: str, *times_ms: int, codec: Codec = Codec.NONE) -> None:
        """Write a batch of records of these times."""
        await self._written(topic, batches(*((None, each) for each in times_ms), codec=codec))

    async def offsets(self, topic: str, *times_ms: int, version: int | None = None, **options: Any) -> list[str]:
        """Ask ListOffsets for one time after another; show what it finds."""
        found = []
        for time_ms in times_ms:
            body = {"replica_id": -1, "topics": [(topic, [(0, -1, time_ms, 100)])], **options}
            answer = await self._called(ApiKey.LIST_OFFSETS, self._version if version is None else version, body)
            fields = self._fields_shown(answer.topics[0].partitions[0])[1:]
            found.append(f"{time_ms}: {' '.join(fields) or 'nothing'}")
        return found

    async def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """Delete the records below an offset."""
        await self._called(ApiKey.DELETE_RECORDS, 1, {"topics": [(topic, [(partition, offset)])], "timeout_ms": 1000})

    async def limit(self, key: str, value: float, **entity: str | None) -> None:
        """Set a quota: of this client id, unless `user` or `client_id` name another entity."""
        named = entity or {"client_id": self._client_id}
        row = [(kind.replace("_", "-"), name) for kind, name in named.items()]
        body = {"entries": [(row, [(key, value, False)])], "validate_only": False}
        answer = await self._asked(ApiKey.ALTER_CLIENT_QUOTAS, 1, **body)
        assert answer.entries[0].error_code == ErrorCode.NONE, answer

    async def fetch(self, *rows: tuple[Any, ...], version: int | None = None, **options: Any) -> Any:
        body = fetch_body(*rows, **options)
        return await self._called(ApiKey.FETCH, self._version if version is None else version, body)

    async def follow(
        self, topic: str, offset: int, *, partition: int = 0, replica: int = 1, version: int = 8, **options: Any
    ) -> Any:
        """Fetch as the follower whose log ends at an offset."""
        at = {each: options.pop(each) for each in ("log_start_offset", "last_epoch") if each in options}
        asked = At(topic, partition, offset, **{"log_start_offset": 0, **at})
        return await self._called(ApiKey.FETCH, version, fetch_body(asked, replica_id=replica, **options))

    async def in_sync(self, topic: str, partition: int = 0) -> str:
        body = {"topics": by_name(topic), "allow_auto_topic_creation": False}
        answer = await self._called(ApiKey.METADATA, 5, body)
        return str(list(answer.topics[0].partitions[partition].isr_nodes))

    # -- answers --------------------------------------------------------------------------------------------------

    def _shown(self, answer: Any) -> list[str]:
        if answer is None or isinstance(answer, str):
            return [] if answer is None else [answer]
        if isinstance(answer, list):
            line = ", ".join(answer)
            return [line] if len(line) <= WIDTH else answer
        fields = self._fields_shown(answer) or ["ok"]
        line = ", ".join(fields)
        if len(line) <= WIDTH:
            return [line]
        lines = []
        for name, value in zip(answer._fields, answer, strict=True):
            shown = self._value(name, value, answer._field_defaults.get(name))
            if shown is not None and isinstance(value, list) and len(shown) > WIDTH:
                rows = [f"  {self._value('', each, None)}" for each in value[:MOST_ROWS]]
                lines += [f"{name}:", *rows]
            elif shown is not None:
                lines.append(f"{name}={shown}")
        return lines

    def _fields_shown(self, row: Any) -> list[str]:
        found = []
        for name, value in zip(row._fields, row, strict=True):
            shown = self._value(name, value, row._field_defaults.get(name))
            if shown is not None:
                found.append(f"{name}={shown}")
        return found

    def _value(self, name: str, value: Any, default: Any) -> str | None:
        if isinstance(value, UnknownTopicById):
            return next((kept for kept, each in self._known.items() if each == value.topic_id), "?")
        """A value as text; None for one that is as its default."""
        if name == "cluster_id" and value:
            return "'cluster'"
        if name == "session_id" and value:
            return self._mask("session", value)
        if value == default and type(value) is type(default) and name not in ALWAYS_SHOWN:
            return None
        if name.endswith("error_code"):
            return ErrorCode(value).name
        if hasattr(value, "_fields"):
            return f"({', '.join(self._fields_shown(value))})"
        if isinstance(value, list | tuple):
            rows = [str(self._value("", each, None)) for each in value[:MOST_ROWS]]
            rows += [f"and {len(value) - MOST_ROWS} more"] if len(value) > MOST_ROWS else []
            return f"[{', '.join(rows)}]"
        if isinstance(value, str):
            text = value.replace(self._directory, "DIRECTORY")
            if len(text) > LONGEST:
                return f"{text[:LONG]!r}... {len(text)}"
            if name == "member_id" and KAFKA_ID.fullmatch(value):
                return repr(self._mask("id", value))
            return repr(UUID.sub(lambda found: self._mask("uuid", found[0]), text))
        if isinstance(value, bytes | bytearray | memoryview):
            data = bytes(value)
            if name == "records" or not isinstance(value, bytes):
                return values_in(data)
            return self._mask("id", data) if len(data) == 16 and data != ZERO_UUID else repr(data)
        return repr(int(value)) if isinstance(value, int) and not isinstance(value, bool) else repr(value)

    def _mask(self, kind: str, value: object) -> str:
        count = sum(each.startswith(kind) for each in self._masks.values())
        return self._masks.setdefault(value, f"{kind}-{count + 1}")


class InMemory(ClusterVerbs, Conversation):
    """A conversation with a broker in memory, and what is done and seen inside of it."""

    def __init__(self, make_broker: MakeBroker, book: Book, script: Script, version: int) -> None:
        super().__init__(book, script, version)
        self._make_broker = make_broker
        self._others = racks_of(script)
        self._given = FEW | book.settings | script.settings
        self.broker = self._made(None)
        self._faulty: Faulty | None = None
        self._faults: list[Fault] = []
        self._directory = str(self.broker.parts.config.log_dir)

    def _made(self, data_dir: Path | None) -> InMemoryBroker:
        settings = {name: value for name, value in self._given.items() if name != "act-as"}
        options = {"profile": profile_of(self._given["act-as"])} if "act-as" in self._given else {}
        return beside_others(self._others, self._make_broker, data_dir, **settings, **options)

    async def _called(self, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        if self._source:
            self.broker.client = Client(f"{self._source}:50000", "127.0.0.1", 9092)
        answer = await outcome_of(partial(self.broker.call, key, version, self._client_id, **body))
        return "no answer" if answer is None else answer

    async def _start(self, name: str, key: ApiKey, version: int, body: dict[str, Any]) -> Any:
        return await self._start_verb(name, partial(self._called, key, version, body))

    async def _start_verb(self, name: str, verb: Callable[[], Any]) -> Any:
        self._known[name] = parked = await self.broker.start(outcome_of, verb)
        return "waits" if parked.answer is None else parked.answer

    async def _asked(self, key: ApiKey, version: int, **body: Any) -> Any:
        client = self.broker.client
        await self.user("admin")
        answer = await self.broker.call(key, version, "admin", **body)
        self.broker.client = client
        return "no answer" if answer is None else answer

    # -- verbs ----------------------------------------------------------------------------------------------------

    async def user(self, name: str) -> None:
        """Let the next requests come from a user."""
        self.broker.client = Client("10.0.0.1:50000", "127.0.0.1", 9092, principal=Principal("User", name))

    async def listener(self, name: str) -> None:
        """Let the next requests come over a listener."""
        self.broker.client.listener = name

    async def keep_id(self, topic: str, name: str) -> None:
        """Keep the id of a topic, by which a request may name it when it is gone."""
        self._known[name] = self.broker.parts.metadata_cache.topics[topic].topic_id.bytes

    async def roll(self, topic: str) -> None:
        self.broker.log_of(topic).roll(NOW_MS)

    async def retention(self, days: int) -> None:
        """Let days pass, and have old segments be deleted."""
        self.broker.clock.wall_now_ms += days * DAY_MS
        self.broker.parts.replica_manager.log_manager.cleanup_logs(self.broker.clock.wall_now_ms)

    async def lead_elsewhere(self, topic: str) -> None:
        lead_elsewhere(self.broker, topic)

    async def go_offline(self) -> None:
        """Have the directory of logs be failed."""
        self.broker.parts.replica_manager.log_manager.go_offline("a test")

    async def fault(self, kind: str, **arguments: Any) -> str | None:
        """Make a fault, which strikes from now on."""
        if self._faulty is None:
            from tests.broker.faulty import Faulty

            self._faulty = Faulty(self.broker)
        try:
            self._faults.append(self._faulty.add(kind, **arguments))
        except ValueError as refused:
            return f"refused: {refused}"
        return None

    async def faults(self) -> list[str]:
        """Show the faults, and which can strike."""
        return [f"{each}{'' if each.is_active else ', and no more'}" for each in self._faults]

    async def lift(self, number: int = 0) -> None:
        """Lift a fault, or all."""
        assert self._faulty is not None
        if number:
            self._faulty.injector.lift(self._faults[number - 1].id)
        else:
            self._faulty.injector.lift_all()

    async def connect(self, address: str) -> list[str]:
        """Let the next requests come from another client; show the open connections, by which faults name them."""
        assert self._faulty is not None
        self._faulty.connect(address)
        return [f"{number} from {host}, client id {name}" for number, host, name in self._faulty.injector.connections()]

    async def sessions(self) -> str:
        """Show how many sessions of fetches there are."""
        return str(len(self.broker.parts.fetch_sessions.sessions))

    async def muted(self) -> str:
        """Show for how long the connection reads nothing, and forget it."""
        until_ms, self.broker.client.muted_until_ms = self.broker.client.muted_until_ms, 0
        return f"{until_ms - self.broker.clock.monotonic_ms() if until_ms else 0} ms"

    async def written(self, topic: str) -> str:
        """Show the bytes of a log."""
        return on_disk(self.broker, topic).hex() or "nothing"

    async def replica(self, topic: str, broker_id: int) -> str:
        """Show the bounds of a follower's log, as its leader knows them."""
        found = partition_of(self.broker, topic).remote_replicas[broker_id]
        return f"log_start_offset={found.log_start_offset}, log_end_offset={found.log_end_offset.message_offset}"

    async def all_alive(self) -> None:
        """Let every broker count as alive."""
        self.broker.parts.replica_manager.is_alive = lambda broker_id: True

    async def allow(
        self, right: str, name: str = "kafka-cluster", *, prefixed: bool = False, deny: bool = False
    ) -> None:
        """Give alice a right, named as in `Read Topic`; with `deny` take it."""
        operation, _, kind = right.partition(" ")
        pattern = Pattern.PREFIXED if prefixed else Pattern.LITERAL
        types = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5}
        permission = Permission.DENY if deny else Permission.ALLOW
        row = (types[kind], name, pattern, "User:alice", "*", OPERATIONS[operation], permission)
        answer = await self._asked(ApiKey.CREATE_ACLS, 1, creations=[row])
        assert answer.results[0].error_code == ErrorCode.NONE, answer

    async def forget_rules(self) -> None:
        await self._asked(ApiKey.DELETE_ACLS, 1, filters=[(1, None, Pattern.ANY, None, None, 1, 1)])

    async def look(self, name: str) -> Any:
        """Show the answer to what was started; from now on the name is that answer."""
        parked = self._known[name]
        if await parked.seen() is None:
            return "waits"
        self._known[name] = parked.answer
        return parked.answer

    async def wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def turn(self, wall_ms: int) -> None:
        """Let the wall clock go on, and have offsets expire."""
        self.broker.clock.wall_now_ms += wall_ms
        self.broker.parts.groups.offsets.expire()

    async def restart(self) -> None:
        data_dir = self.broker.parts.config.log_dir
        self.broker.close()
        self.broker = self._made(data_dir)

    async def disk(self, state: str) -> None:
        """Have nothing be stored of topics, configs, rules and users while the disk is `full`, and no log be read while
        it is `unreadable`."""
        system_disk.write = no_space if state == "full" else os.write
        system_disk.pread = unreadable if state == "unreadable" else os.pread

    async def log(self, topic: str, partition: int, *names: str) -> Any:
        """Show what these names say of a log, or of its config."""
        log = self.broker.log_of(topic, partition)
        return ", ".join(f"{each}={getattr(log if hasattr(log, each) else log.config, each)!r}" for each in names)


def batch_of_values(values: Iterable[bytes]) -> bytearray:
    return build_batch([Record(offset, NOW_MS, None, value, ()) for offset, value in enumerate(values)])


async def outcome_of(ask: Callable[[], Any]) -> Any:
    """The answer, or why the connection closes."""
    try:
        return await ask()
    except (KafkaProtocolError, CloseConnectionError) as error:
        return f"closed: {error}"


def producer(initialized: Any) -> dict[str, Any]:
    """The identity of a producer, for its next requests."""
    return {"producer_id": initialized.producer_id, "producer_epoch": initialized.producer_epoch}


def in_transaction(initialized: Any, sequence: int, value: bytes) -> bytearray:
    """A batch of a record in the transaction of a producer."""
    return batch_of(value, **producer(initialized), base_sequence=sequence, is_transactional=True)


def scram(
    user: str, mechanism: int = 1, *, iterations: int = 4096, salt: bytes = b"salt", salted: bytes | None = None
) -> tuple[Any, ...]:
    """An upsertion of AlterUserScramCredentials."""
    return (user, mechanism, iterations, salt, bytes(64 if mechanism == 2 else 32) if salted is None else salted)


def batches(*records: tuple[bytes | None, int], **options: Any) -> bytearray:
    """A batch of records with these keys and times."""
    rows = [Record(offset, time_ms, key, b"v") for offset, (key, time_ms) in enumerate(records)]
    return build_batch(rows, **options)


def assignment_of(*partitions: int) -> bytes:
    """The assignment of a classic member: partitions of t."""
    return write_assignment(0, [("t", list(partitions))])


def message_set(value: bytes, magic: int = 1) -> bytearray:
    return build_message_set([Record(0, NOW_MS, None, value)], magic=magic)


def values_in(data: bytes) -> str:
    """The values of records, batch by batch, after the magic of an old format; then the bytes of a batch cut short."""
    views = list(scan_batches(data, 0, len(data)))
    rows = [iter_all_records(data, view, max_decompressed_bytes=1 << 20) for view in views]
    shown = [f"[{', '.join(shortened(each.value) for each in row)}]" for row in rows]
    runs = [(text, len(list(same))) for text, same in groupby(shown)]
    batches = ", ".join(text if count == 1 else f"{count} * {text}" for text, count in runs)
    magics = {view.magic for view in views} - {2}
    rest = len(data) - sum(view.size_bytes for view in views)
    format_of = f"magic {', '.join(map(str, magics))}: " if magics else ""
    return f"{format_of}[{batches}]" + (f" and {rest} bytes" if rest else "")


def shortened(value: bytes | None) -> str:
    if value is None or len(value) <= LONG:
        return repr(value)
    return f"{value[:1]!r} * {len(value)}" if value.strip(value[:1]) == b"" else f"{value[:LONG]!r}... {len(value)}"


def no_space(*_: object) -> int:
    raise OSError("no space left")


def unreadable(*_: object) -> bytes:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def held(make_broker: MakeBroker, book: Book, script: Script) -> str:
    """The conversation with the answers that come now, as a file has it."""
    columns: list[list[list[str]]] = []
    for version in script.versions or (0,):
        conversation = InMemory(make_broker, book, script, version)
        try:
            for step in book.steps_before(script):
                await conversation.step(step)
            columns.append([await conversation.step(step) for step in script.steps])
        finally:
            await conversation.disk("ok")
    answers = (by_version(each, script.versions or range(1)) for each in zip(*columns, strict=True))
    return as_recorded(script, answers)


def by_version(answers: Sequence[list[str]], versions: range) -> list[str]:
    lines: list[str] = []
    for answer, group in groupby(zip(answers, versions, strict=True), key=lambda pair: pair[0]):
        found = [version for _, version in group]
        if len(found) == len(versions):
            return list(answer)
        name = f"v{found[0]}-{found[-1]}:" if found[1:] else f"v{found[0]}:"
        lines += [name, *(f"  {each}" for each in answer or ["nothing"])]
    return lines


async def held_anew(book: Book, script: Script) -> str:
    with tempfile.TemporaryDirectory() as directory:
        async with trio.open_nursery() as nursery:
            text = await held(brokers_in(Path(directory), nursery), book, script)
            nursery.cancel_scope.cancel()
    return text


def brokers_in(directory: Path, nursery: trio.Nursery) -> MakeBroker:
    made: list[InMemoryBroker] = []

    def make(data_dir: Path | None = None, **options: Any) -> InMemoryBroker:
        made.append(InMemoryBroker(data_dir or directory / str(len(made)), nursery, **options))
        return made[-1]

    return make


def held_again(book: Book) -> Iterator[str]:
    for script in book.scripts.values():
        clock = MockClock(autojump_threshold=0) if is_timed(book, script) else None
        yield trio.run(held_anew, book, script, clock=clock)
