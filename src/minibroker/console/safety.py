"""Refuses what a page elsewhere could make a browser send here, and keeps this page's own content harmless.

In this order: a foreign Host (DNS rebinding), a request that another site caused, a missing token, a change that was
not allowed at the start. Cookies are never used, and no CORS header is ever sent. Routes see the path as it was sent,
not decoded: a group may be named `a/b`.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from minibroker.client.local_names import host_name
from minibroker.console.options import ConsoleOptions

READING = ("GET", "HEAD")
CHANGING = ("POST", "PUT", "DELETE")
GUARDED = ("/api/", "/metrics")
JSON_TYPE = "application/json"
BEARER = "Bearer "
POLICY_VIOLATION = 1008  # closes a WebSocket, which nothing here uses

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Refusal(NamedTuple):
    status: int
    error: str


class Safety:
    """Stands between the server and the application."""

    def __init__(self, app: ASGIApp, options: ConsoleOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            path = scope.get("raw_path", scope["path"].encode()).partition(b"?")[0].decode("latin-1")
            await self._serve({**scope, "path": path}, receive, safe(send))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = refusal_of(self._options, scope["method"], scope["path"], headers_of(scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        body = json.dumps({"error": refusal.error}).encode()
        headers = [(b"content-type", JSON_TYPE.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def headers_of(scope: Scope) -> dict[str, str]:
    """Headers by their lower-case names; the values of one that comes twice are joined, as HTTP has it."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        found[key] = f"{found[key]}, {text}" if key in found else text
    return found


def refusal_of(options: ConsoleOptions, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
    """Why a request is not served, or None."""
    host = headers.get("host", "")
    if host_name(host) not in options.allowed_hosts:
        return Refusal(400, f"this console is not {host or 'nameless'}; start it with --host-name for another name")
    if method not in READING + CHANGING:
        return Refusal(405, f"{method} is not served here; use GET, POST, PUT or DELETE")
    if comes_from_elsewhere(method, path, headers, host):
        return Refusal(403, "another site made the browser send this; open the console's own address")
    if method in READING and (options.is_local or not path.startswith(GUARDED)):
        return None
    if options.token is None or not has_token(headers, options.token):
        return Refusal(401, "this needs the console's token; open the address that the console printed at its start")
    return None if method in READING else refusal_of_change(options, headers)


def comes_from_elsewhere(method: str, path: str, headers: Mapping[str, str], host: str) -> bool:
    """Whether a page of another origin caused the request; a link to a page may come from anywhere."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return method not in READING or path.startswith(GUARDED) or not is_link
    origin = headers.get("origin")  # browsers that do not send Sec-Fetch-Site send it with every change
    return origin is not None and urlsplit(origin).netloc.lower() != host.lower()


def has_token(headers: Mapping[str, str], token: str) -> bool:
    given = headers.get("authorization", "")
    return given.startswith(BEARER) and hmac.compare_digest(given.removeprefix(BEARER).encode(), token.encode())


def refusal_of_change(options: ConsoleOptions, headers: Mapping[str, str]) -> Refusal | None:
    if not options.allow_changes:
        return Refusal(403, "this console only shows; start it with --allow-changes to change something")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON_TYPE:
        return Refusal(415, f"a change is {JSON_TYPE}; set Content-Type")
    return None


def safe(send: Send) -> Send:
    """Adds the headers that keep a browser from doing more with a response than this page needs."""

    async def send_safe(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
        await send(message)

    return send_safe
