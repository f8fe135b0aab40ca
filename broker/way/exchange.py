"""One request on its way: who sent it, what it asks, what it gets. The stages fill it in, and pass it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minibroker.broker.apis.charge import Charge
from minibroker.broker.apis.client import Client
from minibroker.protocol.api import Request

if TYPE_CHECKING:
    from minibroker.broker.way.guard import Denied

Body = Any


class Exchange:
    """A request and its answer. One connection has one at a time.

    `request` is as its client sent it, None before it is decoded, and for a token of SASL without a header. `served` is
    what the handler gets of it: stages leave out what is denied. `body` is the answer, as it is encoded.
    """

    __slots__ = ("body",
        "charge", "client", "denied", "frame", "has_failed", "is_login", "is_token", "last_words",
                 "request", "served", "strike")  # fmt: skip

    def __init__(self, frame: bytearray, client: Client) -> None:
        self.frame = frame
        self.client = client
        login = client.login
        self.is_login = login is not None and not login.is_done  # its client has yet to authenticate, or does so again
        self.is_token = login is not None and login.expects_token  # of SASL, without a header
        self.request: Request | None = None
        self.served: Request | None = None
        self.body: Body = None
        self.has_failed = False  # the handler: `body` has its error for the whole request
        self.charge: Charge | None = None  # on a broker with quotas
        self.denied: Denied | None = None  # what the guard has left out
        self.strike: Any = None  # of the faults of a test
        self.last_words = ""  # why the connection ends after this answer

    def narrow(self, body: Body) -> None:
        """Let the handler get a request with this body instead."""
        asked = self.served
        assert asked is not None
        key, version = asked.api_key, asked.api_version
        self.served = Request(key, version, asked.correlation_id, asked.client_id, body, asked.size_bytes)
