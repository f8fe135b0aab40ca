"""The clients of a simulation. Each works until it is told to finish, and writes what it does into the history, in the
form of docs/recipes/checking-a-history.md.

They retry less than Kafka's own clients: the end of a send may stay unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

import trio

from minibroker.broker.wings.several.peer import Peer, PeerError
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.batches import scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.framing import LENGTH, LENGTH_BYTES
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch, iter_records
from minibroker.simulation.world import EPOCH_MS, PROCESS, Process, World

TIMEOUT_MS = 2000
RETRY_SECONDS = 0.05
TRANSACTION_TIMEOUTS_MS = (1500, 10_000)
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
MAX_DECOMPRESSED = 1 << 20
COORDINATOR_GROUP, COORDINATOR_TRANSACTION = 0, 1
UNCOMMITTED, COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2
ISOLATIONS = ("read_uncommitted", "read_committed")
# Others may come after the append: a leader that is one no more answers so to those who wait for replicas.
NOT_APPENDED = {ErrorCode.NOT_ENOUGH_REPLICAS}
RETRIABLE = NOT_APPENDED | {
    ErrorCode.NOT_LEADER_FOR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
Place = tuple[str, int]


class Failed(Exception):
    """An answer with an error, or none: `error` is None then."""

    def __init__(self, error: ErrorCode | None) -> None:
        super().__init__("no answer" if error is None else error.name)
        self.error = error


class Read(NamedTuple):
    offset: int
    key: str
    value: str


class Batch(NamedTuple):
    """Records with the offsets that they have in the log."""

    producer_id: int
    is_transactional: bool
    marker: ControlType | None
    base_offset: int
    last_offset: int
    records: list[Read]


class Book:
    """The state that all clients of a simulation share: the history, acknowledged commits, where the brokers are."""

    def __init__(
        self,
        world: World,
        addresses: dict[int, tuple[str, int]],
        topics: dict[str, int],
        *,
        may_lose: bool,
        is_beside: bool,
    ) -> None:
        self.world = world
        self.may_lose = may_lose  # by unclean elections: a transaction may then stay open
        self.is_beside = is_beside  # clients draw what they do beside the usual
        self.addresses = addresses
        self.topics = topics
        self.rows: list[dict[str, Any]] = []
        self.commits: dict[tuple[str, str, int], int] = {}  # of a group, the highest that was acknowledged
        self.wrongs: list[tuple[str, str, Place]] = []  # findings of clients: kind, text and partition
        self.deleted_topics: set[str] = set()
        self.acked: dict[Place, int] = {}  # the highest offset of an acks=all record that was acknowledged
        self.needed: dict[tuple[str, Place], int] = {}  # by client: records from this offset on must not be deleted
        self.is_finishing = False

    def finish(self) -> None:
        """Have all clients end what they have begun."""
        self.is_finishing = True

    def wrong(self, kind: str, text: str, place: Place) -> None:
        """Note a finding of a client."""
        self.wrongs.append((kind, text, place))

    def write(self, process: str, event: str, operation: str, **rest: Any) -> None:
        row = {"process": process, "event": event, "operation": operation, **rest}
        self.rows.append(row)
        self.world.note("history", row)

    def places(self) -> list[Place]:
        return [(topic, number) for topic, count in self.topics.items() for number in range(count)]


class Pipeline(Peer):
    """A connection with several requests in flight."""

    async def ask_all(
        self, api: ApiKey, version: int, requests: Sequence[Any], *, are_answered: bool = True
    ) -> list[Any]:
        """Send requests at once; return the answers that came, which are those of the first ones."""
        answers: list[Any] = []
        try:
            await self._connect()
            with trio.fail_after(TIMEOUT_MS / 1000):
                frames = [encode_request(api, version, number, "p", each) for number, each in enumerate(requests)]
                assert self._stream is not None
                await self._stream.send_all(b"".join(frames))
                for _ in requests if are_answered else ():
                    (size,) = LENGTH.unpack(await self._received(LENGTH_BYTES))
                    answers.append(decode_response(api, version, await self._received(size))[1])
        except (OSError, trio.TooSlowError, trio.BrokenResourceError, trio.ClosedResourceError):
            self.close()
        return answers


class Client:
    """Asks the brokers. `work` is called until the book says to finish; then `finish` once."""

    def __init__(self, name: str, book: Book, seed: object) -> None:
        self.name = name
        self.book = book
        self.random = Random(f"{name} {seed}")
        self._seed = seed
        self.process = Process(name)
        self.is_finished = False
        self.doing = "nothing"
        self._peers: dict[int, Peer] = {}
        self._leaders: dict[Place, int] = {}
        self.leader_epochs: dict[Place, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

    def beside(self, what: str) -> Random:
        """The generator of something that is drawn beside the usual."""
        return Random(f"{what} {self.name} {self._seed}")

    async def run(self) -> None:
        PROCESS.set(self.process)
        await trio.sleep(self.random.random())
        while not self.book.is_finishing:
            await self.work()
        await self.finish()
        self.is_finished = True
        self.doing = "nothing"

    async def work(self) -> None: ...

    async def finish(self) -> None: ...

    # -- asking -----------------------------------------------------------------------------------------------

    async def ask(self, broker_id: int, api: ApiKey, version: int, **values: Any) -> Any:
        """Raises Failed."""
        peer = self._peers.get(broker_id)
        if peer is None:
            host, port = self.book.addresses[broker_id]
            peer = self._peers[broker_id] = Peer(host, port, client_id=self.name, timeout_ms=TIMEOUT_MS)
        try:
            return await peer.ask(api, version, API_TABLE[api].request(**values))
        except PeerError:
            self._leaders.clear()
            self._coordinators.clear()
            raise Failed(None) from None

    async def pause(self) -> None:
        await trio.sleep(RETRY_SECONDS * (0.5 + self.random.random()))

    async def any_broker(self, api: ApiKey, version: int, **values: Any) -> Any:
        """Ask brokers, one after the other, until one answers."""
        while True:
            broker_id = self.random.choice(sorted(self.book.addresses))
            try:
                return await self.ask(broker_id, api, version, **values)
            except Failed:
                await self.pause()

    async def leader_of(self, place: Place) -> int:
        """Find the leader, and wait for one."""
        while place not in self._leaders:
            answer = await self.any_broker(ApiKey.METADATA, 7, topics=None, allow_auto_topic_creation=False)
            for topic in answer.topics:
                for each in topic.partitions:
                    if each.leader_id >= 0 and each.error_code == ErrorCode.NONE:
                        self._leaders[topic.name, each.partition] = each.leader_id
                        self.leader_epochs[topic.name, each.partition] = each.leader_epoch
            if place not in self._leaders:
                await self.pause()
        return self._leaders[place]

    async def end_of(self, place: Place, timestamp: int = LATEST) -> int:
        """The end of a partition, or its start."""
        while True:
            self.doing = f"asks for the {'end' if timestamp == LATEST else 'start'} of {place[0]}-{place[1]}"
            try:
                answer = await self.ask(
                    await self.leader_of(place),
                    ApiKey.LIST_OFFSETS,
                    2,
                    replica_id=-1,
                    isolation_level=UNCOMMITTED,
                    topics=[(place[0], [(place[1], -1, timestamp, 1)])],
                )
            except Failed:
                await self.pause()
                continue
            row = answer.topics[0].partitions[0]
            if row.error_code == ErrorCode.NONE:
                return int(row.offset)
            self.forget()
            await self.pause()

    async def coordinator_of(self, kind: int, key: str) -> int:
        while (kind, key) not in self._coordinators:
            answer = await self.any_broker(ApiKey.FIND_COORDINATOR, 1, key=key, key_type=kind)
            if answer.error_code == ErrorCode.NONE:
                self._coordinators[kind, key] = answer.node_id
            else:
                await self.pause()
        return self._coordinators[kind, key]

    def forget(self) -> None:
        """Look leaders and coordinators up again."""
        self._leaders.clear()
        self._coordinators.clear()

    async def ask_coordinator(self, kind: int, key: str, api: ApiKey, version: int, **values: Any) -> Any:
        """Ask until an answer has no retriable error; return the answer, and its first error."""
        while True:
            try:
                answer = await self.ask(await self.coordinator_of(kind, key), api, version, **values)
            except Failed:
                await self.pause()
                continue
            error = first_error(answer)
            if error not in RETRIABLE:
                return answer, error
            self.forget()
            await self.pause()


def first_error(answer: Any) -> ErrorCode:
    """The error of an answer, or the first of its rows."""
    groups = (answer, *getattr(answer, "groups", ()))
    rows = [row for each in groups for topic in getattr(each, "topics", ()) for row in getattr(topic, "partitions", ())]
    errors = [each.error_code for each in (*groups, *rows) if getattr(each, "error_code", 0)]
    return ErrorCode(errors[0]) if errors else ErrorCode.NONE


# -- producers ------------------------------------------------------------------------------------------------------


class Producer(Client):
    """Sends with acks=all, each batch once: one whose end is unknown is not sent again."""

    acks = -1
    producer_id, epoch = -1, -1
    is_transactional = False
    produce_version = 7

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self._sent = 0
        self._codec = self.beside("codec").choice(CODECS) if book.is_beside else Codec.NONE
        self.sequences: dict[Place, int] = {}

    async def work(self) -> None:
        await self.send_batch()
        await trio.sleep(self.random.choice((0.01, 0.05, 0.2, 0.5)))

    async def send_batch(self) -> bool:
        """Send one to three records; return whether they are acknowledged."""
        place = self.random.choice(self.book.places())
        values = self._values(place)
        self.doing = f"sends {values[0]} to {place[0]}-{place[1]}"
        sequence = self.sequences.get(place, 0) if self.producer_id >= 0 else -1
        event, offset = await self.append(place, self._batch(values, sequence))
        if event == "ok":
            self.sequences[place] = sequence + len(values)
        self._end(event, place, values, offset)
        return event == "ok"

    def _values(self, place: Place) -> list[str]:
        """Begin to send new values."""
        values = [f"{self.name}-{self._sent + each}" for each in range(self.random.randint(1, 3))]
        self._sent += len(values)
        for value in values:
            self.book.write(self.name, "invoke", "send", topic=place[0], partition=place[1], value=value, id=value)
        return values

    def _end(self, event: str, place: Place, values: list[str], offset: int = -1) -> None:
        """End the sends of a batch; `offset` is that of its first record, where it is known."""
        if event == "ok" and offset >= 0 and self.acks == -1:
            self.book.acked[place] = max(self.book.acked.get(place, -1), offset + len(values) - 1)
        for index, value in enumerate(values):
            row: dict[str, Any] = {"topic": place[0], "partition": place[1], "id": value}
            if event == "ok" and offset >= 0:
                row["offset"] = offset + index
            self.book.write(self.name, event, "send", **row)

    def _batch(self, values: list[str], sequence: int) -> bytes:
        now_ms = self.now_ms()
        records = [Record(index, now_ms, b"k", value.encode()) for index, value in enumerate(values)]
        return self.batch_of(records, sequence)

    def now_ms(self) -> int:
        return EPOCH_MS + int(self.book.world.seconds() * 1000)

    def batch_of(self, records: list[Record], sequence: int) -> bytes:
        return bytes(
            build_batch(
                records,
                codec=self._codec,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                base_sequence=sequence,
                is_transactional=self.is_transactional,
            )
        )

    async def append(self, place: Place, records: bytes) -> tuple[str, int]:
        """Send a batch once; return the event that ends it, and its offset."""
        error, offset = await self.produce(place, records)
        if error == ErrorCode.NONE:
            return "ok", offset
        return ("fail" if error in NOT_APPENDED else "info"), -1

    def _request(self, place: Place, records: bytes) -> dict[str, Any]:
        return {
            "transactional_id": self.name if self.is_transactional else None,
            "acks": self.acks,
            "timeout_ms": 1000,
            "topics": [(place[0], [(place[1], records)])],
        }

    async def produce(self, place: Place, records: bytes) -> tuple[ErrorCode | None, int]:
        leader = await self.leader_of(place)
        try:
            answer = await self.ask(leader, ApiKey.PRODUCE, self.produce_version, **self._request(place, records))
        except Failed:
            return None, -1
        row = answer.topics[0].partitions[0]
        error = ErrorCode(row.error_code)
        if error != ErrorCode.NONE:
            self.forget()
            await self.pause()
        return error, row.base_offset


class LooseProducer(Producer):
    """Sends with acks=1: what it has sent may be lost with its leader, so its sends have unknown ends."""

    acks = 1

    async def append(self, place: Place, records: bytes) -> tuple[str, int]:
        await self.produce(place, records)
        return "info", -1


class UnheardProducer(LooseProducer):
    """Sends with acks=0: no broker answers."""

    acks = 0

    async def produce(self, place: Place, records: bytes) -> tuple[ErrorCode | None, int]:
        host, port = self.book.addresses[await self.leader_of(place)]
        pipeline = Pipeline(host, port, client_id=self.name, timeout_ms=TIMEOUT_MS)
        request = API_TABLE[ApiKey.PRODUCE].request(**self._request(place, records))
        await pipeline.ask_all(ApiKey.PRODUCE, self.produce_version, [request], are_answered=False)
        pipeline.close()
        if self.random.random() < 0.1:
            self.forget()
        return None, -1


class IdempotentProducer(Producer):
    """Sends a batch again until its end is known, or another one has to have the sequence anew."""

    async def run(self) -> None:
        PROCESS.set(self.process)
        await self.begin_anew()
        await super().run()

    async def begin_anew(self) -> None:
        self.doing = "asks for a producer id"
        while (answer := await self._new_producer()).error_code != ErrorCode.NONE:
            await self.pause()
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def _new_producer(self) -> Any:
        return await self.any_broker(
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout_ms=TIMEOUT_MS
        )

    async def append(self, place: Place, records: bytes) -> tuple[str, int]:
        while True:
            error, offset = await self.produce(place, records)
            if error == ErrorCode.NONE:
                return "ok", offset
            if error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return "ok", -1
            if error is not None and error not in RETRIABLE:
                await self.give_up()
                return "info", -1

    async def give_up(self) -> None:
        """Go on after a batch that cannot be sent again."""
        await self.begin_anew()


class InFlight(NamedTuple):
    values: list[str]
    request: Any


class BatchingProducer(IdempotentProducer):
    """Sends up to five batches without waiting, as many as a broker remembers; those without an answer again."""

    async def work(self) -> None:
        place = self.random.choice(self.book.places())
        self.doing = f"sends batches to {place[0]}-{place[1]}"
        batches = []
        for _ in range(self.random.randint(2, 5)):
            values = self._values(place)
            sequence = self.sequences.get(place, 0)
            self.sequences[place] = sequence + len(values)
            request = self._request(place, self._batch(values, sequence))
            batches.append(InFlight(values, API_TABLE[ApiKey.PRODUCE].request(**request)))
        while batches := await self._send_all(place, batches):
            await self.pause()
        await trio.sleep(self.random.choice((0.01, 0.05, 0.2)))

    async def _send_all(self, place: Place, batches: list[InFlight]) -> list[InFlight]:
        """Send batches once; return those to send again."""
        host, port = self.book.addresses[await self.leader_of(place)]
        pipeline = Pipeline(host, port, client_id=self.name, timeout_ms=TIMEOUT_MS)
        answers = await pipeline.ask_all(ApiKey.PRODUCE, self.produce_version, [each.request for each in batches])
        pipeline.close()
        left = batches[len(answers) :]
        again: list[InFlight] = []
        for batch, answer in zip(batches, answers, strict=False):
            row = answer.topics[0].partitions[0]
            error = ErrorCode(row.error_code)
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._end("ok", place, batch.values, row.base_offset if error == ErrorCode.NONE else -1)
            elif error in RETRIABLE or (again and error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
                again.append(batch)
            else:
                for each in (*again, *batches[batches.index(batch) :]):
                    self._end("info", place, each.values)
                await self.give_up()
                return []
        self.forget()
        return again + left


class TransactionalProducer(IdempotentProducer):
    """Sends in transactions with offsets of a group, and aborts some of them. A client of transactions v2 (KIP-890)."""

    is_transactional = True
    produce_version, offset_version, end_version = 12, 5, 5

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self._group = f"{name}-offsets"
        timeouts_ms = TRANSACTION_TIMEOUTS_MS if book.is_beside else TRANSACTION_TIMEOUTS_MS[-1:]
        self._timeout_ms = self.beside("timeout").choice(timeouts_ms)
        self._offset = 0  # the last that a transaction was given
        self._committed = -1  # what the group has
        self._given: int | None = None  # in this transaction
        self._is_wrong = False
        self._is_begun = False

    async def _new_producer(self) -> Any:
        answer, _ = await self._ask(
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id=self.name, transaction_timeout_ms=self._timeout_ms
        )
        return answer

    async def _ask(self, api: ApiKey, version: int, **values: Any) -> Any:
        return await self.ask_coordinator(COORDINATOR_TRANSACTION, self.name, api, version, **values)

    def _identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def work(self) -> None:
        self.book.write(self.name, "invoke", "begin")
        self.book.write(self.name, "ok", "begin")
        self._is_wrong, self._is_begun, self._given = False, False, None
        for _ in range(self.random.randint(1, 3)):
            if not await self.send_batch():
                break
            await trio.sleep(self.random.choice((0.0, 0.0, 0.05)))
        if not self._is_wrong and self.random.random() < 0.5:
            await self._give_offset()
        is_commit = not self._is_wrong and self.random.random() < 0.7
        await self.end(is_commit)
        if self.random.random() < 0.3:
            await self._look_at_offset()
        await trio.sleep(self.random.choice((0.0, 0.05, 0.3)))

    async def finish(self) -> None:
        await self._look_at_offset()

    async def append(self, place: Place, records: bytes) -> tuple[str, int]:
        self._is_begun = True
        return await super().append(place, records)

    async def give_up(self) -> None:
        self._is_wrong = True

    async def _ask_group(self, api: ApiKey, version: int, **values: Any) -> Any:
        return await self.ask_coordinator(COORDINATOR_GROUP, self._group, api, version, group_id=self._group, **values)

    async def _give_offset(self) -> None:
        """Have the transaction commit the next offset of the group."""
        self.doing = "gives an offset to its transaction"
        self._offset += 1
        self._is_begun = True
        topic, number = self.book.places()[0]
        rows = [(topic, [(number, self._offset, -1, None)])]
        error = await self._add_group()
        if error == ErrorCode.NONE:
            _, error = await self._ask_group(
                ApiKey.TXN_OFFSET_COMMIT, self.offset_version, **self._identity(), topics=rows
            )
        self._is_wrong = error != ErrorCode.NONE
        self._given = self._offset

    async def _add_group(self) -> ErrorCode:
        """Name the group to the coordinator of transactions, where its own does not."""
        return ErrorCode.NONE

    async def _look_at_offset(self) -> None:
        """The group has the offset of the last transaction that was committed with one."""
        self.doing = "fetches its offset"
        topic, number = self.book.places()[0]
        answer, error = await self._ask_group(ApiKey.OFFSET_FETCH, 7, topics=[(topic, [number])], require_stable=True)
        if error != ErrorCode.NONE:
            self.book.wrong("lost-commit", f"{self._group} cannot be fetched: {error.name}", (topic, number))
            return
        found = answer.topics[0].partitions[0].committed_offset
        if found != self._committed:
            text = f"a transaction committed {self._committed} for {self._group}, which has {found}"
            self.book.wrong("lost-commit", text, (topic, number))

    async def end(self, is_commit: bool) -> None:
        operation = "commit" if is_commit else "abort"
        self.doing = f"asks to {operation}"
        self.book.write(self.name, "invoke", operation)
        error = ErrorCode.NONE
        if self._is_begun:
            answer, error = await self._ask(ApiKey.END_TXN, self.end_version, **self._identity(), is_commit=is_commit)
            next_one = answer.producer_id, answer.producer_epoch
            if self.end_version >= 5 and error == ErrorCode.NONE and next_one != (self.producer_id, self.epoch):
                self.producer_id, self.epoch = next_one
                self.sequences.clear()
        if error == ErrorCode.NONE:
            self.book.write(self.name, "ok", operation)
            if is_commit and self._given is not None:
                self._committed = self._given
        else:
            # The coordinator has refused it: the transaction was aborted by its timeout, or is to be.
            self.book.write(self.name, "fail" if is_commit else "info", operation)
        if error != ErrorCode.NONE or self._is_wrong:
            await self.begin_anew()
            self.book.write(self.name, "info", "crash")


class FirstTransactionalProducer(TransactionalProducer):
    """A client of transactions v1, as Kafka 2.0: it names partitions and groups first, and keeps its epoch."""

    produce_version, offset_version, end_version = 7, 2, 1

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self._added: set[Place] = set()

    async def work(self) -> None:
        self._added.clear()
        await super().work()

    async def append(self, place: Place, records: bytes) -> tuple[str, int]:
        if place not in self._added:
            self._is_begun = True
            topics = [(place[0], [place[1]])]
            _, error = await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 1, **self._identity(), topics=topics)
            if error != ErrorCode.NONE:
                await self.give_up()
                return "fail", -1
            self._added.add(place)
        return await super().append(place, records)

    async def _add_group(self) -> ErrorCode:
        _, error = await self._ask(ApiKey.ADD_OFFSETS_TO_TXN, 1, **self._identity(), group_id=self._group)
        return ErrorCode(error)


class FencedProducer(TransactionalProducer):
    """Takes its own transactional id over in the middle of a transaction. What it then still sends with the old epoch
    must be refused: nobody will end that. A client of Kafka 2.0, whose requests no coordinator is asked about."""

    produce_version = 6
    is_refused = True

    async def work(self) -> None:
        if not self.is_refused:
            await trio.sleep(1)
            return
        places = self.random.sample(self.book.places(), min(2, len(self.book.places())))
        # A broker that begins anew behind deleted records knows no marker that was among them.
        self.book.needed |= {(self.name, place): await self.end_of(place) for place in places}
        self.doing = "begins a transaction that it will fence"
        topics = by_topic((each, each[1]) for each in places)
        _, error = await self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 0, **self._identity(), topics=topics)
        old = self.producer_id, self.epoch
        if error == ErrorCode.NONE and self.random.random() < 0.5:
            await self._send(places[0])
        await self.begin_anew()
        await trio.sleep(self.random.choice((0.1, 0.5, 2.0)))
        if error == ErrorCode.NONE:
            new, (self.producer_id, self.epoch) = (self.producer_id, self.epoch), old
            self.is_refused = await self._send(places[-1]) != "ok"
            self.producer_id, self.epoch = new
        for place in places:
            del self.book.needed[self.name, place]

    async def finish(self) -> None: ...

    async def _send(self, place: Place) -> str:
        """Send a record in a transaction that is never committed; return the event that ends it."""
        self.book.write(self.name, "invoke", "begin")
        self.book.write(self.name, "ok", "begin")
        values = self._values(place)
        self.doing = f"sends {values[0]} to {place[0]}-{place[1]}"
        event, offset = await IdempotentProducer.append(self, place, self._batch(values, 0))
        self._end(event, place, values, offset)
        self.book.write(self.name, "info", "crash")
        return event


# -- readers --------------------------------------------------------------------------------------------------------


def batches_in(records: Any) -> list[Batch]:
    """The whole batches of a fetch answer."""
    found = []
    for view in scan_batches(records, 0, len(records)):
        marker = None
        values: list[Read] = []
        for each in iter_records(records, view.position, max_decompressed_bytes=MAX_DECOMPRESSED):
            if view.is_control:
                marker = read_control_type(each.key)
            else:
                values.append(Read(each.offset, (each.key or b"").decode(), (each.value or b"").decode()))
        found.append(Batch(view.producer_id, view.is_transactional, marker, view.base_offset, view.last_offset, values))
    return found


class Reader(Client):
    """Reads all partitions from their beginning on, by fetch sessions or without."""

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.isolation = UNCOMMITTED if book.may_lose else self.random.choice((UNCOMMITTED, COMMITTED))
        self.has_sessions = self.random.random() < 0.5
        # Of leaders, which refuse another one.
        self.names_epochs = book.is_beside and self.beside("epochs").random() < 0.5
        self.positions: dict[Place, int] = {}
        self.high_watermarks: dict[Place, int] = {}
        self._sessions: dict[int, tuple[int, int, dict[Place, int]]] = {}  # by broker: id, next epoch, what it knows

    async def run(self) -> None:
        self.place_at(dict.fromkeys(self.book.places(), 0))
        await super().run()

    def place_at(self, positions: dict[Place, int]) -> None:
        """Read these partitions from these offsets on."""
        self.positions = dict(positions)
        self._sessions.clear()
        self.book.write(self.name, "ok", "assign", partitions=[list(each) for each in positions])
        for (topic, number), offset in positions.items():
            self.book.write(self.name, "ok", "seek", topic=topic, partition=number, offset=offset)

    async def work(self) -> None:
        if new := [place for place in self.book.places() if place not in self.positions]:
            self.place_at({**self.positions, **dict.fromkeys(new, 0)})
        await self.poll()
        await trio.sleep(self.random.choice((0.02, 0.1, 0.4)))

    async def finish(self) -> None:
        """Read up to where each partition ends now."""
        ends = {place: await self.end_of(place) for place in self.positions}
        while any(self.positions[place] < end for place, end in ends.items()):
            await self.poll()

    async def poll(self) -> None:
        """Fetch once from each leader."""
        by_leader: dict[int, list[Place]] = {}
        for place in self.positions:
            by_leader.setdefault(await self.leader_of(place), []).append(place)
        for leader, places in sorted(by_leader.items()):
            await self._fetch(leader, places)

    async def _fetch(self, leader: int, places: list[Place]) -> None:
        positions = ", ".join(f"{topic}-{number} at {self.positions[topic, number]}" for topic, number in places)
        self.doing = f"fetches {positions} from {leader}"
        session, epoch, known = self._sessions.get(leader, (0, 0 if self.has_sessions else -1, {}))
        asked = {each: self.positions[each] for each in places}
        changed = [each for each in places if known.get(each) != asked[each]]
        forgotten = [each for each in known if each not in asked]
        epochs = self.leader_epochs if self.names_epochs else {}
        try:
            answer = await self.ask(
                leader,
                ApiKey.FETCH,
                11,
                replica_id=-1,
                max_wait_ms=self.random.choice((0, 100, 500)),
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=self.isolation,
                session_id=session,
                session_epoch=epoch,
                topics=by_topic(
                    (each, (each[1], epochs.get(each, -1), asked[each], -1, -1, 1 << 18)) for each in changed
                ),
                forgotten_topics=by_topic((each, each[1]) for each in forgotten),
            )
        except Failed:
            self._sessions.pop(leader, None)
            await self.pause()
            return
        if answer.error_code != ErrorCode.NONE:
            self._sessions.pop(leader, None)
            return
        if self.has_sessions and answer.session_id:
            self._sessions[leader] = answer.session_id, epoch % (2**31 - 1) + 1, asked
        for place in self.take(answer):
            await self._begin_again(place)

    def take(self, answer: Any) -> list[Place]:
        """Take the records of an answer; return the partitions whose position is out of range."""
        records: list[list[object]] = []
        out_of_range = []
        for topic in answer.topics:
            for row in topic.partitions:
                place = topic.topic, row.partition
                if place not in self.positions:
                    continue
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    out_of_range.append(place)
                elif row.error_code != ErrorCode.NONE:
                    self.forget()
                    self._sessions.clear()
                else:
                    self.high_watermarks[place] = max(self.high_watermarks.get(place, 0), row.high_watermark)
                    records += self.read(place, row)
        if records:
            self.book.write(self.name, "ok", "poll", isolation=ISOLATIONS[self.isolation], records=records)
        return out_of_range

    async def _begin_again(self, place: Place) -> None:
        start = await self.end_of(place, EARLIEST)
        self.book.write(self.name, "info", "seek", topic=place[0], partition=place[1], offset=start)
        self.positions[place] = start
        self._sessions.clear()

    def read(self, place: Place, row: Any) -> list[list[object]]:
        """The records of an answer from the position on, without those of aborted transactions."""
        aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
        of_aborted: set[int] = set()
        found: list[list[object]] = []
        for batch in batches_in(row.records or b""):
            while aborted and aborted[0][0] <= batch.last_offset:
                of_aborted.add(aborted.pop(0)[1])
            if batch.marker is not None:
                of_aborted.discard(batch.producer_id)
            elif not (self.isolation == COMMITTED and batch.is_transactional and batch.producer_id in of_aborted):
                position = self.positions[place]
                found += [[*place, each.offset, each.value] for each in batch.records if each.offset >= position]
            self.positions[place] = max(self.positions[place], batch.last_offset + 1)
        return found


class LastReader(Reader):
    """Reads everything once all others have finished."""

    async def run(self) -> None:
        PROCESS.set(self.process)
        self.isolation = UNCOMMITTED if self.book.may_lose else COMMITTED
        self.place_at(dict.fromkeys(self.places(), 0))
        await self.finish()
        self.is_finished = True

    def places(self) -> list[Place]:
        return self.book.places()


def by_topic(rows: Iterable[tuple[Place, Any]]) -> list[tuple[str, list[Any]]]:
    """Rows of partitions under their topics."""
    found: dict[str, list[Any]] = {}
    for (topic, _), row in rows:
        found.setdefault(topic, []).append(row)
    return list(found.items())
