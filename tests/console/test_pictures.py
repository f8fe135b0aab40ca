"""Each page in both themes and two widths: what axe finds on it, and a picture that is compared with the one kept.

MINIBROKER_PICTURES=keep writes the pictures of tests/console/reference anew; look at them before you commit them.
"""

from __future__ import annotations

import pytest

from tests.console.conftest import NARROW, PHONE, WIDE, NewTab, Tab
from tests.console.inside_moment import open_moment
from tests.console.moment import ANSWERS, CONTROLLED, EMPTY, MEMBERS, lengthened

pytestmark = [pytest.mark.slow, pytest.mark.integration]

# Each page, and what shows that it is complete.
PAGES = {
    "overview": ("/", "1,629,241"),
    "topics": ("/topics", "41"),
    "partitions": ("/topics/flights/partitions", "43,421"),
    "messages": ("/topics/flights/messages?open=5:104239", "0x0001fe"),
    "topic-groups": ("/topics/flights/groups", "12,040"),
    "settings": ("/topics/flights/settings", "segment.bytes"),
    "groups": ("/groups", "spark-2013"),
    "group": ("/groups/billing", "flights-11"),
    "fetching-group": ("/groups/audit", "flights-11"),
    "clients": ("/clients", "billing-3"),
    "transactions": ("/transactions", "payments-2"),
    "brokers": ("/brokers", "127.0.0.1:9093"),
    "broker": ("/brokers/1", "num.io.threads"),
    "acls": ("/acls", "User:spark"),
    "users": ("/users", "8,192 iterations"),
    "quotas": ("/quotas", "50 % of a core"),
}
# Those that a minibroker with a control socket has in full.
CONTROLLED_PAGES = {
    "overview-controlled": ("/", "NOT_LEADER_FOR_PARTITION"),
    "partitions-controlled": ("/topics/flights/partitions", "43,421"),
    "log": ("/topics/flights/log", "HW 104,235"),
    "connection": ("/clients/7?open=90000", "27 REBALANCE_IN_PROGRESS"),
}
LOOKS = {"light-wide": ("light", WIDE), "dark-narrow": ("dark", NARROW)}
HUGE = (2560, 1200)
OTHER_LOOKS = {"dark-wide": ("dark", WIDE), "light-narrow": ("light", NARROW), "light-huge": ("light", HUGE)}
OTHER_LOOKS |= {"light-phone": ("light", PHONE), "dark-phone": ("dark", PHONE)}
FIRST_LOOK = next(iter(LOOKS))
OF_LOOKS = ["color-contrast", "target-size", "scrollable-region-focusable"]
# What an empty page says, and what to do first.
EMPTY_PAGES = {
    "/": ("No groups yet", "minibroker consume"),
    "/topics": ("No topics yet", "minibroker topics create"),
    "/groups": ("No groups yet", "minibroker consume"),
    "/clients": ("No group has members now", "minibroker consume"),
    "/transactions": ("No transactional ids yet", "transactional.id"),
    "/acls": ("no authorizer", "SimpleAclAuthorizer"),
    "/users": ("No users yet", "minibroker users add"),
    "/quotas": ("No quotas", "minibroker quotas set"),
    "/topics/flights/messages": ("There are no messages here", "minibroker produce flights"),
    "/topics/flights/groups": ("No group has committed offsets of this topic", "--group billing"),
    "/nothing": ("There is nothing at this address", "Choose a page above"),
}


@pytest.mark.sample(of=lambda look: look == FIRST_LOOK)  # test_inside.py and test_document_pictures.py have others
@pytest.mark.parametrize("look", [*LOOKS, *OTHER_LOOKS])
def test_every_page_looks_as_it_did_and_axe_finds_nothing(new_tab: NewTab, look: str) -> None:
    """All of axe in one look; in the others only what they can change."""
    theme, size = (LOOKS | OTHER_LOOKS)[look]
    tab = new_tab(theme=theme, size=size)
    found: dict[str, list[str]] = {}
    for name, (path, complete) in (PAGES | CONTROLLED_PAGES).items():
        if name == next(iter(PAGES)):
            tab.answer_from(ANSWERS)
        elif name == next(iter(CONTROLLED_PAGES)):
            tab.answer_from(CONTROLLED)
            tab.open(path)
        tab.go(path).get_by_text(complete).first.wait_for()
        found[name] = tab.axe(rules=None if look == FIRST_LOOK else OF_LOOKS)
        found[name] += tab.sideways()
        if look in LOOKS:
            found[name] += tab.compare(f"{name}-{look}")

    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.sample(of=lambda size: size == PHONE)
@pytest.mark.parametrize("size", [PHONE, NARROW, WIDE], ids=lambda size: str(size[0]))
def test_no_page_is_wider_than_its_window_however_long_names_are(new_tab: NewTab, size: tuple[int, int]) -> None:
    tab = new_tab(size=size)
    found: dict[str, list[str]] = {}
    for answers, pages in ((ANSWERS, PAGES), (CONTROLLED, CONTROLLED_PAGES)):
        tab.answer_from(lengthened(answers))
        tab.open("/")  # what the answers say of the cluster is read once
        for name, (path, complete) in pages.items():
            page = tab.go(lengthened(path))
            page.get_by_text(lengthened(complete)).first.wait_for()
            found[name] = tab.sideways()
    page = open_moment(tab, long=True)
    found["inside"] = tab.sideways()
    page.evaluate("document.getElementById('broker-time').textContent = 'broker time 10:27:07'")
    status, theme = (page.locator(each).bounding_box() for each in ("#status", "#theme"))
    assert status is not None and theme is not None
    assert theme["y"] < status["y"] + status["height"]  # beside each other
    page.keyboard.press("t")
    page.get_by_text("newest first").wait_for()
    found["inside, as a table"] = tab.sideways()

    assert {name: each for name, each in found.items() if each} == {}


def test_an_empty_page_names_the_first_step(tab: Tab) -> None:
    tab.answer_from(EMPTY)
    for path, (says, first) in EMPTY_PAGES.items():
        page = tab.go(path)

        page.get_by_text(says).first.wait_for()
        assert first in page.get_by_role("main").inner_text()
    assert tab.axe() == []


DIALOGS = {
    "/topics/flights/messages": ("Produce", "Download", "Delete messages", "Add partitions", "Delete topic"),
    "/groups/billing": ("Reset offsets",),
    "/acls": ("Add rule", "Remove User:* may not Delete topic *"),
    "/users": ("Add user", "Change ann", "Remove spark"),
    "/quotas": ("Add quotas", "Change the quotas of user spark"),
}


def test_dialogs_are_accessible(tab: Tab) -> None:
    tab.answer_from(ANSWERS)
    for path, buttons in DIALOGS.items():
        page = tab.go(path)
        for button in buttons:
            page.get_by_role("button", name=button, exact=True).click()
            page.get_by_role("dialog").wait_for()
            assert (button, tab.axe()) == (button, [])
            page.keyboard.press("Escape")
            page.get_by_role("dialog").wait_for(state="detached")


def test_a_broker_that_does_not_run_is_counted_listed_and_has_a_page(new_tab: NewTab) -> None:
    brokers = ANSWERS["/api/brokers"]
    gone = brokers["rows"][1] | {"id": 3, "alive": False, "address": "", "leads": 0, "in_sync": 0}
    tab = new_tab()
    tab.answer_from(
        ANSWERS
        | {
            "/api/cluster": ANSWERS["/api/cluster"]
            | {"gone": [3], "under_replicated": 52, "internal_under_replicated": 50},
            "/api/brokers": brokers | {"rows": [*brokers["rows"], gone], "total": 3, "all": 3},
        }
    )

    page = tab.open("/")
    page.get_by_text("broker 3 does not run, 52 partitions under-replicated").wait_for()
    page.get_by_text("with 100 partitions: 50 under-replicated").wait_for()
    assert "brokers\n2 of 3" in page.get_by_label("Cluster", exact=True).inner_text()
    page.get_by_label("Brokers", exact=True).get_by_role("link", name="3").click()
    page.get_by_text("This broker does not run").wait_for()
    assert "replicas here\n23" in page.get_by_label("Partitions", exact=True).inner_text()
    assert tab.axe() == []


def test_a_member_is_shown_with_partitions_to_revoke_and_to_wait_for(new_tab: NewTab) -> None:
    a = MEMBERS[0] | {
        "epoch": 4, "protocol": "consumer", "revokes": ["flights-3"], "instance_id": "till-1",
        "subscribed_topic_regex": "^fl.*",
    }  # fmt: skip
    b = MEMBERS[1] | {"epoch": 5, "protocol": "classic", "partitions": [], "awaits": ["flights-3"]}
    group = ANSWERS["/api/groups/billing"] | {
        "type": "consumer", "epoch": 6, "assignment_epoch": 5, "members": [a, b],
    }  # fmt: skip
    tab = new_tab()
    tab.answer_from(ANSWERS | {"/api/groups/billing": group})

    page = tab.open("/groups/billing")

    page.get_by_text("Stable, 2 members, consumer protocol, range, epoch 6, assigned for epoch 5").wait_for()
    page.get_by_text("billing-1 as till-1", exact=True).wait_for()
    page.get_by_text("flights 0, 1, 2, 3; has to revoke flights 3; subscribes to ^fl.*").wait_for()
    page.get_by_text("none yet; waits for flights 3").wait_for()
    without = group | {"members": [a, b | {"awaits": []}]}
    for state, said in (("Reconciling", "none yet: the group is Reconciling"), ("Stable", "none")):
        tab.answer_from(ANSWERS | {"/api/groups/billing": without | {"state": state}})
        tab.go("/groups/billing").get_by_label("Members").first.get_by_text(said, exact=True).wait_for()
