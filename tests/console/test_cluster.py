"""The cluster itself: settings of its brokers, access rules, users and quotas; and a cluster without an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker import Broker
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


def test_rules_are_added_listed_and_removed(guarded: RunningConsole) -> None:
    added = change(guarded, "POST", "/api/acls", **RULE)
    change(guarded, "POST", "/api/acls", **RULE | {"resource_type": "cluster", "operation": "IdempotentWrite"})

    found = get(guarded, "/api/acls?filter=ALICE+orders")
    everything = get(guarded, "/api/acls?sort=-operation")["rows"]

    assert added == {"text": "User:alice may Read topic orders...", "outcome": "added"}
    assert (found["total"], found["all"], found["authorizer"]) == (1, 2, True)
    assert found["rows"][0] == RULE | {
        "resource_type": "Topic", "principal": "User:alice", "host": "*", "operation": "Read", "text": added["text"]
    }  # fmt: skip
    assert [row["operation"] for row in everything] == ["Read", "IdempotentWrite"]
    for row in everything:
        change(guarded, "DELETE", "/api/acls", **row)
    assert get(guarded, "/api/acls")["rows"] == []


def test_users_have_passwords_that_no_answer_shows(guarded: RunningConsole) -> None:
    change(guarded, "POST", "/api/users", user="ann/<b>", password="secret", mechanisms=["SCRAM-SHA-512"])
    change(guarded, "POST", "/api/users", user="bob", password="secret", iterations=8192)

    answer = ask(guarded, "GET", "/api/users?sort=-user")

    assert answer.json["rows"] == [
        {"user": "bob", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}},
        {"user": "ann/<b>", "mechanisms": {"SCRAM-SHA-512": 4096}},
    ]
    assert b"secret" not in answer.body
    change(guarded, "DELETE", "/api/users/bob")
    change(guarded, "DELETE", "/api/users/ann%2F%3Cb%3E")
    assert get(guarded, "/api/users")["rows"] == []


def test_quotas_are_set_changed_and_removed(guarded: RunningConsole) -> None:
    both = {"user": "ann", "client-id": None}
    change(guarded, "POST", "/api/quotas", entity=both, set={"producer_byte_rate": 1000, "request_percentage": 12.5})
    change(guarded, "POST", "/api/quotas", entity={"client-id": "slow"}, set={"producer_byte_rate": 10})
    change(guarded, "POST", "/api/quotas", entity=both, set={"producer_byte_rate": 2000}, unset=["request_percentage"])

    rows = get(guarded, "/api/quotas?sort=-producer_byte_rate")["rows"]

    assert [(row["text"], row["quotas"]) for row in rows] == [
        ("user ann, the default client-id", {"producer_byte_rate": 2000}),
        ("client-id slow", {"producer_byte_rate": 10}),
    ]
    assert rows[0]["entity"] == both
    for row in rows:
        change(guarded, "POST", "/api/quotas", entity=row["entity"], unset=list(row["quotas"]))
    assert get(guarded, "/api/quotas")["rows"] == []


def test_the_settings_of_a_broker_are_changed_while_it_runs(guarded: RunningConsole) -> None:
    (broker,) = get(guarded, "/api/brokers")["rows"]
    at = f"/api/brokers/{broker['id']}/settings"
    change(guarded, "POST", at, set={"log.cleaner.threads": "2"})

    settings = {row["name"]: row for row in get(guarded, at)["rows"]}

    assert (broker["controller"], broker["leads"]) == (True, broker["replicas"])
    assert settings["log.cleaner.threads"]["value"] == "2"
    assert settings["log.cleaner.threads"]["source"] == "DYNAMIC_BROKER_CONFIG"
    assert settings["broker.id"]["read_only"]


def test_a_cluster_without_an_authorizer_is_no_failure(console: RunningConsole) -> None:
    found = get(console, "/api/acls")

    assert (found["authorizer"], found["rows"]) == (False, [])
    refused = ask(console, "POST", "/api/acls", RULE, token=True)
    assert (refused.status, "authorizer.class.name" in refused.error) == (502, True)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("POST", "/api/acls", RULE | {"operation": "fly"}, 400, "idempotent_write"),
        ("POST", "/api/acls", RULE | {"pattern": "match"}, 400, "literal, prefixed"),
        ("POST", "/api/acls", RULE | {"name": ""}, 400, "name is not a text"),
        ("DELETE", "/api/acls", RULE | {"name": "none"}, 404, "the page ACLs"),
        ("POST", "/api/users", {"user": "ann"}, 400, "password"),
        ("POST", "/api/users", {"user": "ann", "password": "x", "mechanisms": ["PLAIN"]}, 400, "SCRAM-SHA-256"),
        ("POST", "/api/users", {"user": "ann", "password": "x", "iterations": 1}, 400, "4,096"),
        ("DELETE", "/api/users/nobody", {}, 404, "does not exist"),
        ("POST", "/api/quotas", {"entity": {}}, 400, '{"user": "ann"}'),
        ("POST", "/api/quotas", {"entity": {"user": ""}}, 400, "null is the default"),
        ("POST", "/api/quotas", {"entity": {"user": "a"}, "set": {"producer_byte_rate": 10**400}}, 400, "numbers"),
        ("POST", "/api/quotas", {"entity": {"user": "a"}, "set": {"no_such_rate": 1}}, 502, "no_such_rate"),
        ("POST", "/api/quotas", {"entity": {"user": "a"}, "unset": ["producer_byte_rate"]}, 502, "has no quota"),
        ("GET", "/api/brokers/7/settings", None, 404, "the page Brokers"),
        ("GET", "/api/brokers/x/settings", None, 400, "not a number"),
    ],
)
def test_a_change_of_the_cluster_that_makes_no_sense_is_refused(
    guarded: RunningConsole, method: str, path: str, body: dict[str, Any] | None, status: int, words: str
) -> None:
    answer = ask(guarded, method, path, body, token=True)

    assert (answer.status, words in answer.error) == (status, True), answer.error


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
