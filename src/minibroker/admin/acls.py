"""Access rules: what options name, and what a cluster answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from minibroker.client.errors import check, error_name
from minibroker.errors import CommandFailed
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

EVERY_HOST = "*"


class Rule(NamedTuple):
    """An ACL."""

    resource_type: ResourceType
    name: str
    pattern: Pattern
    principal: str
    host: str
    permission: Permission
    operation: Operation

    def __str__(self) -> str:
        may = "may" if self.permission is Permission.ALLOW else "may not"
        operation = "do everything on" if self.operation is Operation.ALL else self.operation.title
        where = "" if self.host == EVERY_HOST else f" from {self.host}"
        return f"{self.principal} {may} {operation} {self.resource}{where}"

    @property
    def resource(self) -> str:
        kind = self.resource_type.name.lower().replace("_", " ")
        if self.resource_type is ResourceType.CLUSTER and self.name == CLUSTER_NAME:
            return "the cluster"
        return f"{kind} {self.name}{'...' if self.pattern is Pattern.PREFIXED else ''}"

    def as_document(self) -> dict[str, str]:
        return {
            "resource_type": self.resource_type.title,
            "name": self.name,
            "pattern": self.pattern.name.lower(),
            "principal": self.principal,
            "host": self.host,
            "permission": self.permission.name.lower(),
            "operation": self.operation.title,
        }


class Wanted(NamedTuple):
    """Selects rules; None stands for any, as Pattern.ANY does; MATCH selects the rules that apply to a name."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: Pattern = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    permission: Permission = Permission.ANY
    operation: Operation = Operation.ANY


class Names(NamedTuple):
    """The resources that a command names."""

    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()
    cluster: bool = False

    def resources(self) -> Iterator[tuple[ResourceType, str]]:
        for resource_type, names in (
            (ResourceType.TOPIC, self.topics),
            (ResourceType.GROUP, self.groups),
            (ResourceType.TRANSACTIONAL_ID, self.transactional_ids),
        ):
            yield from ((resource_type, name) for name in names)
        if self.cluster:
            yield CLUSTER


class Roles(NamedTuple):
    producer: bool = False
    idempotent: bool = False
    consumer: bool = False


CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)
# What a role needs of the resources of each type, as kafka 2.0's kafka-acls.
OF_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
OF_CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}


class Request(NamedTuple):
    """The rules to add or to remove, as the options name them."""

    names: Names
    roles: Roles
    operations: Sequence[str]
    allowed: Sequence[str]
    denied: Sequence[str]
    hosts: Sequence[str]
    is_prefixed: bool

    def rules(self) -> Iterator[Rule]:
        """Every combination, each once; all operations and every host unless they are named."""
        found = {
            Rule(*resource, self._pattern(resource), principal, host, permission, operation)
            for resource, operation in self._operations(Operation.ALL)
            for permission, principal in self._principals()
            for host in self.hosts or (EVERY_HOST,)
        }
        return iter(sorted(found))

    def wanted(self) -> Iterator[Wanted]:
        """As `rules`, but what is not named selects all."""
        anyone: list[tuple[Permission, str | None]] = [(Permission.ANY, None)]
        for permission, principal in [*self._principals()] or anyone:
            for host in self.hosts or (None,):
                for resource, operation in self._operations(Operation.ANY):
                    yield Wanted(*resource, self._pattern(resource), principal, host, permission, operation)
                if not any(self.names) and not self.roles.idempotent:
                    for operation in self._named_operations() or [Operation.ANY]:
                        yield Wanted(principal=principal, host=host, permission=permission, operation=operation)

    def _pattern(self, resource: tuple[ResourceType, str]) -> Pattern:
        return Pattern.PREFIXED if self.is_prefixed and resource != CLUSTER else Pattern.LITERAL

    def _principals(self) -> Iterator[tuple[Permission, str]]:
        yield from ((Permission.ALLOW, principal_of(each)) for each in self.allowed)
        yield from ((Permission.DENY, principal_of(each)) for each in self.denied)

    def _named_operations(self) -> list[Operation]:
        return [OPERATIONS[name.lower()] for name in self.operations]

    def _operations(self, default: Operation) -> Iterator[tuple[tuple[ResourceType, str], Operation]]:
        for resource in self.names.resources():
            of_roles = [
                *(OF_PRODUCER.get(resource[0], ()) if self.roles.producer else ()),
                *(OF_CONSUMER.get(resource[0], ()) if self.roles.consumer else ()),
            ]
            operations = of_roles if any(self.roles) else self._named_operations() or [default]
            yield from ((resource, operation) for operation in operations)
        if self.roles.idempotent:
            yield CLUSTER, Operation.IDEMPOTENT_WRITE


OPERATIONS = {operation.title.lower(): operation for operation in Operation}


def principal_of(user: str) -> str:
    """Kafka's name of a user: `User:NAME`, unless the type is given."""
    return user if ":" in user else f"User:{user}"


def wanted_of(names: Names, users: Sequence[str], *, applying: bool) -> list[Wanted]:
    """The filter of the rules with these names and users, of all rules if there are none."""
    pattern = Pattern.MATCH if applying else Pattern.ANY
    resources = [Wanted(*resource, pattern) for resource in names.resources()] or [Wanted()]
    principals: list[str | None] = [principal_of(user) for user in users]
    return [each._replace(principal=principal) for each in resources for principal in principals or [None]]


def no_right(what: str) -> str:
    return f"this client may not {what}: that needs Describe or Alter on the cluster; ask a super user"


def refusal(rule: Rule, code: int) -> str:
    """A broker's refusal of a rule in one line, with the next step."""
    if code == ErrorCode.SECURITY_DISABLED:
        check(code)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return f"{rule}: not added; {no_right('manage ACLs')}"
    return f"{rule}: not added ({error_name(code)}); correct the names"


def rule_of(resource: Any, acl: Any) -> Rule:
    """The rule of a row of DescribeAcls, or of a match of DeleteAcls. Raises CommandFailed for one of a later Kafka."""
    try:
        return Rule(
            ResourceType(resource.resource_type),
            resource.resource_name,
            Pattern(resource.pattern_type),
            acl.principal,
            acl.host,
            Permission(acl.permission_type),
            Operation(acl.operation),
        )
    except ValueError as error:
        raise CommandFailed(f"a rule of {acl.principal} is of a later Kafka: {error}; update minibroker") from error


def creation_of(rule: Rule) -> tuple[Any, ...]:
    """The rule as a row of CreateAcls."""
    return (rule.resource_type, rule.name, rule.pattern, rule.principal, rule.host, rule.operation, rule.permission)


def filter_of(wanted: Wanted) -> dict[str, Any]:
    """The fields of DescribeAcls, which are those of a row of DeleteAcls."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }
