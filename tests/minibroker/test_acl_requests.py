"""The rules that the options of `minibroker acls` stand for."""

from __future__ import annotations

import pytest

from minibroker.admin.acls import Names, Request, Roles, Rule, Wanted
from minibroker.cli.app import main
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def request(
    names: Names,
    *operations: str,
    allowed: list[str] | None = None,
    denied: list[str] | None = None,
    hosts: list[str] | None = None,
    roles: Roles | None = None,
    is_prefixed: bool = False,
) -> Request:
    return Request(names, roles or Roles(), operations, allowed or [], denied or [], hosts or [], is_prefixed)


def test_every_combination_is_a_rule() -> None:
    wanted = request(Names(["t"], ["g"]), "Read", allowed=["a", "Group:x"], denied=["*"], hosts=["1.1.1.1", "2.2.2.2"])

    assert set(wanted.rules()) == {
        Rule(resource_type, name, Pattern.LITERAL, principal, host, permission, Operation.READ)
        for resource_type, name in ((TOPIC, "t"), (GROUP, "g"))
        for principal, permission in (("User:a", ALLOW), ("Group:x", ALLOW), ("User:*", DENY))
        for host in ("1.1.1.1", "2.2.2.2")
    }


def test_a_prefix_is_that_of_names_and_not_of_the_cluster() -> None:
    wanted = request(Names(["t"], cluster=True), allowed=["a"], is_prefixed=True)

    assert set(wanted.rules()) == {
        Rule(TOPIC, "t", Pattern.PREFIXED, "User:a", "*", ALLOW, Operation.ALL),
        Rule(CLUSTER, "kafka-cluster", Pattern.LITERAL, "User:a", "*", ALLOW, Operation.ALL),
    }


def test_a_removal_matches_every_value_of_fields_not_named() -> None:
    of_topic = request(Names(["t"]))
    of_user = request(Names(), "Read", allowed=["a"], denied=["b"])

    assert list(of_topic.wanted()) == [Wanted(TOPIC, "t", Pattern.LITERAL)]
    assert list(of_user.wanted()) == [
        Wanted(principal="User:a", permission=ALLOW, operation=Operation.READ),
        Wanted(principal="User:b", permission=DENY, operation=Operation.READ),
    ]


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule(TOPIC, "t", Pattern.LITERAL, "User:a", "*", ALLOW, Operation.READ), "User:a may Read topic t"),
        (
            Rule(GROUP, "g-", Pattern.PREFIXED, "User:a", "1.1.1.1", DENY, Operation.ALL),
            "User:a may not do everything on group g-... from 1.1.1.1",
        ),
        (
            Rule(CLUSTER, "kafka-cluster", Pattern.LITERAL, "User:*", "*", ALLOW, Operation.CLUSTER_ACTION),
            "User:* may ClusterAction the cluster",
        ),
        (
            Rule(ResourceType.TRANSACTIONAL_ID, "x", Pattern.LITERAL, "User:a", "*", ALLOW, Operation.WRITE),
            "User:a may Write transactional id x",
        ),
    ],
)
def test_a_rule_reads_as_a_sentence(rule: Rule, text: str) -> None:
    assert str(rule) == text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["add", "--topic", "t"], "name the users with --allow or --deny"),
        (["add", "--allow", "a"], "name the resources with --topic"),
        (["add", "--allow", "a", "--producer", "--group", "g"], "--producer needs --topic"),
        (["add", "--allow", "a", "--consumer", "--topic", "t"], "--consumer needs --topic and --group"),
        (["add", "--allow", "a", "--idempotent"], "--idempotent goes with --producer"),
        (["add", "--allow", "a", "--producer", "-t", "t", "-O", "Read"], "leave --operation out"),
        (["add", "--allow", "a", "-t", "t", "-O", "Dance"], "is not one of"),
        (["remove"], "name the resources or the users"),
    ],
)
def test_a_request_that_makes_no_sense_is_a_usage_error(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["acls", *arguments]) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert reason in err and len(err.splitlines()) == 1
