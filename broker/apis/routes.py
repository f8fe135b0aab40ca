"""Maps each API to its handler: each family of handlers lists its APIs in `routes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.pending import Pending
from minibroker.protocol.api import ApiKey, Request

Body = Any
Handler = Callable[[Request, Client], Body | Pending[Body]]
Routes = dict[ApiKey, Handler]
