"""The client of a request as handlers know it, and the error with which a handler closes the connection."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from minibroker.broker.apis.rights import ALL_RIGHTS, Decisions, Resource, Rights
from minibroker.broker.principal import ANONYMOUS, Principal
from minibroker.protocol.framing import FrameDecoder
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation

if TYPE_CHECKING:
    from minibroker.broker.replica.decisions import Broker

PLAINTEXT = "PLAINTEXT"
UNKNOWN_SOFTWARE = ("unknown", "unknown")


class Meter(Protocol):
    """Counts what a client fetches, for a stage that may withhold it."""

    def withholds(self, size_bytes: int) -> bool:
        """Count a response of this size; return whether it goes without records."""


class Client:
    """The client of one connection. `client_id` is that of its latest request.

    `listener` is the name of the listener that it came by. `principal` changes when it authenticates. `host` is its IP
    address, as ACLs name hosts. `software` is the name and the version of its library, as it said. `frames` cuts what
    it sends into frames, None without a connection.
    `login` is None, or leads its requests through an authentication: with `is_done`, and `expects_token` before a
    token without a header.
    With `may_everything` no right needs to be asked for. A stage may set the `meter` of its Fetch in hand, and that no
    further request is read until the clock is at `muted_until_ms`, 0 for at once.
    Connections are numbered as they are accepted; transcripts, faults and the log name them by these numbers.
    """

    __slots__ = (
        "address",
        "client_id",
        "frames",
        "host",
        "listener",
        "local_host",
        "local_port",
        "login",
        "may_everything",
        "meter",
        "muted_until_ms",
        "number",
        "principal",
        "rights",
        "software",
    )

    def __init__(
        self,
        address: str,
        local_host: str,
        local_port: int,
        number: int = 1,
        *,
        listener: str = PLAINTEXT,
        principal: Principal = ANONYMOUS,
    ) -> None:
        self.number = number
        self.address = address
        self.host = address.rpartition(":")[0]
        self.listener = listener
        self.principal = principal
        self.local_host = local_host
        self.local_port = local_port
        self.client_id: str | None = None
        self.software = UNKNOWN_SOFTWARE
        self.frames: FrameDecoder | None = None
        self.login: Any = None
        self.meter: Meter | None = None
        self.rights = ALL_RIGHTS
        self.may_everything = True
        self.muted_until_ms = 0

    def address_of(self, broker: Broker) -> tuple[str, int] | None:
        """Return host and port by which this client reaches a broker; None if its listener is not advertised there."""
        endpoint = broker.endpoints.get(self.listener)
        if endpoint is None:
            return None
        host, port = endpoint
        return host or self.local_host, port or self.local_port

    def send_by(self, frames: FrameDecoder) -> None:
        """Have what the client sends cut into frames by this decoder."""
        self.frames = frames

    def name(self, client_id: str | None) -> None:
        """Note the client id of the request in hand."""
        self.client_id = client_id

    def introduce(self, software_name: str, software_version: str) -> None:
        self.software = software_name, software_version

    def authenticate(self, principal: Principal) -> None:
        """Serve it as this principal from now on."""
        self.principal = principal

    def log_in(self, login: Any) -> None:
        """Lead its next requests through `login`, or no more."""
        self.login = login

    def measure(self, meter: Meter | None) -> None:
        """Count the answer to its Fetch in hand by `meter`."""
        self.meter = meter

    def entitle(self, rights: Rights) -> None:
        """Allow it only what these rights do."""
        self.rights = rights
        self.may_everything = False

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return self.rights.decisions(self, operation, resource_type)[name]

    def decisions(self, operation: Operation, resource_type: ResourceType) -> Decisions:
        return self.rights.decisions(self, operation, resource_type)

    def allowed(self, operations: Iterable[Operation], resource: Resource) -> list[Operation]:
        """Return those of the operations that it may do on a resource."""
        return self.rights.allowed(self, operations, resource)

    def mute(self, until_ms: int) -> None:
        """Read no further request of it before this time; 0 ends that."""
        self.muted_until_ms = until_ms

    def __str__(self) -> str:
        return f"connection {self.number} of {self.address}"


class CloseConnectionError(Exception):
    """Close the connection instead of answering (a failed acks=0 produce), after sending `last_bytes`."""

    def __init__(self, reason: str, last_bytes: bytes = b"") -> None:
        super().__init__(reason)
        self.last_bytes = last_bytes
