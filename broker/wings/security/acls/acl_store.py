"""The rules of the cluster: kept in the file that stands for ZooKeeper, and then in force.

The authorizer's rules are always those of the file, never a change of the rules before: removing one of several leaves
the others in force (CVE-2024-27309).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from minibroker.broker.cluster.file_state import FileStateError
from minibroker.broker.cluster.sections import Section, text_pairs
from minibroker.broker.cluster.state import Change, ClusterState
from minibroker.broker.wings.security.acls.authorizer import Authorizer
from minibroker.broker.wings.security.acls.rules import AclFilter, AclRule
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission
from minibroker.protocol.text import OTHER_FORM

# As `document_of` writes rules.
ACLS: Section[Sequence[Mapping[str, str]]] = Section(
    "acls", [], to_json=list, from_json=lambda rules: list(map(text_pairs, rules))
)


class AclStore:
    """Adds and removes rules: stored first, then the authorizer's. Raises FileStateError for an unreadable rule."""

    def __init__(self, state: ClusterState, authorizer: Authorizer) -> None:
        self._state = state
        self._authorizer = authorizer
        self.rules: Sequence[AclRule] = ()
        self.read()

    def read(self) -> None:
        """Take the stored rules, which another broker may have changed. Raises FileStateError."""
        try:
            self.rules = [rule_of(document) for document in self._state.get(ACLS)]
        except OTHER_FORM as error:
            raise FileStateError(f"an ACL of the data directory is unreadable: {error!r}") from error
        self._authorizer.set_rules(self.rules)

    def add(self, rules: Sequence[AclRule]) -> None:
        """Add rules; one that is there already changes nothing. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        while not self._replace(list(dict.fromkeys((*self.rules, *rules)))):
            self.read()

    def remove(self, filters: Sequence[AclFilter]) -> list[list[AclRule]]:
        """Remove the rules that a filter selects, and return those of each filter.

        A rule that several filters select is listed under the last of them (as by kafka 2.0.1). Raises
        KafkaError(KAFKA_STORAGE_ERROR).
        """
        while True:
            removed: list[list[AclRule]] = [[] for _ in filters]
            left: list[AclRule] = []
            for rule in self.rules:
                selecting = [number for number, each in enumerate(filters) if each.selects(rule)]
                (removed[selecting[-1]] if selecting else left).append(rule)
            if self._replace(left):
                return removed
            self.read()

    def selected(self, wanted: AclFilter) -> list[AclRule]:
        return [rule for rule in self.rules if wanted.selects(rule)]

    def _replace(self, rules: Sequence[AclRule]) -> bool:
        """Store and take the rules; return False if the stored ones have changed."""
        if len(rules) == len(self.rules):
            return True  # rules are only added, or only removed
        if not self._state.save("the ACLs", Change(sections={ACLS: [document_of(rule) for rule in rules]})):
            return False
        self.rules = rules
        self._authorizer.set_rules(rules)
        return True


def document_of(rule: AclRule) -> dict[str, str]:
    return {
        "resource_type": rule.resource_type.title,
        "name": rule.name,
        "pattern": rule.pattern.name,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.title,
        "permission": rule.permission.name,
    }


def rule_of(document: Mapping[str, str]) -> AclRule:
    """Raises KeyError."""
    return AclRule(
        RESOURCE_TYPES[document["resource_type"]],
        document["name"],
        Pattern[document["pattern"]],
        document["principal"],
        document["host"],
        OPERATIONS[document["operation"]],
        Permission[document["permission"]],
    )


RESOURCE_TYPES = {each.title: each for each in ResourceType}
OPERATIONS = {each.title: each for each in Operation}
