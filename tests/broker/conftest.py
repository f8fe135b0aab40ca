"""A whole broker without a process: the real parts on a temporary directory, requests as bytes, no socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.apis.client import Client
from minibroker.broker.app import BrokerApp
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import EVERYTHING, Profile
from minibroker.broker.pending import Pending
from minibroker.broker.time.clock import Clock
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID, TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch

NOW_MS = 1_500_000_000_000


class FixedClock(Clock):
    """Waiting follows trio's clock, as ever; the wall clock stands still until it is moved."""

    def __init__(self) -> None:
        self.wall_now_ms = NOW_MS

    def wall_ms(self) -> int:
        return self.wall_now_ms


class InMemoryBroker:
    """Answers requests through the same bytes a connection would."""

    def __init__(
        self, data_dir: Path, nursery: trio.Nursery, *, profile: Profile = EVERYTHING, **settings: object
    ) -> None:
        given = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.clock = FixedClock()
        config = KafkaConfig({"log.dirs": str(data_dir), "broker.id": "0", **given}, profile=profile)
        self.app = BrokerApp(config, self.clock)
        self.app.load()
        self.parts = self.app.build()
        self.timers, self.registry = self.parts.timers, self.parts.registry
        self.client = Client("127.0.0.1:50000", "127.0.0.1", 9092)
        self.parts.start_tasks(nursery)

    def close(self) -> None:
        self.app.close(self.parts)

    async def answer(self, frame: bytes) -> bytes | None:
        """The response frame without its size; None when there is none."""
        outcome = self.registry.dispatch(bytearray(frame), self.client)
        chunks = await outcome.wait() if isinstance(outcome, Pending) else outcome
        if chunks is None:
            return None
        joined = b"".join(chunk.read() if hasattr(chunk, "read") else bytes(chunk) for chunk in chunks)
        assert int.from_bytes(joined[:4], "big") == len(joined) - 4
        return joined[4:]

    async def call(self, key: ApiKey, version: int, /, client_id: str | None = "test", **body: Any) -> Any:
        request = encode_request(key, version, 1, client_id, API_TABLE[key].request(**body))
        response = await self.answer(request[4:])
        return None if response is None else decode_response(key, version, response)[1]

    async def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        rows = [(key.replace("_", "."), str(value)) for key, value in configs.items()]
        answer = await self.call(ApiKey.CREATE_TOPICS, 2, topics=[(name, partitions, 1, [], rows)], timeout_ms=1000)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer

    async def produce(
        self, topic: str, values: Iterable[bytes], *, partition: int = 0, acks: int = 1, version: int = 7
    ) -> Any:
        """Write one batch; the partition's row of the answer, None for acks=0."""
        records = [Record(offset, NOW_MS, None, value, ()) for offset, value in enumerate(values)]
        batch = build_batch(records)
        answer = await self.call(
            ApiKey.PRODUCE, version, acks=acks, timeout_ms=1000, topics=[(topic, [(partition, batch)])]
        )
        return None if answer is None else answer.topics[0].partitions[0]

    async def fetch(
        self,
        *positions: tuple[str, int, int],
        version: int = 8,
        max_partition_bytes: int = 1 << 20,
        **body: Any,
    ) -> Any:
        """Fetch (topic, partition, offset)...; the whole answer."""
        options = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20, **body}
        topics = [
            (topic, [(partition, -1, offset, -1, -1, max_partition_bytes)]) for topic, partition, offset in positions
        ]
        return await self.call(ApiKey.FETCH, version, topics=topics, **options)

    def log_of(self, topic: str, partition: int = 0) -> Any:
        return self.parts.replica_manager.partitions[TopicPartition(topic, partition)].log


MakeBroker = Callable[..., InMemoryBroker]


def by_name(*names: str) -> list[Any]:
    """What a Metadata request asks for."""
    return [(ZERO_UUID, name) for name in names]


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
