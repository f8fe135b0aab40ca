"""The pages on a real broker, in a real browser: what a reader does there, and what comes back."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from minibroker import Broker
from minibroker.records import Record
from tests.console.asking import change
from tests.console.conftest import NewTab, RunningConsole, Tab, console_of
from tests.edge_records import damage
from tests.minibroker.commands import minibroker

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [pytest.mark.slow, pytest.mark.integration]

NUMBERS = itertools.count()
MARKUP = ['<img src=x onerror="alert(1)">', "<script>alert(1)</script>", "'\"><svg onload=alert(1)>", "a‮b\x07\x1b[2J"]


@pytest.fixture
def topic(shown_broker: Broker) -> str:
    name = f"pages-{next(NUMBERS)}"
    shown_broker.create_topic(name, partitions=3)
    return name


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_a_topic_is_created_written_to_read_and_deleted(tab: Tab) -> None:
    page = tab.open("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill("by-hand")
    page.get_by_label("Partitions", exact=True).fill("2")
    page.get_by_label("Settings").fill("retention.ms=60000")
    page.get_by_role("dialog").get_by_role("button", name="Create topic").click()
    page.get_by_role("heading", name="by-hand").wait_for()

    page.get_by_role("link", name="Messages").click()
    page.get_by_text("There are no messages here").wait_for()
    page.get_by_role("button", name="Produce").click()
    page.get_by_label("Value", exact=True).fill('{"delay": 12}')
    page.get_by_role("button", name="Add a header").click()
    page.get_by_placeholder("name", exact=True).fill("source")
    page.get_by_placeholder("value", exact=True).fill("tower")
    page.get_by_role("dialog").get_by_role("button", name="Produce").click()
    page.get_by_role("link", name=re.compile(r"partition \d, offset 0")).click()
    page.get_by_text("tower").wait_for()
    assert '"delay": 12' in page.get_by_label("Value").inner_text()

    page.get_by_role("button", name="Delete topic").click()
    delete = page.get_by_role("button", name="Delete topic and messages")
    looks = "button => ['color', 'border-top-color', 'cursor'].map((each) => getComputedStyle(button)[each])"
    before = delete.evaluate(looks)
    assert delete.is_disabled()
    page.get_by_label("Write by-hand to be sure").fill("by-hand")
    assert all(one != other for one, other in zip(before, delete.evaluate(looks), strict=True))
    delete.click()
    page.get_by_role("heading", name="Topics", exact=True).wait_for()
    assert page.get_by_role("link", name="by-hand").count() == 0


def test_a_message_is_found_opened_in_every_form_and_sent_again(tab: Tab, shown_broker: Broker, topic: str) -> None:
    shown_broker.produce(topic, [(f"k{number}", f'{{"n": {number}}}') for number in range(9)], partition=0)
    page = tab.open(f"/topics/{topic}/messages")
    page.get_by_role("button", name="Message 0:8").wait_for()

    page.keyboard.press("/")
    page.keyboard.type('"n": 3')
    page.keyboard.press("Enter")
    page.get_by_text("1 of 9 messages, found in 9").wait_for()
    page.get_by_role("button", name="Message 0:3").click()
    value = page.get_by_label("Value")
    for form, shown in (("Text", '{"n": 3}'), ("Hex", "7b 22 6e 22"), ("JSON", '"n": 3')):
        page.locator(".message .toolbar", has_text="Value").get_by_role("button", name=form).click()
        assert shown in value.inner_text()
    assert "open=0%3A3" in page.url
    page.get_by_role("button", name="Produce again").click()
    page.get_by_role("dialog").get_by_role("button", name="Produce again").click()
    page.get_by_text("It is at").wait_for()
    page.keyboard.press("Escape")  # the dialog; the message behind it is closed by the next
    page.get_by_role("dialog").wait_for(state="detached")
    value.nth(1).wait_for(state="detached")
    assert value.count() == 1
    url = page.url
    page.keyboard.press("Escape")
    value.wait_for(state="detached")
    assert "open=" not in page.url
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Message 0:3"

    found = page.context.new_page()  # the address alone leads there
    found.goto(url)
    found.get_by_label("Value").wait_for()
    assert found.get_by_role("button", name="Produce").count() == 0  # another tab has no token
    assert [record.value for record in shown_broker.records(topic)].count(b'{"n": 3}') == 2


def test_produce_again_changes_only_the_edited_parts(tab: Tab, shown_broker: Broker, topic: str) -> None:
    headers = (("", b"no name"), ("null", None), ("lines", b"x\r\ny\n"), ("binary", b"\xff"), ("plain", b"text"))
    original = Record(b"a\r\nb\n" * 20_000, b"k\xff", headers)
    offset = itertools.count(1)
    shown_broker.produce(topic, [original], partition=0)
    page = tab.open(f"/topics/{topic}/messages?partition=0&at=0&open=0%3A0")

    def sent(*edits: tuple[str, str]) -> tuple[bytes | None, bytes | None, object]:
        page.get_by_role("button", name="Produce again").click()
        page.locator("#produce-partition").select_option("0")
        for name, text in edits:
            if name == "value":
                page.get_by_role("button", name="Write another value").click()
                page.locator("#produce-value").fill(text)
            else:
                page.get_by_label("Value of the header").last.fill(text)
        page.get_by_role("dialog").get_by_role("button", name="Produce again").click()
        page.get_by_text(f"It is at partition 0, offset {next(offset)}").wait_for()
        page.keyboard.press("Escape")
        record = shown_broker.records(topic, partition=0)[-1]
        return record.key, record.value, record.headers

    assert sent() == (original.key, original.value, headers)
    assert sent(("value", "new\nlines")) == (original.key, b"new\nlines", headers)
    assert sent(("header", "other")) == (original.key, original.value, (*headers[:-1], ("plain", b"other")))


def test_unreadable_offsets_are_named_above_the_messages(tab: Tab, shown_broker: Broker, topic: str) -> None:
    for value in ("before", "damaged", "behind"):
        shown_broker.produce(topic, [value], partition=0)
    damage(shown_broker.data_dir / f"{topic}-0" / f"{0:020}.log", 1, "its CRC is wrong")

    page = tab.open(f"/topics/{topic}/messages")

    page.get_by_text("Offset 1 of partition 0 cannot be read: the CRC of the batch is wrong").wait_for()
    assert page.get_by_role("cell", name=re.compile("before|behind")).count() == 2
    assert tab.axe() == []


def test_json_is_folded_and_a_value_is_copied_whole(tab: Tab, shown_broker: Broker, topic: str) -> None:
    value = '{"big": 12345678901234567890, "legs": [{"to": "' + MARKUP[0].replace('"', "'") + '"}], "none": []}'
    deep, long = "[" * 20_000 + "]" * 20_000, "x" * 70_000
    shown_broker.produce(topic, [(b"\xff\x00", value), (None, deep), (None, long)], partition=0)
    tab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = tab.open(f"/topics/{topic}/messages?open=0:0")
    shown = page.get_by_role("group", name="Value")
    folds = shown.locator("summary")

    shown.get_by_text("12345678901234567890").wait_for()
    assert "onerror" in shown.inner_text()
    folds.nth(1).focus()
    page.keyboard.press("Enter")
    assert "onerror" not in shown.inner_text()
    assert "1 element ]," in shown.inner_text()
    assert shown.locator("img").count() == 0
    for part, said, copied in (("Key", "2 bytes copied", "0xff00"), ("Value", f"{len(value)} bytes copied", value)):
        page.locator(".message .toolbar", has_text=part).get_by_role("button", name="Copy").click()
        page.get_by_text(said).wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == copied

    tab.go(f"/topics/{topic}/messages?open=0:1")
    page.get_by_label("Value").wait_for()
    assert page.get_by_role("button", name="JSON", exact=True).count() == 0  # too deep for a browser to lay out
    tab.go(f"/topics/{topic}/messages?open=0:2").get_by_role("button", name="Copy", exact=True).click()
    page.get_by_text("70,000 bytes copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == long


def test_messages_found_are_downloaded_and_produced_again(
    tab: Tab, shown_broker: Broker, topic: str, tmp_path: Path
) -> None:
    shown_broker.produce(topic, [(f"k{number}", f"value {number}") for number in range(1_200)], partition=1)
    shown_broker.create_topic(f"{topic}-again", partitions=3)
    page = tab.open(f"/topics/{topic}/messages?in=value&text=value")

    page.get_by_role("button", name="Download").click()
    for choice, count in (("the 50 messages on this page", 50), ("all that this search finds", 1_200)):
        page.get_by_label(choice).check()
        with page.expect_download() as downloading:
            page.get_by_role("dialog").get_by_role("button", name="Download").click()
        downloading.value.save_as(tmp_path / f"{count}.jsonl")
        page.get_by_text(f"{count:,} messages saved").wait_for()
    again_at = ("-b", shown_broker.bootstrap_servers, f"{topic}-again", "--json", "--file", tmp_path / "1200.jsonl")
    sent = minibroker("produce", *again_at)

    assert sent.status == 0, sent.err
    again, first = (
        [(record.key, record.value, record.timestamp) for record in shown_broker.records(name, partition=1)]
        for name in (f"{topic}-again", topic)
    )
    assert again == first
    assert [json.loads(line)["value"] for line in (tmp_path / "50.jsonl").read_text().splitlines()] == [
        f"value {at}" for at in range(1_150, 1_200)
    ]


def test_messages_are_deleted_after_the_plan_and_the_name(tab: Tab, shown_broker: Broker, topic: str) -> None:
    shown_broker.produce(topic, ["a", "b", "c"], partition=2)
    page = tab.open(f"/topics/{topic}")
    page.get_by_role("button", name="Delete messages").click()
    page.get_by_label("Before").select_option("offset")
    page.get_by_label("Time or offset").fill("-1")
    page.get_by_role("button", name="Show the plan").click()
    apply = page.get_by_role("button", name="Delete 2 messages")
    assert apply.is_disabled()

    page.get_by_label(f"Write {topic} to be sure").fill(topic)
    apply.click()
    page.get_by_text("2 messages deleted.").wait_for()

    assert [record.value for record in shown_broker.records(topic)] == [b"c"]


def test_a_setting_is_read_by_people_and_changed_in_one_way(tab: Tab, topic: str) -> None:
    page = tab.open(f"/topics/{topic}/settings?filter=retention")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="retention.ms", exact=True))
    row.wait_for()
    assert "604800000\t7 days\tdefault\tAge at which a segment is deleted" in row.inner_text()
    assert page.get_by_role("row").filter(has_text="retention.bytes").inner_text().split("\t")[1:3] == [
        "-1",
        "no limit",
    ]
    assert page.get_by_role("main").get_by_role("button", name="Change").count() == 0

    row.get_by_text("7 days").click()  # all of a row opens it, and so do j and Enter
    dialog = page.get_by_role("dialog", name="Change retention.ms")
    dialog.get_by_label("Value").fill("5400000")
    dialog.get_by_text("1.5 h").wait_for()
    assert tab.axe() == []
    dialog.get_by_role("button", name="Change", exact=True).click()
    row.get_by_text("1.5 h").wait_for()
    assert "this topic" in row.inner_text()
    page.get_by_role("button", name="retention.ms", exact=True).click()
    page.get_by_role("button", name="Change to the default").click()
    row.get_by_text("7 days").wait_for()


def test_without_the_token_nothing_that_changes_is_offered(
    new_tab: NewTab, shown_broker: Broker, console: RunningConsole, topic: str
) -> None:
    shown_broker.produce(topic, ["a"], partition=0)
    commit(shown_broker, f"seen/{topic}", topic, 1)
    paths = {
        "/topics": "All topics",
        f"/topics/{topic}/partitions": "3 partitions, 1 replica",
        f"/topics/{topic}/messages?open=0:0": "Link to this message",
        f"/topics/{topic}/settings": "604800000",
        f"/groups/{quote(f'seen/{topic}', safe='')}": f"{topic}-0",
    }
    verbs = re.compile(r"^(Create|Add|Delete|Produce|Reset|retention)")
    for has_token in (True, False):
        tab = new_tab()
        for path, complete in paths.items():
            page = tab.go(path, token=has_token)
            page.get_by_text(complete).first.wait_for()
            page.get_by_text("read only" if not has_token else "live").first.wait_for()
            changing = page.get_by_role("main").get_by_role("button", name=verbs)
            if has_token:
                changing.first.wait_for()
            else:
                assert (path, changing.all_inner_texts()) == (path, [])


def test_messages_come_live_until_paused(tab: Tab, shown_broker: Broker, topic: str) -> None:
    page = tab.open(f"/topics/{topic}/messages?live=1")
    page.get_by_text("Messages appear here").wait_for()

    shown_broker.produce(topic, ["first"], partition=0)
    page.get_by_role("cell", name="first").wait_for()
    page.keyboard.press("Space")
    page.get_by_role("button", name="paused").wait_for()
    shown_broker.produce(topic, ["second"], partition=0)
    assert page.get_by_role("cell", name="first").count() == 1
    page.keyboard.press("Space")

    page.get_by_role("cell", name="second").wait_for()  # nothing is lost in between
    assert page.get_by_role("cell", name="first").count() == 1


def test_a_live_page_waits_for_messages_once_it_has_the_end_offsets(tab: Tab, topic: str) -> None:
    asked: list[Route] = []
    tab.page.route("**/api/stream/topics/**", lambda route: asked.append(route))
    page = tab.open(f"/topics/{topic}/messages?live=1")
    page.get_by_text("looking for the end of the topic").wait_for()
    assert page.get_by_text("Messages appear here").count() == 0

    asked[0].continue_()
    page.get_by_text("Messages appear here").wait_for()


def test_the_commands_that_keep_the_lag_of_a_group_are_copied(tab: Tab, shown_broker: Broker, topic: str) -> None:
    commit(shown_broker, f"kept-{topic}", topic, 0)
    page = tab.open(f"/groups/kept-{topic}")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")

    page.get_by_role("button", name="Copy its commands").click()
    page.get_by_text("3 commands copied").wait_for()

    setting, *commands = page.evaluate("window.copied").splitlines()
    assert f"MINIBROKER_BOOTSTRAP={shown_broker.bootstrap_servers} " in setting
    assert [command.split("minibroker ")[1].split()[0] for command in commands] == ["explain", "metrics", "jobs"]


def test_offsets_of_a_group_are_reset_after_the_plan(tab: Tab, shown_broker: Broker, topic: str) -> None:
    shown_broker.produce(topic, ["a", "b", "c"], partition=0)
    commit(shown_broker, f"odd/{topic}", topic, 2)
    page = tab.open("/groups")
    page.keyboard.press("/")
    page.keyboard.type(topic)
    page.get_by_role("link", name=f"odd/{topic}").click()
    page.get_by_role("heading", name=f"odd/{topic}").wait_for()

    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("To", exact=True).select_option("the beginning")
    page.get_by_role("button", name="Show the plan").click()
    page.get_by_text("Nothing has changed yet.").wait_for()
    assert "−2" in page.get_by_label("Plan").last.inner_text()
    page.get_by_role("button", name="Reset offsets to this plan").click()
    page.get_by_text("1 partition moved.").wait_for()

    assert shown_broker.lag(f"odd/{topic}") == 3


def test_a_group_and_a_user_of_any_name_are_reached_from_their_rows(tab: Tab, shown_broker: Broker, topic: str) -> None:
    names = ["..", "~..", "a/b%2e%2e", "a" * 5_000]
    for name in names:
        commit(shown_broker, name, topic, 1)
        change(tab.console, "POST", "/api/users", user=name, password="x", mechanisms=["SCRAM-SHA-256"])
    for name in names:
        page = tab.open("/groups?sort=-group")
        page.get_by_role("link", name=name, exact=True).click()
        page.get_by_role("heading", name=name, exact=True, level=1).wait_for()
        page.get_by_text(f"{topic}-0").first.wait_for()
        page = tab.go("/users?sort=-user")
        page.get_by_role("button", name=f"Remove {name}", exact=True).click()
        page.get_by_role("button", name="Remove user").click()
        page.get_by_role("rowheader", name=name, exact=True).wait_for(state="detached")


def test_nothing_that_a_client_sends_becomes_markup(tab: Tab, shown_broker: Broker, topic: str) -> None:
    for text in MARKUP:
        shown_broker.produce(topic, [(text, text)], partition=0)
        commit(shown_broker, f"{text}{topic}", topic, 0)
    paths = ["/groups", f"/topics/{topic}/messages?open=0:0", f"/topics/{topic}/groups", f"/topics/{MARKUP[0]}", "/"]
    tab.page.on("dialog", lambda dialog: tab.failures.append(f"a dialog: {dialog.message}"))
    tab.allowed_failures.append("status of 404")

    for path in paths:
        page = tab.open(path)
        page.locator("main[data-page]").wait_for()
        page.get_by_text("brokers" if path == "/" else MARKUP[0][:8]).first.wait_for()
        strays = page.evaluate("[...document.querySelectorAll('main img, main script, main svg[onload]')].length")
        assert (path, strays) == (path, 0)
    tab.open(f"/topics/{topic}/messages?in=key&text=a").get_by_text("\\u202e").first.wait_for()


def test_pages_are_reached_by_keys_and_rows_by_j_and_k(tab: Tab, shown_broker: Broker, topic: str) -> None:
    page = tab.open("/")
    for keys, heading in (
        ("gt", "Topics"),
        ("gg", "Groups"),
        ("gc", "Clients"),
        ("gx", "Transactions"),
        ("gb", "Cluster"),
        ("go", "Overview"),
    ):
        for key in keys:
            page.keyboard.press(key)
        page.get_by_role("heading", name=heading, level=1).wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    page.keyboard.press("Escape")
    tab.go(f"/topics?filter={topic}")
    page.get_by_role("link", name=topic).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")

    page.get_by_role("heading", name=topic).wait_for()
    page.go_back()
    page.get_by_label("Filter topics").wait_for()
    assert page.get_by_label("Filter topics").input_value() == topic


def test_single_keys_are_switched_off_and_stay_so(tab: Tab) -> None:
    page = tab.open("/groups")
    page.get_by_role("button", name="Keys", exact=True).click()
    page.get_by_label("Single keys are on").uncheck()
    assert tab.axe() == []
    page.keyboard.press("Escape")
    tab.reload()
    page.get_by_role("heading", name="Groups", level=1).wait_for()

    for key in ("?", "/", " ", "g", "t"):
        page.keyboard.press(key)
    assert page.get_by_role("dialog").count() == 0
    assert page.url.endswith("/groups")
    assert page.evaluate("document.activeElement.tagName") != "INPUT"
    assert page.get_by_role("button", name="live", exact=True).count() == 1

    page.get_by_role("button", name="Keys", exact=True).click()
    page.get_by_label("Single keys are on").check()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.tagName") == "INPUT"


def test_many_topics_are_cut_and_searched_on_the_server(new_tab: NewTab) -> None:
    with Broker() as broker, console_of(broker.bootstrap_servers) as console:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        for made in admin.create_topics([NewTopic(f"many-{at:04d}", 1, 1) for at in range(300)]).values():
            made.result()
        tab = new_tab(of=console)
        page = tab.open("/topics")
        page.get_by_text("1–50 of 300").wait_for()
        page.get_by_role("button", name="Next").click()
        page.get_by_text("51–100 of 300").wait_for()
        page.get_by_label("Filter topics").fill("0299")
        page.get_by_text("1 of 300 topics").wait_for()

        assert page.get_by_role("row").count() == 2
        assert page.get_by_role("button", name="Create topic").count() == 0  # without --allow-changes


def test_a_page_goes_on_when_its_broker_is_back_also_one_that_is_opened_meanwhile(new_tab: NewTab) -> None:
    with Broker() as broker, console_of(broker.bootstrap_servers) as console:
        broker.create_topic("kept")
        broker.produce("kept", ["here"], partition=0)
        topics, messages, settings = tabs = [new_tab(of=console) for _ in range(3)]
        for tab in tabs:
            tab.allowed_failures.append("status of 502")
        topics.open("/topics").get_by_role("link", name="kept").wait_for()

        broker.kill()
        topics.page.get_by_text("Trying again").wait_for()
        messages.open("/topics/kept").get_by_text("Trying again").wait_for()
        settings.open("/topics/kept/settings").get_by_text("Trying again").wait_for()
        assert topics.page.get_by_role("link", name="kept").is_visible()  # what was there stays
        broker.start()
        broker.create_topic("new")

        messages.page.get_by_role("cell", name="here").wait_for()
        settings.page.get_by_role("rowheader", name="retention.ms", exact=True).wait_for()
        for tab in (messages, settings):
            tab.page.get_by_text("1 partition, 1 replica").wait_for()
        topics.page.get_by_role("link", name="new").wait_for()
        topics.page.get_by_text("Trying again").wait_for(state="hidden")


def test_back_undoes_each_step_through_messages(tab: Tab, shown_broker: Broker, topic: str) -> None:
    shown_broker.produce(topic, [str(number) for number in range(60)], partition=0)
    page = tab.open("/topics")
    seen = [(page.url, "All topics")]
    tab.go(f"/topics/{topic}")
    steps: list[tuple[Callable[[], object], str]] = [
        (lambda: None, "50 of 60 messages"),
        (lambda: page.get_by_role("button", name="Older").click(), "10 of 60 messages"),
        (lambda: page.get_by_role("button", name="Message 0:4").click(), "Link to this message"),
        (lambda: page.get_by_label("Text to look for").fill("59"), "10 of 60 messages"),
        (lambda: page.get_by_role("button", name="Search").click(), "1 of 60 messages, found in 60"),
    ]
    for act, text in steps:
        act()
        page.get_by_text(text).wait_for()
        if page.url != seen[-1][0]:
            seen.append((page.url, text))

    for url, text in seen[-2::-1]:
        page.go_back()
        page.wait_for_url(url)
        page.get_by_text(text).wait_for()
    tab.go(f"/topics/{topic}/messages?at=1000").get_by_text("The topic ends before that offset.").wait_for()


def test_the_command_of_a_form_changes_the_same(tab: Tab, shown_broker: Broker, topic: str) -> None:
    shown_broker.produce(topic, ["a", "b"], partition=1)
    commit(shown_broker, f"it's {topic}", topic, 0)
    page = tab.open("/topics")
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text }")
    bin = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))

    def run_command() -> None:
        page.get_by_role("button", name="Copy the command for this").click()
        page.get_by_text("Command copied").wait_for()
        line = page.evaluate("window.copied")
        assert page.get_by_role("dialog").locator("code").last.inner_text() == line
        ran = subprocess.run(line, shell=True, env=os.environ | {"PATH": bin}, capture_output=True, check=False)
        assert (line, ran.returncode, ran.stderr) == (line, 0, ran.stderr)
        page.keyboard.press("Escape")

    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name").fill(f"{topic}-copied")
    page.get_by_label("Settings").fill("retention.ms=60000")
    run_command()
    tab.go(f"/topics/{topic}-copied").get_by_role("button", name="Produce").click()
    page.get_by_label("Value", exact=True).fill("it's\n$HOME 'ünï'")
    page.get_by_label("times").fill("2")
    run_command()
    assert [each.value for each in shown_broker.records(f"{topic}-copied")] == ["it's\n$HOME 'ünï'".encode()] * 2
    page.get_by_role("button", name="Add partitions").click()
    run_command()
    tab.go("/groups/" + quote(f"it's {topic}")).get_by_role("button", name="Reset offsets").click()
    page.get_by_label("To", exact=True).select_option("the end")
    run_command()
    page.get_by_role("button", name="Delete group").click()
    run_command()
    tab.go(f"/topics/{topic}").get_by_role("button", name="Delete messages").click()
    page.get_by_label("Before").select_option("offset")
    page.get_by_label("Time or offset").fill("-1")
    run_command()
    assert [each.value for each in shown_broker.records(topic)] == [b"b"]


def test_a_page_names_a_console_that_is_gone(new_tab: NewTab, shown_broker: Broker) -> None:
    with console_of(shown_broker.bootstrap_servers) as console:
        tab = new_tab(of=console)
        tab.allowed_failures.append("net::ERR_")  # a request or a stream ends wherever it is
        page = tab.open("/")
        page.get_by_text("brokers").first.wait_for()
        console.process.kill()
        console.process.wait()

        page.get_by_text("The console does not answer. Start it again").wait_for()
        assert tab.axe() == []


def test_a_page_names_missing_rows_at_its_top_until_another_is_shown(tab: Tab) -> None:
    lacks = ["broker 2 has not answered in time; what it leads is not shown"]
    tab.page.route("**/api/brokers?*", lambda route: route.fulfill(json=route.fetch().json() | {"lacks": lacks}))
    page = tab.open("/brokers")
    notice = page.locator("#notices .notice")

    assert notice.inner_text() == "Broker 2 has not answered in time. What it leads is not shown."
    assert tab.axe() == []

    tab.go("/acls")
    notice.wait_for(state="detached")


def test_the_theme_can_be_chosen_and_stays(tab: Tab) -> None:
    page = tab.open("/")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)

    page.get_by_role("button", name="Switch between light and dark").click()
    dark = page.evaluate(ground)
    tab.reload()

    assert (light, dark, page.evaluate(ground)) == ("rgb(244, 243, 238)", "rgb(13, 19, 24)", "rgb(13, 19, 24)")


def test_the_token_reaches_no_address_and_no_request(tab: Tab, console: RunningConsole) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(f"{request.url} {request.headers.get('referer', '')}"))

    page = tab.open("/topics")
    page.get_by_role("button", name="Create topic").wait_for()

    assert console.token is not None
    assert console.token not in page.url
    assert not [each for each in asked if console.token in each.partition("#")[0]]
