"""The client of a request as handlers know it, and the error with which a handler closes the connection."""

from __future__ import annotations


class Client:
    """The client of one connection. `client_id` is that of its latest request.

    Connections are numbered as they are accepted; transcripts, faults and the log name them by these numbers.
    """

    __slots__ = ("address", "client_id", "local_host", "local_port", "number")

    def __init__(self, address: str, local_host: str, local_port: int, number: int = 1) -> None:
        self.number = number
        self.address = address
        self.local_host = local_host
        self.local_port = local_port
        self.client_id: str | None = None

    def __str__(self) -> str:
        return f"connection {self.number} of {self.address}"


class CloseConnectionError(Exception):
    """Close the connection instead of answering (a failed acks=0 produce), after sending `last_bytes`."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes
