"""Asks a running console over one plain connection, with exactly those headers."""

from __future__ import annotations

import http.client
import json
from typing import Any, NamedTuple

from tests.console.conftest import RunningConsole


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


def ask(
    console: RunningConsole, method: str, path: str, body: object = None, *, token: bool = False, **headers: str
) -> Answer:
    """`headers` have _ for - in their names; the Host is the console's own unless it is given."""
    host, _, port = console.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        sent.setdefault("Content-Type", "application/json")
    if token:
        sent["Authorization"] = f"Bearer {console.token}"
    try:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, content, sent)
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


def get(console: RunningConsole, path: str) -> Any:
    """The JSON of an address. Fails with the error otherwise."""
    answer = ask(console, "GET", path, token=console.token is not None)
    assert answer.status == 200, answer.body
    return answer.json


def change(console: RunningConsole, method: str, path: str, **body: object) -> Any:
    answer = ask(console, method, path, body, token=True)
    assert answer.status == 200, answer.body
    return answer.json
