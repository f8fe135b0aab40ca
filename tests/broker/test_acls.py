"""The authorizer and its rules: what they decide, which rules a filter selects, and what is stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.broker.apis.client import Client
from minibroker.broker.cluster.file_state import FileState, FileStateError
from minibroker.broker.cluster.state import Change
from minibroker.broker.principal import Principal
from minibroker.broker.wings.security.acls import authorizer as authorizer_module
from minibroker.broker.wings.security.acls.acl_store import ACLS, AclStore, document_of, rule_of
from minibroker.broker.wings.security.acls.authorizer import Authorizer
from minibroker.broker.wings.security.acls.rules import AclFilter, AclRule
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
HERE, ELSEWHERE = "10.0.0.1", "10.0.0.2"


def rule(
    name: str = "orders",
    operation: Operation = READ,
    *,
    permission: Permission = ALLOW,
    pattern: Pattern = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = TOPIC,
) -> AclRule:
    return AclRule(resource_type, name, pattern, principal, host, operation, permission)


def client(user: str = "alice", host: str = HERE) -> Client:
    return Client(f"{host}:1234", "10.0.0.9", 9092, principal=Principal("User", user))


def allows(rules: Sequence[AclRule], operation: Operation = READ, **who: str) -> bool:
    return Authorizer(rules).decisions(client(**who), operation, TOPIC)["orders"]


IMPLIED = {
    DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


@pytest.mark.parametrize("held", [each for each in Operation if each is not Operation.ANY])
def test_an_operation_implies_those_of_kafka_and_its_denial_implies_none(held: Operation) -> None:
    for asked in set(Operation) - {Operation.ANY, ALL}:
        is_enough = held in (asked, ALL) or held in IMPLIED.get(asked, ())
        assert allows([rule(operation=held)], asked) == is_enough, asked
        denied = allows([rule(operation=ALL), rule(operation=held, permission=DENY)], asked)
        assert denied == (held not in (asked, ALL)), asked


def test_no_rule_denies_a_super_user_anything() -> None:
    super_users = [Principal("User", "alice")]
    authorizer = Authorizer([rule(permission=DENY)], super_users=super_users)

    assert authorizer.decisions(client(), READ, TOPIC)["orders"]
    assert not authorizer.decisions(client("alic"), READ, TOPIC)["orders"]


@pytest.mark.parametrize(
    ("rules", "is_open"),
    [
        ([], True),
        ([rule("other"), rule(resource_type=GROUP), rule("orders-", pattern=PREFIXED)], True),
        ([rule(principal="User:bob")], False),
        ([rule(principal="User:bob", permission=DENY)], False),
        ([rule("o", principal="User:bob", pattern=PREFIXED)], False),
        ([rule("*", principal="User:bob")], False),
    ],
)
def test_a_resource_that_no_rule_is_for_may_be_open_to_all(rules: list[AclRule], is_open: bool) -> None:
    authorizer = Authorizer(rules, allows_everyone_without_rules=True)

    assert authorizer.decisions(client(), READ, TOPIC)["orders"] == is_open


def test_a_decision_holds_until_the_rules_change() -> None:
    authorizer = Authorizer([rule()])
    assert authorizer.decisions(client(), READ, TOPIC)["orders"]

    authorizer.set_rules([rule(), rule(permission=DENY)])

    assert not authorizer.decisions(client(), READ, TOPIC)["orders"]


def test_a_denial_is_logged_once_until_the_rules_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    authorizer = Authorizer([rule()])

    for _ in range(3):
        authorizer.decisions(client(), READ, TOPIC)["orders"]
        authorizer.decisions(client("bob"), READ, TOPIC)["orders\n" + "x" * 500]
        authorizer.allowed(client("bob"), [READ, WRITE], (TOPIC, "orders"))

    (line,) = caplog.messages
    assert line.startswith("User:bob at 10.0.0.1 may not Read Topic 'orders\\nxxx")
    assert len(line) < 300
    authorizer.set_rules([])
    authorizer.decisions(client("bob"), READ, TOPIC)["orders"]
    assert len(caplog.messages) == 2


def test_decisions_on_names_of_clients_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer_module, "REMEMBERED_CHARACTERS_MAX", 10_000)
    authorizer = Authorizer([rule("", pattern=PREFIXED)])
    kept = 0

    for number in range(200):
        for name in (f"{number}", f"{number}".zfill(1000)):
            assert authorizer.decisions(client(), READ, TOPIC)[name]
            decisions = authorizer.decisions(client(), READ, TOPIC)
            kept = max(kept, sum(map(len, decisions)))

    assert 0 < kept < 12_000


# -- against a reference ------------------------------------------------------------------------------------------

names = st.sampled_from(["a", "ab", "abc", "b", "*"])
rules_given = st.builds(
    AclRule,
    st.sampled_from([TOPIC, GROUP]),
    names,
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(["User:alice", "User:Alice", "User:bob", "User:*", "Group:alice"]),
    st.sampled_from(["*", HERE, "10.0.0.0/8"]),
    st.sampled_from([READ, WRITE, DESCRIBE, ALL, Operation.ALTER_CONFIGS, Operation.CREATE]),
    st.sampled_from([ALLOW, DENY]),
)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(rules_given, max_size=4)),
        st.tuples(
            st.just("remove"),
            st.lists(
                st.one_of(
                    st.builds(lambda each: AclFilter(*each), rules_given),
                    st.builds(
                        AclFilter,
                        st.sampled_from([1, TOPIC, GROUP, 99]),
                        st.one_of(st.none(), names),
                        st.sampled_from(Pattern),
                        st.sampled_from([None, "User:alice", "User:*"]),
                        st.sampled_from([None, HERE]),
                        st.sampled_from([1, READ, ALL, 0]),
                        st.sampled_from(Permission),
                    ),
                ),
                max_size=3,
            ),
        ),
    ),
    max_size=8,
)


def selects(wanted: AclFilter, each: AclRule) -> bool:
    """As written down in Kafka's documentation of AccessControlEntryFilter and ResourcePatternFilter."""
    pairs = (
        (wanted.resource_type, each.resource_type, 1),
        (wanted.operation, each.operation, 1),
        (wanted.permission, each.permission, 1),
        (wanted.principal, each.principal, None),
        (wanted.host, each.host, None),
    )
    if any(asked not in (any_value, value) for asked, value, any_value in pairs):
        return False
    if wanted.pattern in (LITERAL, PREFIXED) and each.pattern != wanted.pattern:
        return False
    if wanted.name is None or each.name == wanted.name:
        return True
    if wanted.pattern != Pattern.MATCH:
        return False
    return wanted.name.startswith(each.name) if each.pattern == PREFIXED else each.name == "*"


def may(rules: set[AclRule], who: Client, operation: Operation, name: str) -> bool:
    """The five steps, on plain sets."""
    about = [
        each
        for each in rules
        if each.resource_type == TOPIC
        and (name.startswith(each.name) if each.pattern == PREFIXED else each.name in (name, "*"))
    ]
    mine = [each for each in about if each.principal in (str(who.principal), "User:*") and each.host in (who.host, "*")]
    if any(each.permission == DENY and each.operation in (operation, ALL) for each in mine):
        return False
    enough = {operation, ALL} | IMPLIED.get(operation, set())
    return any(each.permission == ALLOW and each.operation in enough for each in mine)


@given(steps=changes)
@settings(max_examples=150, deadline=None)
def test_access_follows_from_the_rules_that_are_left(
    steps: list[tuple[str, list[object]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any additions and removals (CVE-2024-27309), also read back from the file."""
    directory = tmp_path_factory.mktemp("acls")
    state = FileState(directory, 0, [ACLS])
    authorizer = Authorizer()
    store = AclStore(state, authorizer)
    reference: set[AclRule] = set()
    everyone = [client(user, host) for user in ("alice", "bob") for host in (HERE, ELSEWHERE)]

    for kind, given_values in steps:
        if kind == "add":
            added = [each for each in given_values if isinstance(each, AclRule)]
            store.add(added)
            reference |= set(added)
        else:
            filters = [each for each in given_values if isinstance(each, AclFilter)]
            selected = {each for each in reference if any(selects(wanted, each) for wanted in filters)}
            removed = store.remove(filters)
            assert len(removed) == len(filters)
            assert sorted(each for part in removed for each in part) == sorted(selected)
            reference -= selected
        assert set(store.rules) == reference
        for who in everyone:
            for operation in (READ, DESCRIBE, Operation.DESCRIBE_CONFIGS):
                for name in ("a", "ab", "abcd", "c", "*"):
                    expected = may(reference, who, operation, name)
                    assert authorizer.decisions(who, operation, TOPIC)[name] == expected, (who, operation, name)
    if (directory / "minibroker.json").exists():
        again = FileState(directory, 0, [ACLS])
        again.load([])
        assert set(AclStore(again, Authorizer()).rules) == reference


# -- the store ----------------------------------------------------------------------------------------------------


def test_a_rule_is_written_under_kafkas_names(tmp_path: Path) -> None:
    store = FileState(tmp_path, 0, [ACLS])

    AclStore(store, Authorizer()).add([rule("o", Operation.DESCRIBE_CONFIGS, pattern=PREFIXED, host=HERE)])
    store.close()

    (written,) = json.loads((tmp_path / "minibroker.json").read_text())["acls"]
    assert written == {
        "resource_type": "Topic",
        "name": "o",
        "pattern": "PREFIXED",
        "principal": "User:alice",
        "host": HERE,
        "operation": "DescribeConfigs",
        "permission": "ALLOW",
    }
    assert rule_of(written) == rule("o", Operation.DESCRIBE_CONFIGS, pattern=PREFIXED, host=HERE)


@pytest.mark.parametrize("broken", [{}, {**document_of(rule()), "operation": "Dance"}])
def test_an_unreadable_rule_stops_the_start(tmp_path: Path, broken: dict[str, str]) -> None:
    store = FileState(tmp_path, 0, [ACLS])
    store.save("the ACLs", Change(sections={ACLS: [broken]}))

    with pytest.raises(FileStateError, match="an ACL of the data directory is unreadable"):
        AclStore(store, Authorizer())
