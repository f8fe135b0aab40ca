"""A connection to another broker, as the parts that ask one need it; `network/peer.py` has it."""

from __future__ import annotations

from typing import Any, Protocol


class OtherBroker(Protocol):
    """A connection to another broker, made for the first request."""

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        """Send a request, return the body of its answer. Raises ConnectionError."""

    def close(self) -> None: ...
