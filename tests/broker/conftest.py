"""A whole broker without a process: the real parts on a temporary directory, requests as bytes, no socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.apis.client import Client
from minibroker.broker.app import BrokerApp, way_of
from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import EVERYTHING, Profile
from minibroker.broker.pending import Pending
from minibroker.broker.time.clock import Clock
from minibroker.conformance.requests import fetch_body
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.protocol.topic_ids import BY_ID, name_topics
from tests.requests import frame_by_ids, produce_body

if TYPE_CHECKING:
    from minibroker.broker.wings.looking.fetch_positions import FetchPositions

NOW_MS = 1_500_000_000_000
NO_SUCH_ID = b"\xff" * 16


class FixedClock(Clock):
    """Waiting follows trio's clock, as ever; the wall clock stands still until it is moved."""

    def __init__(self) -> None:
        self.wall_now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.wall_now_ms


class Parked:
    """A request in a task of its own; `answer` is None while it waits."""

    answer: Any = None

    @property
    def waits(self) -> bool:
        return self.answer is None

    async def ask(self, ask: Callable[..., Awaitable[Any]], args: Any, options: Any) -> None:
        self.answer = await ask(*args, **options)

    async def seen(self) -> Any:
        """The answer once every task has had its turn, None while it waits."""
        await wait_all_tasks_blocked()
        return self.answer


class InMemoryBroker:
    """Answers requests through the same bytes a connection would."""

    def __init__(
        self, data_dir: Path, nursery: trio.Nursery, *, profile: Profile = EVERYTHING, **settings: object
    ) -> None:
        given = {name if "." in name else name.replace("_", "."): str(value) for name, value in settings.items()}
        self.nursery = nursery
        self.clock = FixedClock()
        config = KafkaConfig({"log.dirs": str(data_dir), "broker.id": "0", **given}, profile=profile)
        self.app = BrokerApp(config, self.clock)
        self.app.load()
        self.parts = self.app.build()
        self.timers, self.way = self.parts.timers, way_of(self.parts)
        self.client = Client("127.0.0.1:50000", "127.0.0.1", 9092)
        self.parts.start_tasks(nursery)
        for task in [each for wing in self.parts.wings for each in wing.tasks()]:
            nursery.start_soon(task)

    @cached_property
    def positions(self) -> FetchPositions:
        """The fetches of its clients, from the first look at them on."""
        from minibroker.broker.wings.looking.fetch_positions import FetchPositions

        return FetchPositions(self.parts)

    @property
    def state(self) -> FileState:
        """The state of its cluster of one."""
        assert isinstance(self.app._state, FileState)
        return self.app._state

    def close(self) -> None:
        self.app.close(self.parts)

    async def answer(self, frame: bytes) -> bytes | None:
        """The response frame without its size; None when there is none."""
        outcome = self.way.serve(bytearray(frame), self.client)
        chunks = await outcome.wait() if isinstance(outcome, Pending) else outcome
        if chunks is None:
            return None
        joined = b"".join(chunk.read() if hasattr(chunk, "read") else bytes(chunk) for chunk in chunks)
        assert int.from_bytes(joined[:4], "big") == len(joined) - 4
        return joined[4:]

    def frame(self, key: ApiKey, version: int, /, client_id: str | None = "test", **body: Any) -> bytes:
        """A request without its size; names of topics are sent as their ids in versions that have those."""
        return frame_by_ids(key, version, self._id_of, client_id, **body)[4:]

    def _id_of(self, topic: str | bytes) -> bytes:
        known = self.parts.metadata_cache.topics.get(topic) if isinstance(topic, str) else None
        return topic if isinstance(topic, bytes) else NO_SUCH_ID if known is None else known.topic_id.bytes

    def dispatch(self, key: ApiKey, version: int, /, **body: Any) -> Any:
        """Return the response before any of it is sent: chunks, or a Pending of them."""
        return self.way.serve(bytearray(self.frame(key, version, **body)), self.client)

    async def call(self, key: ApiKey, version: int, /, client_id: str | None = "test", **body: Any) -> Any:
        response = await self.answer(self.frame(key, version, client_id, **body))
        if response is None:
            return None
        answer = decode_response(key, version, response)[1]
        ids = BY_ID.get(key)
        known = self.parts.metadata_cache.topics_by_id
        if ids is not None and version >= ids.first:
            name_topics(answer, ids.answered, known)
        return answer

    async def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        rows = [(key.replace("_", "."), str(value)) for key, value in configs.items()]
        answer = await self.call(ApiKey.CREATE_TOPICS, 2, topics=[(name, partitions, 1, [], rows)], timeout_ms=1000)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    async def produce(
        self, topic: str, values: Iterable[bytes], *, partition: int = 0, acks: int = 1, version: int = 7
    ) -> Any:
        """Write one batch of values; as `write`."""
        batch = build_batch([Record(offset, NOW_MS, None, value, ()) for offset, value in enumerate(values)])
        return await self.write(topic, batch, partition=partition, acks=acks, version=version)

    async def write(
        self, topic: str, batch: bytes | bytearray, *, partition: int = 0, acks: int = 1, version: int = 7, **body: Any
    ) -> Any:
        """Write a batch as it is; the partition's row of the answer, None for acks=0."""
        given = produce_body(topic, batch, partition=partition, acks=acks) | {"timeout_ms": 1000} | body
        answer = await self.call(ApiKey.PRODUCE, version, **given)
        return None if answer is None else answer.topics[0].partitions[0]

    async def fetch(self, *rows: tuple[Any, ...], version: int = 8, **options: Any) -> Any:
        """Fetch rows as `fetch_body` takes them; the whole answer."""
        return await self.call(ApiKey.FETCH, version, **fetch_body(*rows, **options))

    async def park(self, ask: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Parked:
        """Ask in a task of its own, and see that the request waits."""
        parked = await self.start(ask, *args, **options)
        assert await parked.seen() is None
        return parked

    async def start(self, ask: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Parked:
        """Ask in a task of its own, and return when the request waits or is answered."""
        parked = Parked()
        self.nursery.start_soon(parked.ask, ask, args, options)
        await wait_all_tasks_blocked()
        return parked

    def log_of(self, topic: str, partition: int = 0) -> Any:
        return self.parts.replica_manager.partitions.led(TopicPartition(topic, partition)).log


MakeBroker = Callable[..., InMemoryBroker]


@pytest.fixture
def in_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the brokers that a test makes serve a controller, as those do that share the state of their cluster."""
    monkeypatch.setattr(FileState, "is_shared", True)


@pytest.fixture
async def make_broker(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[MakeBroker]:
    """Make brokers with settings given as keywords (`num_partitions=3`)."""
    brokers: list[InMemoryBroker] = []

    def make(data_dir: Path | None = None, *, profile: Profile = EVERYTHING, **settings: object) -> InMemoryBroker:
        own_dir = data_dir or tmp_path / f"data{len(brokers)}"
        brokers.append(InMemoryBroker(own_dir, nursery, profile=profile, **settings))
        return brokers[-1]

    yield make
    for broker in brokers:
        broker.close()
    nursery.cancel_scope.cancel()


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    return make_broker()
