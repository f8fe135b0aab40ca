"""A rule of the authorizer, and filters that select rules; pure.

As kafka 2.0.1 Acl, ResourcePattern and AclBindingFilter. A rule is stored as a client gave it, also one that can never
match: hosts are compared as text, and principals are of the type User.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

WILDCARD = "*"  # as a literal resource name, as a host, and in EVERY_USER
EVERY_USER = "User:*"


class AclRule(NamedTuple):
    """`principal` is a text such as `User:alice`."""

    resource_type: ResourceType
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """Selects rules whose fields are equal to its own; None, and the ANY of each type, are equal to all.

    With the pattern MATCH it selects the rules that apply to the resource `name`: those with that name, with `*`, and
    with a prefix of it.
    """

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern: int = Pattern.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def selects(self, rule: AclRule) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self._selects_resource(rule)
        )

    def _selects_resource(self, rule: AclRule) -> bool:
        if self.pattern not in (Pattern.ANY, Pattern.MATCH, rule.pattern):
            return False
        if self.name is None or rule.name == self.name:
            return True
        return self.pattern == Pattern.MATCH and applies_to(rule, self.name)


def applies_to(rule: AclRule, name: str) -> bool:
    """Return whether the rule is for the resource of this name, if it is of the rule's type."""
    if rule.pattern is Pattern.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, WILDCARD)
