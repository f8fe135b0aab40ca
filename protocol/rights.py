"""The rights that an authorizer decides on: an operation on a resource, in Kafka's numbers and Kafka's names.

`api_table.py` declares for each API which rights its requests ask for, in order: `READ.on(GROUP)`. Which resources of
this type a request names, and whether the right is for the whole request or for each of its rows, follows from the
meaning of the message's fields (`protocol/resources.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.resources import ResourceType

FOREVER = 2**15


class Operation(IntEnum):
    """Kafka's AclOperation. In a rule ALL stands for every operation; ANY is only for filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15  # as kafka 4.1; no rule of ours has it

    __hash__ = int.__hash__  # as ResourceType

    @property
    def title(self) -> str:
        """The operation's name in Kafka's tools and documentation: `DescribeConfigs`."""
        return self.name.title().replace("_", "")

    def on(self, resource_type: ResourceType) -> Right:
        return Right(self, resource_type)


class Permission(IntEnum):
    """Kafka's AclPermissionType; ANY is only for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(IntEnum):
    """Kafka's PatternType: how a rule names its resources. ANY and MATCH are only for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Right(NamedTuple):
    """An operation on the resources of one type that a request names; `otherwise` is enough in its place."""

    operation: Operation
    resource_type: ResourceType
    otherwise: Right | None = None
    versions: tuple[int, int] = (0, FOREVER)
    by_handler_since: int = FOREVER

    def or_(self, other: Right) -> Right:
        """Either of two; a request that has neither gets the error of the second."""
        return self._replace(otherwise=other)

    def since(self, first: int) -> Right:
        return self._replace(versions=(first, self.versions[1]))

    def until(self, last: int) -> Right:
        return self._replace(versions=(self.versions[0], last))

    def by_handler(self, *, since: int = 0) -> Right:
        """The handler asks for it, from version `since` on: the declaration of the request does not show when it is
        needed, or for what."""
        return self._replace(by_handler_since=since)

    def is_in(self, version: int) -> bool:
        return self.versions[0] <= version <= self.versions[1]

    @property
    def alternatives(self) -> Iterator[Right]:
        right: Right | None = self
        while right is not None:
            yield right
            right = right.otherwise

    @property
    def subject(self) -> ResourceType:
        """The type of the resources that a request names for this right."""
        *_, last = self.alternatives
        return last.resource_type

    @property
    def refusal(self) -> ErrorCode:
        """The error code of a request, or of a row, without the right."""
        return REFUSALS[self.subject]

    def __str__(self) -> str:
        return " or ".join(f"{each.operation.title} {each.resource_type.title}" for each in self.alternatives)


REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
