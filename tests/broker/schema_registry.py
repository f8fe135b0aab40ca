"""A schema registry in a test's own process: requests by ASGI, no socket."""

from __future__ import annotations

import json
from typing import Any

from minibroker.broker.wings.registry.access import Access
from minibroker.broker.wings.registry.registry import Registry
from minibroker.broker.wings.registry.rest import RestApi
from minibroker.broker.wings.registry.schema_log import SchemaLog
from tests.broker.conftest import InMemoryBroker

LOCAL = ("127.0.0.1", 50_000)


class AskedRegistry:
    """The registry of a broker."""

    def __init__(self, broker: InMemoryBroker) -> None:
        self._app = RestApi(Registry(SchemaLog(broker.parts)), Access(broker.parts, is_local=True))

    async def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """The status and the value of the answer; `body` is sent as JSON, bytes as they are."""
        sent = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        address, _, query = path.partition("?")
        named = {"host": "localhost:8081"} | headers
        scope = {
            "type": "http",
            "method": method,
            "path": address,
            "raw_path": address.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in named.items()],
            "client": LOCAL,
        }
        answers: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": sent}

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)

        await self._app(scope, receive, send)
        text = answers[1]["body"].decode()
        return answers[0]["status"], json.loads(text) if text else None

    async def register(self, subject: str, schema: object, **rest: object) -> tuple[int, Any]:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return await self.ask("POST", f"/subjects/{subject}/versions", {"schema": text, **rest})
