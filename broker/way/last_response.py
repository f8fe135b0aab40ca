"""A response after which the broker closes the connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# How long a client may take to close the connection first: some (kafka-python 3) overlook an answer if the end of the
# connection comes with it.
LINGER_MS = 200


class LastResponse(list[Any]):
    """The chunks of the response, and the reason for the end."""

    def __init__(self, chunks: Iterable[Any], reason: str) -> None:
        super().__init__(chunks)
        self.reason = reason
