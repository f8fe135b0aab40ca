"""The rights of clients, as handlers ask for them by `client.may`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from minibroker.broker.principal import Principal
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation

Resource = tuple[ResourceType, str]


class Who(Protocol):
    """The facts of a client that rights go by; `host` is its IP address."""

    principal: Principal
    host: str


class Decisions(dict[str, bool]):
    """Whether a client may do one operation on resources of one type, by their names; looking one up decides it."""

    def __missing__(self, name: str) -> bool:
        return True


EVERYTHING = Decisions()


class Rights:
    """The rights of clients: all of them, unless a stage entitles a client to fewer."""

    def decisions(self, who: Who, operation: Operation, resource_type: ResourceType) -> Decisions:
        """The decisions of one kind, valid for the request in hand."""
        return EVERYTHING

    def allowed(self, who: Who, operations: Iterable[Operation], resource: Resource) -> list[Operation]:
        """Return those of the operations that a client may do."""
        return list(operations)


ALL_RIGHTS = Rights()
