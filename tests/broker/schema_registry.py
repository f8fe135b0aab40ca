"""A schema registry in a test's own process, without a socket."""

from __future__ import annotations

import json
from typing import Any

from minibroker.broker.wings.registry.access import Access, Request
from minibroker.broker.wings.registry.registry import Registry
from minibroker.broker.wings.registry.rest import RestApi
from minibroker.broker.wings.registry.schema_log import SchemaLog
from tests.broker.conftest import InMemoryBroker


class AskedRegistry:
    """The registry of a broker."""

    def __init__(self, broker: InMemoryBroker) -> None:
        self._api = RestApi(Registry(SchemaLog(broker.parts)), Access(broker.parts, is_local=True))

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The status and the value of the answer; `body` is sent as JSON, bytes as they are."""
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        address, _, query = path.partition("?")
        named = {"host": "localhost:8081"} | headers

        async def given() -> bytes:
            return sent

        status, _, answer = await self._api.answer(Request(method, address, query, named, "127.0.0.1", given))
        return status, json.loads(answer) if answer else None

    async def register(self, subject: str, schema: object, **rest: object) -> tuple[int, Any]:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return await self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, **rest})
