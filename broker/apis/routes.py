"""Which handler serves which API: each family of handlers lists its own in `routes`.

Every row of API_TABLE is served, by one handler: checked when a broker is built.
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
    """One handler for every API. Raises ValueError for an API that has none, or two."""
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
