"""Decides whether a principal may do an operation on a resource; pure.

As kafka 2.0.1 SimpleAclAuthorizer, with prefixes of one character too, which never match there. In this order:

1. a super user may do everything;
2. a resource that no rule is for is open to all, or to none (`allow.everyone.if.no.acl.found`);
3. a DENY rule that fits forbids; 4. an ALLOW rule that fits allows; 5. everything else is forbidden.

A decision is kept until the rules change, so that a request with many resources costs a lookup for each.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from minibroker.broker.apis.rights import Decisions, Resource, Rights, Who
from minibroker.broker.principal import Principal
from minibroker.broker.wings.security.acls.rules import EVERY_USER, WILDCARD, AclRule
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

# An ALLOW rule for an operation that implies another one allows that too; a DENY rule forbids its own only.
IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
# Names come from clients: this bounds the memory for the decisions on them, with a constant part for each.
REMEMBERED_CHARACTERS_MAX = 10_000_000
CHARACTERS_A_DECISION = 100

logger = logging.getLogger(__name__)


class RuleIndex:
    """Finds the rules for a resource: by its name, by the wildcard, and by each length of a prefix."""

    def __init__(self, rules: Iterable[AclRule]) -> None:
        self._literal: dict[Resource, list[AclRule]] = {}
        self._prefixed: dict[Resource, list[AclRule]] = {}
        lengths: dict[ResourceType, set[int]] = {}
        for rule in rules:
            resource = (rule.resource_type, rule.name)
            if rule.pattern is Pattern.PREFIXED:
                self._prefixed.setdefault(resource, []).append(rule)
                lengths.setdefault(rule.resource_type, set()).add(len(rule.name))
            else:
                self._literal.setdefault(resource, []).append(rule)
        self._lengths = {resource_type: sorted(each) for resource_type, each in lengths.items()}

    def rules_for(self, resource_type: ResourceType, name: str) -> list[AclRule]:
        found = [*self._literal.get((resource_type, name), ())]
        if name != WILDCARD:
            found += self._literal.get((resource_type, WILDCARD), ())
        for length in self._lengths.get(resource_type, ()):
            if length > len(name):
                break
            found += self._prefixed.get((resource_type, name[:length]), ())
        return found


class KeptDecisions(Decisions):
    """Return whether one principal at one host may do one operation on resources of one type, by their names.

    Looking up a name decides it. Valid until the rules change; not to be kept beyond a request.
    """

    __slots__ = ("_authorizer", "_host", "_operation", "_principal", "_resource_type")

    def __init__(
        self,
        authorizer: Authorizer,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
    ) -> None:
        super().__init__()
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._operation = operation
        self._resource_type = resource_type

    def __missing__(self, name: str) -> bool:
        decision = self._authorizer.decide(self._principal, self._host, self._operation, self._resource_type, name)
        self._authorizer.note_decision(name)
        self[name] = decision
        if not decision:
            logger.info(
                "%s at %s may not %s %s %.200r (logged once, until the ACLs change)",
                self._principal,
                self._host,
                self._operation.title,
                self._resource_type.title,
                name,
            )
        return decision


class Authorizer(Rights):
    """Decides by the rules of `set_rules`."""

    def __init__(
        self,
        rules: Iterable[AclRule] = (),
        *,
        super_users: Collection[Principal] = (),
        allows_everyone_without_rules: bool = False,
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allows_everyone_without_rules = allows_everyone_without_rules
        self._decisions: dict[tuple[Principal, str, Operation, ResourceType], KeptDecisions] = {}
        self._remembered_characters = 0
        self._index = RuleIndex(rules)

    def set_rules(self, rules: Iterable[AclRule]) -> None:
        """Decide by these rules from now on."""
        self._index = RuleIndex(rules)
        self._forget_decisions()

    def decisions(self, who: Who, operation: Operation, resource_type: ResourceType) -> Decisions:
        """The decisions of one kind, by the names of resources."""
        key = (who.principal, who.host, operation, resource_type)
        found = self._decisions.get(key)
        if found is None:
            found = KeptDecisions(self, *key)
            self.note_decision(who.host)
            self._decisions[key] = found
        return found

    def allowed(self, who: Who, operations: Iterable[Operation], resource: Resource) -> list[Operation]:
        """Return those of the operations that a client may do, without a log line for the others."""
        return [each for each in operations if self.decide(who.principal, who.host, each, *resource)]

    def note_decision(self, name: str) -> None:
        """Count what a decision takes; forget all of them when they take too much."""
        self._remembered_characters += len(name) + CHARACTERS_A_DECISION
        if self._remembered_characters > REMEMBERED_CHARACTERS_MAX:
            self._forget_decisions()

    def _forget_decisions(self) -> None:
        for decisions in self._decisions.values():
            decisions.clear()
        self._decisions.clear()
        self._remembered_characters = 0

    def decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Decide anew, by the rules."""
        if principal in self._super_users:
            return True
        rules = self._index.rules_for(resource_type, name)
        if not rules:
            return self._allows_everyone_without_rules
        mine = [rule for rule in rules if is_for(rule, principal, host)]
        if any(rule.permission is Permission.DENY and rule.operation in (operation, Operation.ALL) for rule in mine):
            return False
        enough = {operation, Operation.ALL, *IMPLIED_BY.get(operation, ())}
        return any(rule.permission is Permission.ALLOW and rule.operation in enough for rule in mine)


def is_for(rule: AclRule, principal: Principal, host: str) -> bool:
    return rule.host in (host, WILDCARD) and rule.principal in (str(principal), EVERY_USER)
