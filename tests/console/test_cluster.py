"""The cluster itself: settings of its brokers, access rules, users and quotas; and a cluster without an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker import Broker
from minibroker.admin.acls import Rule
from minibroker.console.acls import rule_in
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission
from tests.console.asking import ask, change, get
from tests.console.conftest import NewTab, RunningConsole, console_of

pytestmark = [pytest.mark.slow, pytest.mark.integration]

AUTHORIZED = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": 0,
}
MARKUP = '<img src=x onerror="alert(1)">'
RULE = {
    "resource_type": "topic",
    "name": "orders",
    "pattern": "prefixed",
    "principal": "alice",
    "permission": "allow",
    "operation": "read",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningConsole]:
    """The console of a broker with an authorizer, which may change things."""
    with Broker(settings=AUTHORIZED) as broker, console_of(broker.bootstrap_servers, "--allow-changes") as running:
        yield running


def test_a_quota_above_all_numbers_is_refused(guarded: RunningConsole) -> None:
    quota = {"entity": {"user": "a"}, "set": {"producer_byte_rate": 10**400}}

    refused = ask(guarded, "POST", "/api/quotas", quota, token=True)

    assert (refused.status, "numbers" in refused.error) == (400, True)


@pytest.mark.parametrize(
    "odd",
    [
        {"host": ""},
        {"name": "", "principal": "Group:"},
        {"resource_type": ResourceType.CLUSTER, "name": "other", "pattern": Pattern.PREFIXED},
        {"principal": "User:" + "a" * 5_000},
    ],
)
def test_a_rule_that_another_broker_made_is_removed_by_its_row(odd: dict[str, Any]) -> None:
    rule = Rule(ResourceType.TOPIC, "t", Pattern.LITERAL, "User:a", "*", Permission.ALLOW, Operation.READ)
    rule = rule._replace(**odd)

    assert rule_in(rule.as_document() | {"text": str(rule)}) == rule


def test_a_cluster_without_an_authorizer_is_no_failure(console: RunningConsole) -> None:
    found = get(console, "/api/acls")

    assert (found["authorizer"], found["rows"]) == (False, [])
    refused = ask(console, "POST", "/api/acls", RULE, token=True)
    assert (refused.status, "authorizer.class.name" in refused.error) == (502, True)


def test_rules_users_and_quotas_are_made_and_removed_by_hand(new_tab: NewTab, guarded: RunningConsole) -> None:
    tab = new_tab(of=guarded)
    tab.page.on("dialog", lambda dialog: tab.failures.append(f"a dialog: {dialog.message}"))
    page = tab.open("/acls")
    page.get_by_text("No access rules yet").wait_for()
    page.get_by_role("button", name="Add rule").click()
    page.get_by_label("User", exact=True).fill(MARKUP)
    page.get_by_label("Rule", exact=True).select_option("may not")
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_label("Applies to").select_option("all names that begin so")
    page.get_by_text(f"User:{MARKUP} may not Read topic orders...").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Add rule").click()
    page.get_by_role("cell", name=f"User:{MARKUP}").first.wait_for()
    page.get_by_role("button", name="Remove User").click()
    page.get_by_role("button", name="Remove rule").click()
    page.get_by_text("No access rules yet").wait_for()

    tab.go("/users").get_by_role("button", name="Add user").click()
    page.get_by_label("User", exact=True).fill(MARKUP)
    page.get_by_role("button", name="Generate").click()
    assert len(page.get_by_label("Password").input_value()) == 24
    page.get_by_label("Mechanism").select_option("SCRAM-SHA-512")
    page.get_by_role("dialog").get_by_role("button", name="Add user").click()
    page.get_by_role("rowheader", name=MARKUP).wait_for()
    assert get(guarded, "/api/users")["rows"] == [{"user": MARKUP, "mechanisms": {"SCRAM-SHA-512": 4096}}]
    page.get_by_role("button", name=f"Remove {MARKUP}").click()
    page.get_by_role("button", name="Remove user").click()
    page.get_by_text("No users yet").wait_for()

    tab.go("/quotas").get_by_role("button", name="Add quotas").click()
    page.get_by_label("Produces").fill("2048")
    page.get_by_role("dialog").get_by_role("button", name="Add quotas").click()
    page.get_by_text("Neither a user nor a client id").wait_for()
    page.get_by_label("User", exact=True).select_option("the default")
    page.get_by_role("dialog").get_by_role("button", name="Add quotas").click()
    page.get_by_role("cell", name="2.0 KiB/s").wait_for()
    page.get_by_role("button", name="Change the quotas").click()
    page.get_by_label("Produces").fill("")
    page.get_by_label("Requests").fill("12.5")
    page.get_by_role("dialog").get_by_role("button", name="Change quotas").click()
    page.get_by_role("cell", name="12.5 % of a core").wait_for()
    assert get(guarded, "/api/quotas")["rows"][0]["quotas"] == {"request_percentage": 12.5}
    page.get_by_role("button", name="Remove the quotas").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove quotas").click()
    page.get_by_text("No quotas").wait_for()
    assert page.evaluate("document.querySelectorAll('img').length") == 0


def test_a_broker_has_its_settings_and_another_one_is_not_there(new_tab: NewTab, guarded: RunningConsole) -> None:
    tab = new_tab(of=guarded)
    page = tab.open("/brokers")
    page.get_by_role("link", name="0", exact=True).click()
    page.get_by_label("Filter settings").fill("num.replica.fetchers")
    page.get_by_role("button", name="num.replica.fetchers").click()
    page.get_by_label("Value").fill("2")
    page.get_by_role("button", name="Change", exact=True).click()
    page.get_by_text("broker, while it runs").wait_for()

    tab.go("/brokers/77").get_by_text("The cluster has no broker 77").wait_for()


def test_without_the_token_the_cluster_is_only_shown(new_tab: NewTab, guarded: RunningConsole) -> None:
    change(guarded, "POST", "/api/users", user="seen", password="x")
    page = new_tab(of=guarded).open("/users", token=False)

    page.get_by_role("rowheader", name="seen").wait_for()
    assert page.get_by_role("main").get_by_role("button").all_inner_texts() == ["user\n↑", "Copy as JSON"]
    change(guarded, "DELETE", "/api/users/seen")
