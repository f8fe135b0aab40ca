"""One request on its way: who sent it, what it asks, what it gets. The stages fill it in, and pass it on."""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.protocol.api import Request
from minibroker.protocol.topic_ids import IdPlaces

Body = Any


class Exchange:
    """A request and its answer. One connection has one at a time.

    `request` is as its client sent it, None before it is decoded, and for a token of SASL without a header. `served` is
    what the handler gets of it: stages leave out what is denied. `body` is the answer, as it is encoded.
    """

    # Most requests need none of these: they are the class's until a stage sets them.
    request: Request | None = None
    served: Request | None = None
    ids: IdPlaces | None = None  # where the messages have ids of topics
    body: Body = None
    has_failed = False  # the handler: `body` has its error for the whole request
    strike: Any = None  # of the faults of a test
    notes: dict[object, Any] | None = None  # of stages, each by itself
    last_words = ""  # why the connection ends after this answer
    is_login = False  # its client has yet to authenticate, or does so again
    is_token = False  # of SASL, without a header

    def __init__(self, frame: bytearray, client: Client) -> None:
        self.frame = frame
        self.client = client
        login = client.login
        if login is not None:
            self.is_login = not login.is_done
            self.is_token = login.expects_token

    def note(self, stage: object, value: Any) -> None:
        """Keep a value of a stage, for its way out."""
        if self.notes is None:
            self.notes = {}
        self.notes[stage] = value

    def noted(self, stage: object) -> Any:
        """The value of a stage, None for none."""
        return None if self.notes is None else self.notes.get(stage)

    def narrow(self, body: Body) -> None:
        """Let the handler get a request with this body instead."""
        asked = self.served
        assert asked is not None
        key, version = asked.api_key, asked.api_version
        self.served = Request(key, version, asked.correlation_id, asked.client_id, body, asked.size_bytes)
