"""Rules of the authorizer as tests write them."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker import Acl

CLUSTER, TOPIC, GROUP, TRANSACTIONAL_ID = 4, 2, 3, 5
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
READ, WRITE, ALTER = 3, 4, 7


@pytest.mark.parametrize(
    ("acl", "rules"),
    [
        (Acl("ann", "read", topic="t"), [(TOPIC, "t", LITERAL, "User:ann", "*", ALLOW, READ)]),
        (Acl("*", "write", topic_prefix="t-"), [(TOPIC, "t-", PREFIXED, "User:*", "*", ALLOW, WRITE)]),
        (Acl("ann", "read", group="g", deny=True), [(GROUP, "g", LITERAL, "User:ann", "*", DENY, READ)]),
        (
            Acl("ann", "write", transactional_id_prefix="x", host="10.0.0.1"),
            [(TRANSACTIONAL_ID, "x", PREFIXED, "User:ann", "10.0.0.1", ALLOW, WRITE)],
        ),
        (Acl("ann", "Alter", cluster=True), [(CLUSTER, "kafka-cluster", LITERAL, "User:ann", "*", ALLOW, ALTER)]),
        (
            Acl("ann", "DescribeConfigs", "alter_configs", cluster=True),
            [(CLUSTER, "kafka-cluster", LITERAL, "User:ann", "*", ALLOW, number) for number in (10, 11)],
        ),
        (
            Acl("ann", "read", "write", topic="t", group="g"),
            [
                (TOPIC, "t", LITERAL, "User:ann", "*", ALLOW, READ),
                (TOPIC, "t", LITERAL, "User:ann", "*", ALLOW, WRITE),
                (GROUP, "g", LITERAL, "User:ann", "*", ALLOW, READ),
                (GROUP, "g", LITERAL, "User:ann", "*", ALLOW, WRITE),
            ],
        ),
    ],
)
def test_an_acl_is_a_rule_for_each_operation_on_each_resource(acl: Acl, rules: list[tuple[Any, ...]]) -> None:
    assert list(acl.rules) == rules


@pytest.mark.parametrize(
    ("operations", "resources", "reason"),
    [
        (["consume"], {"topic": "t"}, "'consume' is none of the operations all, read"),
        ([], {"topic": "t"}, "'' is none of the operations"),
        (["read"], {}, "an Acl needs a resource"),
    ],
)
def test_an_acl_without_a_meaning_is_refused(operations: list[str], resources: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Acl("ann", *operations, **resources)


def test_acls_of_the_same_rules_are_equal() -> None:
    assert Acl("ann", "read", topic="t") == Acl("ann", "read", topic="t") != Acl("ann", "read", topic="u")
