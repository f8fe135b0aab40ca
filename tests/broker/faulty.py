"""An in-memory broker with a fault injector, and connections of several clients."""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.app import way_of
from minibroker.broker.wings.testing.faults.fault import Fault
from minibroker.broker.wings.testing.wing import FaultWing
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
