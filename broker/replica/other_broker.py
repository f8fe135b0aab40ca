"""The other brokers of a cluster, as the parts that ask one need them; `wings/several/peers.py` has the connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class OtherBroker(Protocol):
    """A connection to another broker, made for the first request."""

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        """Send a request, return the body of its answer. Raises ConnectionError."""

    def close(self) -> None: ...


# Makes a connection to a broker, with a client id; raises ConnectionError while the broker's address is unknown.
ConnectTo = Callable[[int, str], OtherBroker]


class Ways(Protocol):
    """Makes connections to the other brokers."""

    def to(self, broker_id: int, client_id: str) -> OtherBroker:
        """Connect to a broker, as a client of it. Raises ConnectionError while its address is unknown."""

    def at(self, host: str, port: int) -> OtherBroker:
        """Connect to an address, as this broker."""


class OtherBrokers:
    """The ways to the other brokers: none, until a wing makes them."""

    def __init__(self) -> None:
        self._ways: Ways | None = None

    def reach_by(self, ways: Ways) -> None:
        self._ways = ways

    def to(self, broker_id: int, client_id: str) -> OtherBroker:
        return self._known().to(broker_id, client_id)

    def at(self, host: str, port: int) -> OtherBroker:
        return self._known().at(host, port)

    def _known(self) -> Ways:
        if self._ways is None:
            raise ConnectionError("this broker reaches no other one")
        return self._ways
