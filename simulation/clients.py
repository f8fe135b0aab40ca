"""The clients of a simulation. Each works until it is told to finish, and writes what it does into the history, in the
form of docs/checking-a-history.md.

They retry less than Kafka's own clients: the end of a send may stay unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any, NamedTuple

import trio

from minibroker.broker.wings.several.peer import Peer, PeerError
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.batches import scan_batches
from minibroker.protocol.consumer_protocol import ConsumerProtocolSubscription, read_assignment, write_assignment
from minibroker.protocol.control_records import ControlType, read_control_type
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch, iter_records
from minibroker.simulation.world import EPOCH_MS, PROCESS, Process, World

TIMEOUT_MS = 2000
RETRY_SECONDS = 0.05
INIT_TIMEOUT_MS = 10_000  # of a transaction
MAX_DECOMPRESSED = 1 << 20
COORDINATOR_GROUP, COORDINATOR_TRANSACTION = 0, 1
UNCOMMITTED, COMMITTED = 0, 1
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


class Batch(NamedTuple):
    """Records with the offsets that they have in the log."""

    producer_id: int
    is_transactional: bool
    marker: ControlType | None
    base_offset: int
    last_offset: int
    records: list[tuple[int, str]]


class Book:
    """The state that all clients of a simulation share: the history, acknowledged commits, where the brokers are."""

    def __init__(self, world: World, addresses: dict[int, tuple[str, int]], topics: dict[str, int]) -> None:
        self.world = world
        self.addresses = addresses
        self.topics = topics
        self.rows: list[dict[str, Any]] = []
        self.commits: dict[tuple[str, str, int], int] = {}  # of a group, the highest that was acknowledged
        self.lost_commits: list[str] = []
        self.acked: dict[Place, int] = {}  # the highest offset of an acks=all record that was acknowledged
        self.is_finishing = False

    def finish(self) -> None:
        """Have all clients end what they have begun."""
        self.is_finishing = True

    def write(self, process: str, event: str, operation: str, **rest: Any) -> None:
        row = {"process": process, "event": event, "operation": operation, **rest}
        self.rows.append(row)
        self.world.note("history", row)

    def places(self) -> list[Place]:
        return [(topic, number) for topic, count in self.topics.items() for number in range(count)]


class Client:
    """Asks the brokers. `work` is called until the book says to finish; then `finish` once."""

    def __init__(self, name: str, book: Book, seed: object) -> None:
        self.name = name
        self.book = book
        self.random = Random(f"{name} {seed}")
        self.process = Process(name)
        self.is_finished = False
        self.doing = "nothing"
        self._peers: dict[int, Peer] = {}
        self._leaders: dict[Place, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}

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
            if place not in self._leaders:
                await self.pause()
        return self._leaders[place]

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
    rows = [row for topic in getattr(answer, "topics", ()) for row in topic.partitions]
    errors = [each.error_code for each in (answer, *rows) if getattr(each, "error_code", 0)]
    return ErrorCode(errors[0]) if errors else ErrorCode.NONE


# -- producers ------------------------------------------------------------------------------------------------------


class Producer(Client):
    """Sends with acks=all, each batch once: one whose end is unknown is not sent again."""

    acks = -1
    producer_id, epoch = -1, -1
    is_transactional = False

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self._sent = 0
        self.sequences: dict[Place, int] = {}

    async def work(self) -> None:
        await self.send_batch()
        await trio.sleep(self.random.choice((0.01, 0.05, 0.2, 0.5)))

    async def send_batch(self) -> bool:
        """Send one to three records; return whether they are acknowledged."""
        place = self.random.choice(self.book.places())
        values = [f"{self.name}-{self._sent + each}" for each in range(self.random.randint(1, 3))]
        self._sent += len(values)
        for value in values:
            self.book.write(self.name, "invoke", "send", topic=place[0], partition=place[1], value=value, id=value)
        self.doing = f"sends {values[0]} to {place[0]}-{place[1]}"
        sequence = self.sequences.get(place, 0) if self.producer_id >= 0 else -1
        records = self._batch(values, sequence)
        event, offset = await self.append(place, records)
        if event == "ok":
            self.sequences[place] = sequence + len(values)
            if offset >= 0 and self.acks == -1:
                self.book.acked[place] = max(self.book.acked.get(place, -1), offset + len(values) - 1)
        for index, value in enumerate(values):
            row: dict[str, Any] = {"topic": place[0], "partition": place[1], "id": value}
            if event == "ok" and offset >= 0:
                row["offset"] = offset + index
            self.book.write(self.name, event, "send", **row)
        return event == "ok"

    def _batch(self, values: list[str], sequence: int) -> bytes:
        now_ms = EPOCH_MS + int(self.book.world.seconds() * 1000)
        records = [Record(index, now_ms, b"k", value.encode()) for index, value in enumerate(values)]
        return bytes(
            build_batch(
                records,
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

    async def produce(self, place: Place, records: bytes) -> tuple[ErrorCode | None, int]:
        leader = await self.leader_of(place)
        try:
            answer = await self.ask(
                leader,
                ApiKey.PRODUCE,
                7,
                transactional_id=self.name if self.is_transactional else None,
                acks=self.acks,
                timeout_ms=1000,
                topics=[(place[0], [(place[1], records)])],
            )
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
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout_ms=INIT_TIMEOUT_MS
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


class TransactionalProducer(IdempotentProducer):
    """Sends in transactions, and aborts some of them."""

    is_transactional = True
    group = ""

    async def _new_producer(self) -> Any:
        answer, _ = await self._ask(
            ApiKey.INIT_PRODUCER_ID, 1, transactional_id=self.name, transaction_timeout_ms=INIT_TIMEOUT_MS
        )
        return answer

    async def _ask(self, api: ApiKey, version: int, **values: Any) -> Any:
        return await self.ask_coordinator(COORDINATOR_TRANSACTION, self.name, api, version, **values)

    def _identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def work(self) -> None:
        self.book.write(self.name, "invoke", "begin")
        self.book.write(self.name, "ok", "begin")
        self._is_wrong = False
        self._added: set[Place] = set()
        for _ in range(self.random.randint(1, 3)):
            if not await self.send_batch():
                break
            await trio.sleep(self.random.choice((0.0, 0.0, 0.05)))
        is_commit = not self._is_wrong and self.random.random() < 0.7
        await self.end(is_commit)
        await trio.sleep(self.random.choice((0.0, 0.05, 0.3)))

    async def append(self, place: Place, records: bytes) -> tuple[str, int]:
        if place not in self._added:
            _, error = await self._ask(
                ApiKey.ADD_PARTITIONS_TO_TXN, 0, **self._identity(), topics=[(place[0], [place[1]])]
            )
            if error != ErrorCode.NONE:
                self._is_wrong = True
                return "fail", -1
            self._added.add(place)
        return await super().append(place, records)

    async def give_up(self) -> None:
        self._is_wrong = True

    async def end(self, is_commit: bool) -> None:
        operation = "commit" if is_commit else "abort"
        self.doing = f"asks to {operation}"
        self.book.write(self.name, "invoke", operation)
        error = ErrorCode.NONE
        if self._added:
            _, error = await self._ask(ApiKey.END_TXN, 1, **self._identity(), is_commit=is_commit)
        if error == ErrorCode.NONE:
            self.book.write(self.name, "ok", operation)
        else:
            # The coordinator has refused it: the transaction was aborted by its timeout, or is to be.
            self.book.write(self.name, "fail" if is_commit else "info", operation)
        if error != ErrorCode.NONE or self._is_wrong:
            await self.begin_anew()
            self.book.write(self.name, "info", "crash")


# -- readers --------------------------------------------------------------------------------------------------------


def batches_in(records: Any) -> list[Batch]:
    """The whole batches of a fetch answer."""
    found = []
    for view in scan_batches(records, 0, len(records)):
        marker = None
        values: list[tuple[int, str]] = []
        for each in iter_records(records, view.position, max_decompressed_bytes=MAX_DECOMPRESSED):
            if view.is_control:
                marker = read_control_type(each.key)
            else:
                values.append((each.offset, (each.value or b"").decode()))
        found.append(Batch(view.producer_id, view.is_transactional, marker, view.base_offset, view.last_offset, values))
    return found


class Reader(Client):
    """Reads all partitions from their beginning on, by fetch sessions or without."""

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.isolation = self.random.choice((UNCOMMITTED, COMMITTED))
        self.has_sessions = self.random.random() < 0.5
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
        await self.poll()
        await trio.sleep(self.random.choice((0.02, 0.1, 0.4)))

    async def finish(self) -> None:
        """Read up to where each partition ends now."""
        ends = {place: await self._end_of(place) for place in self.positions}
        while any(self.positions[place] < end for place, end in ends.items()):
            await self.poll()
            behind = [f"{place[0]}-{place[1]} at {self.positions[place]} of {end}" for place, end in ends.items()]
            self.doing = f"reads {', '.join(behind)}"

    async def _end_of(self, place: Place) -> int:
        while True:
            self.doing = f"asks for the end of {place[0]}-{place[1]}"
            try:
                answer = await self.ask(
                    await self.leader_of(place),
                    ApiKey.LIST_OFFSETS,
                    2,
                    replica_id=-1,
                    isolation_level=UNCOMMITTED,
                    topics=[(place[0], [(place[1], -1, -1, 1)])],
                )
            except Failed:
                await self.pause()
                continue
            row = answer.topics[0].partitions[0]
            if row.error_code == ErrorCode.NONE:
                return int(row.offset)
            self.forget()
            await self.pause()

    async def poll(self) -> None:
        """Fetch once from each leader."""
        by_leader: dict[int, list[Place]] = {}
        for place in self.positions:
            by_leader.setdefault(await self.leader_of(place), []).append(place)
        for leader, places in sorted(by_leader.items()):
            await self._fetch(leader, places)

    async def _fetch(self, leader: int, places: list[Place]) -> None:
        self.doing = f"fetches from {leader}"
        session, epoch, known = self._sessions.get(leader, (0, 0 if self.has_sessions else -1, {}))
        asked = {each: self.positions[each] for each in places}
        changed = [each for each in places if known.get(each) != asked[each]]
        forgotten = [each for each in known if each not in asked]
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
                topics=by_topic((each, (each[1], -1, asked[each], -1, -1, 1 << 18)) for each in changed),
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
        self.take(answer)

    def take(self, answer: Any) -> None:
        records: list[list[object]] = []
        for topic in answer.topics:
            for row in topic.partitions:
                place = topic.topic, row.partition
                if place not in self.positions:
                    continue
                if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._begin_again(place)
                elif row.error_code != ErrorCode.NONE:
                    self.forget()
                    self._sessions.clear()
                else:
                    self.high_watermarks[place] = max(self.high_watermarks.get(place, 0), row.high_watermark)
                    records += self._read(place, row)
        if records:
            self.book.write(self.name, "ok", "poll", isolation=ISOLATIONS[self.isolation], records=records)

    def _begin_again(self, place: Place) -> None:
        self.book.write(self.name, "info", "seek", topic=place[0], partition=place[1], offset=0)
        self.positions[place] = 0
        self._sessions.clear()

    def _read(self, place: Place, row: Any) -> list[list[object]]:
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
                found += [[*place, offset, value] for offset, value in batch.records if offset >= position]
            self.positions[place] = max(self.positions[place], batch.last_offset + 1)
        return found


class LastReader(Reader):
    """Reads everything once all others have finished."""

    async def run(self) -> None:
        PROCESS.set(self.process)
        self.isolation = COMMITTED
        self.place_at(dict.fromkeys(self.book.places(), 0))
        await self.finish()
        self.is_finished = True


class Member(Reader):
    """A member of a classic group, which commits what it has read."""

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.group = "group"
        self.member_id = ""
        self.generation = -1

    async def run(self) -> None:
        await Client.run(self)

    async def work(self) -> None:
        if not await self._join():
            await self.pause()
            return
        for _ in range(self.random.randint(3, 20)):
            if self.book.is_finishing:
                break
            if self.positions:
                await self.poll()
            if self.random.random() < 0.5 and not await self._commit():
                return
            _, error = await self._ask(
                ApiKey.HEARTBEAT, 1, group_id=self.group, generation_id=self.generation, member_id=self.member_id
            )
            if error != ErrorCode.NONE:
                return
            await trio.sleep(self.random.choice((0.05, 0.2)))
        if self.random.random() < 0.2:
            await self._leave()

    async def finish(self) -> None:
        if self.member_id:
            await self._leave()

    async def _leave(self) -> None:
        self.doing = "leaves its group"
        await self._ask(ApiKey.LEAVE_GROUP, 1, group_id=self.group, member_id=self.member_id)
        self.member_id = ""

    async def _ask(self, api: ApiKey, version: int, **values: Any) -> Any:
        return await self.ask_coordinator(COORDINATOR_GROUP, self.group, api, version, **values)

    async def _join(self) -> bool:
        self.doing = "joins its group"
        topics = sorted(self.book.topics)
        subscription = b"\0\0" + b"".join(
            ConsumerProtocolSubscription.encode(0, ConsumerProtocolSubscription(topics=topics, user_data=None))
        )
        answer, error = await self._ask(
            ApiKey.JOIN_GROUP,
            2,
            group_id=self.group,
            session_timeout_ms=3000,
            rebalance_timeout_ms=1500,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[("range", subscription)],
        )
        if error != ErrorCode.NONE:
            self.member_id = "" if error == ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
            return False
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == self.member_id:
            members = sorted(each.member_id for each in answer.members)
            shares: dict[str, dict[str, list[int]]] = {each: {} for each in members}
            for index, (topic, number) in enumerate(self.book.places()):
                shares[members[index % len(members)]].setdefault(topic, []).append(number)
            assignments = [(each, write_assignment(0, list(share.items()))) for each, share in shares.items()]
        self.doing = "syncs with its group"
        answer, error = await self._ask(
            ApiKey.SYNC_GROUP,
            1,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=assignments,
        )
        if error != ErrorCode.NONE:
            return False
        given = read_assignment(answer.assignment).assigned_partitions if answer.assignment else []
        return await self._begin([(each.topic, number) for each in given for number in each.partitions])

    async def _begin(self, places: list[Place]) -> bool:
        self.doing = "fetches its offsets"
        before = {each: self.book.commits.get((self.group, *each), -1) for each in places}
        answer, error = await self._ask(
            ApiKey.OFFSET_FETCH, 3, group_id=self.group, topics=by_topic((each, each[1]) for each in places)
        )
        if error != ErrorCode.NONE:
            return False
        positions = {}
        for topic in answer.topics:
            for row in topic.partitions:
                place = topic.name, row.partition
                positions[place] = max(0, row.committed_offset)
                if row.committed_offset < before[place]:
                    self.book.lost_commits.append(
                        f"{self.group} had committed {before[place]} of {place[0]}-{place[1]}, and found"
                        f" {row.committed_offset}"
                    )
        self.place_at(positions)
        return True

    async def _commit(self) -> bool:
        if not self.positions:
            return True
        self.doing = "commits"
        asked = dict(self.positions)
        _, error = await self._ask(
            ApiKey.OFFSET_COMMIT,
            2,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            retention_time_ms=-1,
            topics=by_topic((each, (each[1], offset, -1, -1, None)) for each, offset in asked.items()),
        )
        if error != ErrorCode.NONE:
            return False
        for place, offset in asked.items():
            key = self.group, *place
            self.book.commits[key] = max(self.book.commits.get(key, -1), offset)
        return True


def by_topic(rows: Iterable[tuple[Place, Any]]) -> list[tuple[str, list[Any]]]:
    """Rows of partitions under their topics."""
    found: dict[str, list[Any]] = {}
    for (topic, _), row in rows:
        found.setdefault(topic, []).append(row)
    return list(found.items())


KINDS: dict[str, Callable[[str, Book, object], Client]] = {
    "producer": Producer,
    "loose": LooseProducer,
    "idempotent": IdempotentProducer,
    "transactional": TransactionalProducer,
    "reader": Reader,
    "member": Member,
}
Work = Callable[[], Awaitable[None]]
