"""Who is asking: what a handler may know of a connection, and the one thing it may demand of it."""

from __future__ import annotations


class Client:
    """The other side of one connection. `client_id` is that of its latest request."""

    __slots__ = ("__weakref__", "address", "client_id", "local_host", "local_port")

    def __init__(self, address: str, local_host: str, local_port: int) -> None:
        self.address = address
        self.local_host = local_host
        self.local_port = local_port
        self.client_id: str | None = None


class CloseConnectionError(Exception):
    """The request is answered by closing the connection (a failed acks=0 produce), after `last_bytes` of an answer."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes
