"""An in-memory broker with a fault injector, and connections of several clients."""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.app import way_of
from minibroker.broker.wings.testing.faults.fault import Fault
from minibroker.broker.wings.testing.wing import FaultWing
from minibroker.protocol.api import ApiKey
from tests.broker.asking import batch_of
from tests.broker.conftest import InMemoryBroker


class Faulty:
    """`broker` answers through `injector`; `client` is who asks."""

    def __init__(self, broker: InMemoryBroker, kept_max: int = 10_000) -> None:
        self.broker = broker
        self.clients = [broker.client]
        wing = FaultWing(broker.parts, lambda: self.clients, kept_max)
        broker.parts.wings.insert(0, wing)
        self.injector = wing.injector
        broker.way = way_of(broker.parts)

    def add(self, kind: str, **arguments: Any) -> Fault:
        """Make a fault as a test does."""
        return self.injector._faults[self.injector.add(kind, **arguments)]

    def connect(self, address: str) -> Client:
        """From now on another client asks."""
        self.broker.client = Client(address, "127.0.0.1", 9092, len(self.clients) + 1)
        self.clients.append(self.broker.client)
        return self.broker.client


async def produce_to(broker: InMemoryBroker, *places: tuple[str, int], acks: int = 1, client_id: str = "test") -> Any:
    """Produce one record each; the errors by place, None for no answer."""
    topics: dict[str, list[Any]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append((partition, batch_of()))
    answer = await broker.call(
        ApiKey.PRODUCE, 7, client_id=client_id, acks=acks, timeout_ms=1000, topics=list(topics.items())
    )
    return None if answer is None else errors_of(answer)


def end_of(broker: InMemoryBroker, topic: str, partition: int = 0) -> int:
    offset: int = broker.log_of(topic, partition).log_end_offset
    return offset


def errors_of(answer: Any) -> dict[tuple[str, int], int]:
    return {(topic, row.partition): row.error_code for topic, rows in answer.topics for row in rows}
