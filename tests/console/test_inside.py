"""The page Inside in a browser: live with a real broker and real clients, and one moment that stands still."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Locator, Page, expect

from minibroker import Broker
from tests.console.asking import ask
from tests.console.conftest import NARROW, WIDE, NewTab, RunningConsole, Tab, console_of
from tests.console.inside_moment import FAILED_WITH, explained, open_moment, recorded_scene, rows_of

pytestmark = [pytest.mark.integration]

LONG_WAIT_MS = 30_000
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def inside_broker() -> Iterator[Broker]:
    with Broker(control=True, transcript=True, settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture(scope="session")
def inside_console(inside_broker: Broker) -> Iterator[RunningConsole]:
    with console_of(inside_broker.bootstrap_servers, *control_of(inside_broker), "--allow-changes") as running:
        yield running


def control_of(broker: Broker) -> tuple[object, object]:
    return "--control", broker.control_path


@pytest.fixture
def live(new_tab: NewTab, inside_broker: Broker, inside_console: RunningConsole) -> Iterator[Tab]:
    yield new_tab(of=inside_console)
    inside_broker.faults.lift_all()


@contextmanager
def reading(broker: Broker, topic: str, *, client_id: str, max_wait_ms: int = LONG_WAIT_MS) -> Iterator[Consumer]:
    """A consumer that reads partition 0 from offset 0 on until the block ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": max_wait_ms,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        yield consumer
    finally:
        consumer.close()


def produce(broker: Broker, topic: str, *, client_id: str) -> None:
    """Append one record to partition 0. Raises KafkaException."""
    failed: list[KafkaError] = []
    settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "retries": 0}
    producer = Producer(settings)
    producer.produce(topic, b"hello", partition=0, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(10) == 0
    if failed:
        raise KafkaException(failed[0])


def bar(page: Page, words: str) -> Locator:
    """The bars whose sentence matches `words`, a regular expression; the drawing has one a request."""
    return page.get_by_role("link", name=re.compile(words))


def opened(tab: Tab, query: str = "") -> Page:
    """The page once the stream has come: requests that arrive from now on are recorded."""
    page = tab.open(f"/inside{query}")
    expect(page.get_by_text("requests/s")).to_be_visible()
    return page


def test_a_parked_fetch_that_a_produce_ends_is_drawn_and_explained(live: Tab, inside_broker: Broker) -> None:
    inside_broker.create_topic("woken")
    page = opened(live, "?span=10")
    with reading(inside_broker, "woken", client_id="woken-reader"):
        expect(bar(page, "woken-reader .*: waits, for 30,000 ms at most")).to_be_visible()
        produce(inside_broker, "woken", client_id="waker")

        woken = bar(page, "woken-reader .*: parked for .*, woken by case D")
        expect(woken).to_be_visible()
        seq = woken.get_attribute("data-seq")
        expect(page.locator(f'line.wake[data-seq="{seq}"]')).to_be_attached()
        woken.focus()
        page.keyboard.press("Enter")

        request = page.get_by_role("region", name=re.compile(r"^Fetch v\d+, correlation \d+$"))
        expect(request.get_by_text("Case D: there are enough bytes")).to_be_visible()
        waker = request.get_by_role("link", name=re.compile(r"^Produce \d+$"))
        story = page.get_by_role("region", name="What happened")
        produced = str(waker.text_content())
        expect(story.get_by_text(re.compile(rf"{produced} of #\d+ waker appended 1 record, "))).to_be_visible()
        expect(
            page.get_by_role("region", name="The log of woken-0, and how this fetch found its bytes")
        ).to_be_visible()
        expect(
            page.get_by_role("img", name=re.compile(r"The log of woken-0 has .* its high watermark 1, its end 1"))
        ).to_be_visible()

        waker.click()

        expect(page.get_by_role("region", name=re.compile(r"^Produce v\d+"))).to_be_visible()
        expect(page).to_have_url(re.compile(r"seq=\d+"))


def test_the_page_goes_on_after_the_broker_has_started_again(new_tab: NewTab) -> None:
    with Broker(control=True) as broker, console_of(broker.bootstrap_servers, *control_of(broker)) as console:
        tab = new_tab(of=console)
        tab.allowed_failures.append("502")  # of what is read while there is no broker
        page = opened(tab, "?span=10")
        produce(broker, "before", client_id="first-life")
        expect(bar(page, "Produce .* first-life").first).to_be_attached()

        broker.stop()
        expect(
            page.get_by_text(re.compile("the page goes on when the broker answers again", re.IGNORECASE))
        ).to_be_visible()
        broker.start()
        expect(page.get_by_text(re.compile("the page goes on", re.IGNORECASE))).not_to_be_attached()
        produce(broker, "after", client_id="second-life")

        expect(bar(page, "Produce .* second-life").first).to_be_attached()
        expect(bar(page, "first-life")).to_have_count(0)


def test_frames_of_a_request_are_read_in_the_transcript_of_its_connection(live: Tab, inside_broker: Broker) -> None:
    inside_broker.create_topic("framed")
    page = opened(live, "?span=10")
    with pytest.raises(KafkaException), inside_broker.faults.error("REQUEST_TIMED_OUT", api="Produce", times=1):
        produce(inside_broker, "framed", client_id="framed-producer")
    bar(page, "Produce .* framed-producer").first.focus()
    page.keyboard.press("Enter")
    page.get_by_role("link", name=re.compile("Its frames, and all of")).click()

    frames = page.get_by_label("Request and response")
    expect(frames.get_by_text("REQUEST_TIMED_OUT")).to_be_visible()
    expect(frames.get_by_text(re.compile("framed"))).not_to_have_count(0)
    expect(
        page.get_by_role("heading", name=re.compile(r"Connection #\d+ framed-producer|Connection #\d+"))
    ).to_be_visible()
    rows = page.get_by_role("table", name="Transcript").get_by_role("row")
    expect(rows.filter(has_text="Produce")).to_contain_text("REQUEST_TIMED_OUT")
    address = page.url.removeprefix(live.console.url)
    rows.filter(has_text="ApiVersions").get_by_role("link").first.click()
    expect(frames.get_by_text("client_software_name")).to_be_visible()

    live.open(address)
    expect(page.get_by_label("Request and response").get_by_text("REQUEST_TIMED_OUT")).to_be_visible()
    assert live.axe() == []


def test_a_connection_has_its_requests_by_api(live: Tab, inside_broker: Broker) -> None:
    inside_broker.create_topic("counted")
    page = live.open("/clients?filter=counted-reader")
    with reading(inside_broker, "counted", client_id="counted-reader", max_wait_ms=500):
        rows = page.get_by_role("table", name="Connections").get_by_role("row")
        expect(rows.filter(has_text="Fetch")).to_have_count(1)
        rows.filter(has_text="Fetch").get_by_role("link").first.click()

        expect(page.get_by_role("heading", name="counted-reader")).to_be_visible()
        fetches = page.get_by_role("table", name="Requests by API").get_by_role("row").filter(has_text="Fetch")
        expect(fetches).to_be_visible()


def test_a_request_that_failed_is_on_the_overview(live: Tab, inside_broker: Broker) -> None:
    page = live.open("/")
    expect(page.get_by_text("No client has had an error")).to_be_visible()
    admin = AdminClient({"bootstrap.servers": inside_broker.bootstrap_servers, "client.id": "tidier"})
    with pytest.raises(KafkaException):
        admin.delete_topics(["never-made"])["never-made"].result(10)

    row = page.get_by_role("row").filter(has_text="tidier")
    expect(row).to_contain_text("UNKNOWN_TOPIC_OR_PARTITION")
    row.get_by_role("link", name="DeleteTopics").click()

    expect(page.get_by_role("region", name=re.compile(r"^DeleteTopics v\d+"))).to_be_visible()
    assert live.axe() == []


def test_the_log_of_a_partition_is_drawn_around_an_offset(live: Tab, inside_broker: Broker) -> None:
    inside_broker.create_topic("logged", partitions=2, configs={"segment.bytes": "2000", "index.interval.bytes": "200"})
    for number in range(12):
        inside_broker.produce("logged", [f"{number}" * 400], partition=1)
    page = live.open("/topics/logged/log?partition=1")

    expect(
        page.get_by_role("img", name=re.compile("The log of logged-1 has .* its high watermark 12, its end 12"))
    ).to_be_visible()
    segments = page.get_by_role("table", name="Segments").get_by_role("row")
    expect(segments.filter(has_text="active")).to_have_count(1)
    segments.nth(1).get_by_role("link").click()
    expect(page).to_have_url(re.compile("offset=0"))
    expect(page.get_by_role("table", name="Batches").get_by_role("row").nth(1)).to_contain_text("0")
    expect(page.get_by_text("leader epoch").first).to_be_visible()
    page.get_by_label("partition").fill("0")
    page.keyboard.press("Enter")
    expect(page.get_by_text("It has no messages")).to_be_visible()

    assert live.axe() == []


def test_axe_finds_nothing_before_anything_has_arrived(live: Tab) -> None:
    unanswered: list[object] = []
    live.page.route(re.compile("/api/.*inside"), lambda route: unanswered.append(route))

    live.open("/inside").get_by_role("region", name="Requests by connection").wait_for()

    assert live.axe() == []
    assert unanswered


def test_a_turned_clock_ends_a_parked_fetch_at_once(live: Tab, inside_broker: Broker) -> None:
    inside_broker.create_topic("turned")
    page = opened(live, "?span=10")
    with reading(inside_broker, "turned", client_id="turned-reader"):
        expect(bar(page, "turned-reader .*: waits")).to_be_visible()

        page.get_by_label("Advance the clock by").fill("1 min")
        page.get_by_role("button", name="Advance").click()

        expect(bar(page, "turned-reader .*its time was over").first).to_be_attached()
        expect(page.get_by_text("clock +60 s")).to_be_visible()
        expect(page.locator("#broker-time")).to_have_text(re.compile("advanced by"))


def test_a_fault_strikes_is_seen_and_is_lifted(live: Tab, inside_broker: Broker) -> None:
    inside_broker.create_topic("struck")
    page = opened(live, "?span=10")
    page.get_by_label("Fault", exact=True).select_option("REQUEST_TIMED_OUT")
    page.get_by_label("Which requests").select_option("each Produce")
    page.get_by_role("button", name="Inject").click()
    lift = page.get_by_role("button", name="Lift")
    expect(lift).to_be_visible()
    with pytest.raises(KafkaException):
        produce(inside_broker, "struck", client_id="struck-producer")

    expect(bar(page, "Produce .* struck-producer .*failed with REQUEST_TIMED_OUT").first).to_be_attached()
    lift.click()

    expect(lift).not_to_be_attached()
    assert inside_broker.faults.active() == []


def test_the_value_of_the_form_is_appended_to_the_chosen_partition(live: Tab, inside_broker: Broker) -> None:
    inside_broker.create_topic("appended")
    page = opened(live, "?span=10")
    with reading(inside_broker, "appended", client_id="appended-reader"):
        bar(page, "appended-reader .*: waits").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_text("To appended-0")).to_be_visible()
        page.get_by_label("Value to produce").fill("from the page")
        page.get_by_role("button", name="Produce").click()

        expect(bar(page, "appended-reader .*woken by case D").first).to_be_attached()
        assert [record.value for record in inside_broker.records("appended")] == [b"from the page"]


def test_a_hidden_tab_closes_the_stream_and_opens_it_again(live: Tab) -> None:
    page = opened(live)
    is_stream = lambda request: request.url.endswith("/api/stream/inside")  # noqa: E731
    live.allowed_failures.append("ERR_ABORTED")
    with page.expect_event("requestfailed", is_stream):
        page.evaluate(SET_HIDDEN, True)
    with page.expect_request(is_stream):
        page.evaluate(SET_HIDDEN, False)


SET_HIDDEN = """hidden => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true })
    document.dispatchEvent(new Event("visibilitychange"))
}"""


def test_without_a_control_socket_the_page_names_the_option(tab: Tab, shown_broker: Broker) -> None:
    topic = "without-control"
    shown_broker.create_topic(topic)
    page = tab.open("/inside")

    expect(page.get_by_role("heading", name="This needs minibroker with --control")).to_be_visible()
    expect(page.get_by_text("minibroker serve --console")).to_be_visible()
    for path in (f"/topics/{topic}/log", "/clients/1"):
        tab.allowed_failures.append("409")
        page = tab.open(path)
        expect(page.get_by_role("heading", name="This needs minibroker with --control")).to_be_visible()
        assert tab.axe() == []


def test_nothing_can_be_done_without_allow_changes(new_tab: NewTab, inside_broker: Broker) -> None:
    with console_of(inside_broker.bootstrap_servers, *control_of(inside_broker)) as console:
        page = opened(new_tab(of=console))

        expect(page.get_by_role("region", name="Actions")).to_have_count(0)
        assert ask(console, "POST", "/api/clock", {"seconds": 1}, token=console.token is not None).status in (401, 403)


def test_the_moment_of_a_paused_page_is_in_its_address(
    live: Tab, inside_broker: Broker, new_tab: NewTab, inside_console: RunningConsole
) -> None:
    page = opened(live, "?span=10")
    produce(inside_broker, "linked", client_id="linked-producer")
    expect(bar(page, "Produce .* linked-producer").first).to_be_attached()
    page.keyboard.press("Space")
    expect(page).to_have_url(re.compile(r"at=\d+"))
    address = page.url.removeprefix(inside_console.url)

    other = new_tab(of=inside_console).open(address)

    expect(bar(other, "Produce .* linked-producer").first).to_be_attached()
    expect(other.get_by_role("button", name="Go on")).to_be_visible()
    page.get_by_role("button", name="Earlier").click()
    expect(page).not_to_have_url(re.compile(address.split("at=")[1]))


# One moment that stands still


def test_arrows_move_in_time_and_rows_and_enter_explains(tab: Tab) -> None:
    page = open_moment(tab, with_request=False)
    page.locator("a.exchange[tabindex='0']").focus()
    focused = page.locator("a.exchange:focus")
    page.keyboard.press("ArrowUp")
    above = str(focused.get_attribute("aria-label"))
    page.keyboard.press("ArrowLeft")
    earlier = str(focused.get_attribute("aria-label"))

    assert page.locator("a.exchange[tabindex='0']").count() == 1
    assert above.split(" of ")[1].split(" at ")[0] == earlier.split(" of ")[1].split(" at ")[0]
    assert above.split(" at ")[1] > earlier.split(" at ")[1]

    page.locator(f"a.exchange[data-seq='{recorded_scene()['seq']}']").focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("region", name=re.compile(r"^Fetch v\d+, correlation \d+$"))).to_be_visible()


def test_t_shows_the_same_as_a_table(tab: Tab) -> None:
    fetch = explained(recorded_scene())
    page = open_moment(tab)
    page.keyboard.press("t")

    rows = page.get_by_role("region", name="Requests as a table").get_by_role("row")
    expect(rows.filter(has_text=FAILED_WITH)).to_have_count(1)
    woken = rows.filter(has_text=fetch["client_id"]).filter(has_text=f"Fetch {fetch['correlation_id']}")
    expect(woken).to_contain_text("woken by case D")
    page.keyboard.press("t")
    expect(page.locator("svg.requests")).to_be_visible()


def test_a_filter_is_in_the_address_and_an_unknown_word_is_named(tab: Tab) -> None:
    producers = {row["connection"] for row in rows_of(recorded_scene()) if row["api"] == "Produce"}
    page = open_moment(tab)
    page.get_by_label("Filter requests").fill("api:produce")
    expect(page.locator(".requests .name")).to_have_count(len(producers))
    expect(page).to_have_url(re.compile("filter=api%3Aproduce"))

    page.get_by_label("Filter requests").fill("colour:red")

    expect(page.get_by_text("colour:red: not a filter; use api:")).to_be_visible()


@pytest.mark.sample(of=lambda theme, size: (theme, size) == ("dark", NARROW))
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(new_tab: NewTab, theme: str, size: tuple[int, int]) -> None:
    tab = new_tab(theme=theme, size=size)
    page = open_moment(tab)
    drawn = tab.axe()
    page.keyboard.press("t")

    assert drawn + tab.axe() == []


def test_no_text_of_a_drawing_leaves_it(new_tab: NewTab) -> None:
    for size in (WIDE, NARROW):
        page = open_moment(new_tab(size=size))
        outside = page.evaluate(
            """() => [...document.querySelectorAll('.inside svg text')].filter(text => {
                const box = text.getBoundingClientRect(), around = text.ownerSVGElement.getBoundingClientRect()
                const isOutside = box.left < around.left - 1 || box.right > around.right + 1
                return box.width && !text.closest('.bars') && isOutside
            }).map(text => text.textContent)"""
        )
        assert outside == []
