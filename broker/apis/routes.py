"""Maps each API to its handler: each family of handlers lists its APIs in `routes`.

Building a broker checks that each row of API_TABLE has one handler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from minibroker.broker.apis.client import Client
from minibroker.broker.pending import Pending
from minibroker.protocol.api import API_TABLE, ApiKey, Request

Body = Any
Handler = Callable[[Request, Client], Body | Pending[Body]]
Routes = dict[ApiKey, Handler]


class Family(Protocol):
    """Handlers that belong together."""

    def routes(self) -> Routes: ...


def handlers_of(families: Iterable[Family]) -> dict[int, Handler]:
    """Return the handler of each API. Raises ValueError for an API with none, or two."""
    handlers: dict[int, Handler] = {}
    for family in families:
        for key, handler in family.routes().items():
            if key in handlers:
                raise ValueError(f"{key.name} has two handlers: {handlers[key]} and {handler}")
            handlers[key] = handler
    missing = [ApiKey(key).name for key in API_TABLE if key not in handlers]
    if missing:
        raise ValueError(f"no handler for {', '.join(missing)}")
    return handlers
