"""The client of a request as handlers know it, and the error with which a handler closes the connection."""

from __future__ import annotations


class Client:
    """The client of one connection. `client_id` is that of its latest request."""

    __slots__ = ("__weakref__", "address", "client_id", "local_host", "local_port")

    def __init__(self, address: str, local_host: str, local_port: int) -> None:
        self.address = address
        self.local_host = local_host
        self.local_port = local_port
        self.client_id: str | None = None


class CloseConnectionError(Exception):
    """Close the connection instead of answering (a failed acks=0 produce), after sending `last_bytes`."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes
