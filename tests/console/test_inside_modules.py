"""The modules of the page Inside as such: data in, drawing or sentence out. One tab runs them all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.console.conftest import console_of
from tests.console.inside_moment import explained, log, purgatory, segment, stream_event
from tests.console.inside_row import ROW
from tests.console.pictures import NOWHERE

pytestmark = [pytest.mark.integration]


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    with console_of(NOWHERE) as console:
        tab = chromium.new_page(viewport={"width": 1000, "height": 600})
        tab.goto(f"{console.url}/static/styles.css")  # modules need the console's origin, not its page
        yield tab
        tab.close()


def run(page: Page, module: str, expression: str, *given: object) -> Any:
    """What `expression` is, with the module's names in scope as `m` and what is given as `given`."""
    script = f"async given => {{ const m = await import('/static/inside/{module}.js'); return {expression} }}"
    return page.evaluate(script, list(given))


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("delete.retention.ms", "86400000", "1 day"),
        ("log.retention.hours", "168", "7 days"),
        ("offsets.retention.minutes", "90", "1.5 h"),
        ("file.delete.delay.ms", "60000", "1 min"),
        ("segment.jitter.ms", "0", ""),
        ("linger.ms", "999", ""),
        ("retention.ms", "-1", "no limit"),
        ("socket.send.buffer.bytes", "-1", ""),
        ("flush.messages", "9223372036854775807", "no limit"),
        ("segment.bytes", "1073741824", "1 GiB"),
        ("max.message.bytes", "1000012", "977 KiB"),
        ("index.interval.bytes", "512", ""),
        ("cleanup.policy", "compact", ""),
        ("retention.ms", None, ""),
    ],
)
def test_a_setting_has_a_value_for_people(page: Page, name: str, value: str | None, meant: str) -> None:
    assert run(page, "../format", "m.meant(...given)", name, value) == meant


def test_a_time_of_another_day_has_its_date(page: Page) -> None:
    now_ms = page.evaluate("Date.now()")

    assert len(run(page, "../format", "m.when(...given)", now_ms)) == len("12:04:36.018")
    assert run(page, "../format", "m.when(...given)", 1_357_041_876_018) == "2013-01-01 12:04:36.018"


def test_partitions_are_listed_by_topic_and_keep_their_numbers(page: Page) -> None:
    long = "x" * 249

    assert run(page, "../format", "m.assignment(given)", "a-b-0", "a-b-1", "c-7") == "a-b 0, 1; c 7"
    assert run(page, "../format", "m.assignment(given)", f"{long}-0", f"{long}-1").endswith("x 0, 1")
    assert len(run(page, "../format", "m.assignment(given)", f"{long}-0")) < 60


@pytest.mark.parametrize(
    ("filter_text", "found"),
    [
        ("api:fetch client:legacy", 6),
        ("connection:14", 4),
        ("connection:#14 failed", 1),
        ("coordinator_not", 1),
        ("slower:80 client:spark", 11),
        ("woken client:billing", 5),
        ("expired client:billing-2", 3),
        ("topic:nothing", 0),
        ("parked api:produce", 0),
    ],
)
def test_a_filter_keeps_what_matches_all_of_its_words(page: Page, filter_text: str, found: int) -> None:
    kept = "m.decoded(given[0]).exchanges.filter(m.filterOf(given[1]).keep).length"

    assert run(page, "exchanges", kept, stream_event(), filter_text) == found


def test_a_waiting_exchange_that_two_events_leave_out_is_forgotten(page: Page) -> None:
    event = stream_event() | {"exchanges": []}
    script = """(() => {
        const store = new m.ExchangeStore(), [event] = given, none = { ...event, waiting: [] }
        const count = () => store.between(0, Infinity).length
        store.take(event); const first = count()
        store.take(none); const second = count()
        store.take(none); return [first, second, count()]
    })()"""

    assert run(page, "exchanges", script, event) == [2, 2, 0]


def test_an_exchange_that_has_ended_is_not_in_hand_any_more(page: Page) -> None:
    event = stream_event()
    waiting = event["waiting"][0]
    times = {"woken": 460_000, "answered": 460_050, "sent": 460_080}
    row = dict(zip(event["fields"], waiting, strict=True)) | times | {"outcome": "woken", "case": "D"}
    ended = list(row.values())
    script = """(() => {
        const store = new m.ExchangeStore(), [event, ended] = given
        store.take({ ...event, exchanges: [] })
        store.take({ ...event, exchanges: [ended] })
        return [store.get(ended[0]).outcome, store.between(0, Infinity).length]
    })()"""

    assert run(page, "exchanges", script, event, ended) == ["woken", 2]


def test_ten_thousand_requests_are_drawn_with_a_bounded_number_of_bars(page: Page) -> None:
    script = """(async () => {
        const { decoded } = await import('/static/inside/exchanges.js')
        const drawing = new m.RequestsDrawing({ sentence: () => 's', address: () => '/', select: () => {} })
        drawing.setRows([1, 2, 3, 4].map(number => ({ number, name: 'n', address: '' })))
        drawing.setScale(1000, 10_000_000)
        const [fields, values] = given
        const row = seq => [seq, 1 + seq % 4, ...values.slice(2, 6), seq * 1000, ...values.slice(7)]
        const exchanges = Array.from({ length: 10_000 }, (_, seq) => row(seq))
        const all = decoded({ fields, exchanges, waiting: [] }).exchanges
        const began = performance.now()
        drawing.refresh(all, 10_000_000)
        const bars = drawing.bars.children.length
        drawing.refresh([], 30_000_000)
        return { bars, left: drawing.bars.children.length, drawn: drawing.drawn.size, ms: performance.now() - began }
    })()"""
    api = {"api": "Fetch", "client": "n"}

    seen = run(page, "requests", script, list(ROW), list((ROW | api).values()))

    assert 100 < seen["bars"] <= 4 * 1000 / 3
    assert (seen["left"], seen["drawn"]) == (0, 0)


def test_a_slow_scroll_of_time_sets_one_transform_and_nothing_else(page: Page) -> None:
    script = """(async () => {
        const drawing = new m.RequestsDrawing({ sentence: () => 's', address: () => '/', select: () => {} })
        drawing.setRows([{ number: 7, name: 'n', address: '' }])
        drawing.setScale(1000, 2_000_000)
        document.documentElement.append(drawing.element)
        const seen = []
        const observer = new MutationObserver(changes => seen.push(...changes))
        observer.observe(drawing.element, { subtree: true, childList: true, attributes: true, characterData: true })
        for (let frame = 0; frame < 60; frame++) drawing.setTime(frame * 16_667)
        seen.push(...observer.takeRecords())
        drawing.element.remove()
        return [seen.length, new Set(seen.map(change => change.attributeName)).size]
    })()"""

    assert run(page, "requests", script) == [60, 1]


def test_the_log_is_seen_in_three_strips(page: Page) -> None:
    row = explained()["fetch"]["partitions"][0]

    view = run(page, "views", "m.logView(given[0], given[1], { isFetch: true })", log(), row)

    assert [each["state"] for each in view["batches"]] == ["passed", "passed", "passed", "leaves", "uncommitted"]
    assert view["chosen"] == 3
    assert view["segment"]["entry"] == {"number": 118, "position": 483_328}
    assert len(view["segment"]["entries"]) == 143
    assert round(view["logStartShare"], 2) == 0.38


def test_an_empty_log_is_drawn_as_such(page: Page) -> None:
    ends = dict.fromkeys(("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset"), 0)
    empty = log() | ends | {"segments": [segment(0, 0, 0)], "segment": 0, "index": [], "entry": -1, "batches": []}
    script = """(async () => {
        const { logDrawing } = await import('/static/inside/log.js')
        return logDrawing(m.logView(given[0], null, { isFetch: true }), 600, '').textContent
    })()"""

    words = run(page, "views", script, empty)

    assert "There is no batch here" in words
    assert "NaN" not in words


@pytest.mark.parametrize(("slot", "chosen"), [(179, "Fetch 1 lay in 179"), (100, None)])
def test_the_lens_stands_on_the_chosen_deadline_while_it_lies_ahead(page: Page, slot: int, chosen: str | None) -> None:
    wait = explained()["wait"] | {"slot": slot}

    view = run(page, "views", "m.wheelView(given[0], given[1], 'Fetch 1')", purgatory(), wait)

    assert (view["selected"] or {}).get("words") == chosen
    assert view["next"] == {"level": 0, "slot": 221}


@pytest.mark.parametrize(
    ("text", "seconds"), [("30 s", 30), ("5min", 300), ("2 h", 7200), ("1.5", 1.5), ("250 ms", 0.25), ("soon", None)]
)
def test_a_time_to_turn_the_clock_by(page: Page, text: str, seconds: float | None) -> None:
    assert run(page, "actions", "m.secondsOf(given[0])", text) == seconds


def test_no_hand_and_no_bar_strikes_a_text_of_the_wheel_through(page: Page) -> None:
    """Wherever the hands are, and with operations due in all slots."""
    struck = page.evaluate(
        """async () => {
        const { wheelDrawing } = await import('/static/inside/wheel.js')
        const style = Object.assign(document.createElement('link'), { rel: 'stylesheet', href: '/static/styles.css' })
        const ready = new Promise((resolve) => style.addEventListener('load', resolve))
        document.head.append(style)
        await ready
        const place = Object.assign(document.createElement('main'), { className: 'inside' })
        document.body.replaceChildren(place)
        const due = new Map(Array.from({ length: 256 }, (_, slot) => [slot, { count: 64, kind: 'fetch' }]))
        const struck = new Set()
        for (let hand = 0; hand < 256; hand += 2) {
          const hands = [hand, hand, hand]
          const slots = hand === 0 ? [due, due, due] : [new Map(), new Map(), new Map()]
          const view = { waiting: 123456, hands, slots, selected: null, next: null }
          const drawing = wheelDrawing(view, '')
          place.replaceChildren(drawing)
          const lines = [...drawing.querySelectorAll('line')].map((line) =>
            ['x1', 'y1', 'x2', 'y2'].map((each) => Number(line.getAttribute(each))))
          for (const text of drawing.querySelectorAll('text')) {
            const box = text.getBBox()
            for (const [x1, y1, x2, y2] of lines) {
              for (let share = 0; share <= 1; share += 0.25) {
                const right = x1 + (x2 - x1) * share - box.x
                const down = y1 + (y2 - y1) * share - box.y
                const isIn = right > 0 && right < box.width && down > 3 && down < box.height - 3
                if (isIn) struck.add(text.textContent)
              }
            }
          }
        }
        return [...struck]
      }"""
    )

    assert struck == []
