"""The modules of the page Inside as such: data in, drawing or sentence out. One tab runs them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.console.conftest import console_of
from tests.console.inside_moment import EXCHANGES, FAILED_WITH, recorded_scene, rows_of
from tests.console.inside_row import ROW
from tests.console.moment import LOG
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
    """Evaluate `expression`, with the module's names in scope as `m` and the argument as `given`."""
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


SCENE = recorded_scene()
SOME_CONNECTION = rows_of(SCENE)[0]["connection"]


@pytest.mark.parametrize(
    ("filter_text", "is_found"),
    [
        ("api:fetch client:archive", lambda row: (row["api"], row["client"]) == ("Fetch", "archive")),
        (f"connection:{SOME_CONNECTION}", lambda row: row["connection"] == SOME_CONNECTION),
        (f"connection:#{SOME_CONNECTION} failed", lambda row: row["connection"] == SOME_CONNECTION and row["error"]),
        (FAILED_WITH[:12].lower(), lambda row: row["error"] == FAILED_WITH),
        ("slower:80 client:audit", lambda row: row["sent"] >= 80_000 and row["client"] == "audit"),
        ("woken client:billing", lambda row: row["outcome"] == "woken" and row["client"].startswith("billing")),
        ("expired client:billing-2", lambda row: row["outcome"] == "expired" and row["client"] == "billing-2"),
        ("topic:nothing", lambda row: False),
        ("parked api:produce", lambda row: False),
    ],
)
def test_a_filter_keeps_exchanges_that_match_all_words(
    page: Page, filter_text: str, is_found: Callable[..., Any]
) -> None:
    script = "m.decoded(given[0]).exchanges.filter(m.filterOf(given[1]).keep).map(each => each.seq)"

    kept = run(page, "exchanges", script, SCENE["answers"][EXCHANGES], filter_text)

    assert kept == [row["seq"] for row in rows_of(SCENE) if is_found(row)]


def test_a_waiting_exchange_that_two_events_leave_out_is_forgotten(page: Page) -> None:
    event = SCENE["answers"][EXCHANGES] | {"exchanges": []}
    script = """(() => {
        const store = new m.ExchangeStore(), [event] = given, none = { ...event, waiting: [] }
        const count = () => store.between(0, Infinity).length
        store.take(event); const first = count()
        store.take(none); const second = count()
        store.take(none); return [first, second, count()]
    })()"""
    waiting = len(event["waiting"])

    assert run(page, "exchanges", script, event) == [waiting, waiting, 0]


def test_an_exchange_that_has_ended_is_not_in_hand_any_more(page: Page) -> None:
    event = SCENE["answers"][EXCHANGES]
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

    assert run(page, "exchanges", script, event, ended) == ["woken", len(event["waiting"])]


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
    values = list((ROW | {"api": "Fetch", "client": "n"}).values())

    seen = run(page, "requests", script, list(ROW), values)

    assert 100 < seen["bars"] <= 4 * 1000 / 3
    assert (seen["left"], seen["drawn"]) == (0, 0)


def test_the_number_of_a_connection_is_whole_however_long_it_is(page: Page) -> None:
    script = """(async () => {
        const drawing = new m.RequestsDrawing({ sentence: () => 's', address: () => '/', select: () => {} })
        drawing.setRows([7, 352, 1144].map((number) => ({ number, name: 'many letters'.repeat(3), address: '' })))
        drawing.setScale(1000, 2_000_000)
        drawing.element.setAttribute('font-size', '12')
        document.documentElement.append(drawing.element)
        const boxes = (kind) => [...drawing.element.querySelectorAll(`text.${kind}`)].map((each) => each.getBBox())
        const found = [Math.min(...boxes('number').map((box) => box.x)) >= -2, // by another font
            boxes('name').every((name, at) => name.x >= boxes('number')[at].x + boxes('number')[at].width)]
        drawing.element.remove()
        return found
    })()"""

    assert run(page, "requests", script) == [True, True]


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
    row = {"asked_offset": 104_233, "base_offset": 104_233, "last_offset": 104_234, "bytes": 1_420}

    view = run(page, "views", "m.logView(given[0], given[1], { isFetch: true })", LOG, row)

    assert [each["state"] for each in view["batches"]] == ["passed", "passed", "passed", "leaves", "uncommitted"]
    assert view["chosen"] == 3
    assert view["segment"]["entry"] == {"number": 118, "position": 483_328}
    assert len(view["segment"]["entries"]) == 143
    assert round(view["logStartShare"], 2) == 0.38


def test_an_empty_log_is_drawn_as_such(page: Page) -> None:
    ends = dict.fromkeys(("log_start_offset", "last_stable_offset", "high_watermark", "log_end_offset"), 0)
    segment = LOG["segments"][-1] | {"base_offset": 0, "size_bytes": 0, "entries": 0}
    empty = LOG | ends | {"segments": [segment], "segment": 0, "index": [], "entry": -1, "batches": []}
    script = """(async () => {
        const { logDrawing } = await import('/static/inside/log.js')
        return logDrawing(m.logView(given[0], null, { isFetch: true }), 600, '').textContent
    })()"""

    words = run(page, "views", script, empty)

    assert "There is no batch here" in words
    assert "NaN" not in words


@pytest.mark.parametrize(("slot", "chosen"), [(179, "Fetch 1 lay in 179"), (100, None)])
def test_the_lens_stands_on_the_chosen_deadline_while_it_lies_ahead(page: Page, slot: int, chosen: str | None) -> None:
    lit = [[[221, {"Fetch": 1}], [249, {"Member": 1}]], [[179, {"Fetch": 9}]], [[41, {"Member": 2}]]]
    hands = (203, 178, 40)
    levels = [{"level": level, "hand": hands[level], "lit": lit[level]} for level in range(3)]
    wait = {"level": 1, "slot": slot, "ended_by": "request"}

    view = run(page, "views", "m.wheelView(given[0], given[1], 'Fetch 1')", {"pending": 13, "levels": levels}, wait)

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
