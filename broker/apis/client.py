"""Who is asking: what a handler may know of a connection, and the one thing it may demand of it."""

from __future__ import annotations

from typing import Any


class Client:
    """The other side of one connection. `client_id` is that of its latest request.

    `rows_at_end` is left by a fetch that found nothing new (apis/repeated_fetch.py), for the registry to take.
    """

    __slots__ = ("__weakref__", "address", "client_id", "local_host", "local_port", "repeated_fetch", "rows_at_end")

    def __init__(self, address: str, local_host: str, local_port: int) -> None:
        self.address = address
        self.local_host = local_host
        self.local_port = local_port
        self.client_id: str | None = None
        self.rows_at_end: Any = None
        self.repeated_fetch: Any = None


class CloseConnectionError(Exception):
    """The request is answered by closing the connection (a failed acks=0 produce), after `last_bytes` of an answer."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes
