"""Pages of lists and of messages, rates and the history of lag: in this process, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.any_cluster.batch_fetching import Fetched, Found, Unreadable
from minibroker.console import scanning
from minibroker.console.event_stream import StreamEvent, encoded
from minibroker.console.figures import Growth
from minibroker.console.group_offsets import LagHistory
from minibroker.console.matching_records import Search
from minibroker.console.metadata import TopicRow
from minibroker.console.pages import Wanted, cut, matching
from minibroker.console.scanning import Budget, Page, Scan, Span, read_backwards, read_forward
from minibroker.protocol.record import Record

TOPIC = TopicRow("orders", False, ())


class Logs:
    """Partitions as lists of times; a fetch reads a few records of each."""

    def __init__(self, **times: list[int]) -> None:
        self.times = {int(name[1:]): each for name, each in times.items()}
        self.fetches = 0
        self.a_fetch = 3

    @property
    def spans(self) -> dict[int, Span]:
        return {at: Span(0, len(times)) for at, times in self.times.items()}

    def fetch(self, client: Any, topic: TopicRow, positions: dict[int, int], *, committed: bool) -> list[Fetched]:
        self.fetches += 1
        answers = []
        for at, position in positions.items():
            records = [
                Found(at, Record(offset, time, b"k", str(time).encode()), None)  # type: ignore[arg-type]
                for offset, time in list(enumerate(self.times[at]))[position : position + self.a_fetch]
            ]
            end = len(self.times[at])
            answers.append(Fetched(at, min(position + self.a_fetch, end), end, 0, records, None))
        return answers


def pages_of(logs: Logs, read: Any, choose: Any, search: Search, count: int) -> tuple[list[int], list[Page]]:
    """Every page, one after the other, and the times of their rows."""
    positions = {at: choose(span) for at, span in logs.spans.items()}
    pages: list[Page] = []
    while positions and len(pages) < 50:
        page = read(Scan(None, TOPIC, positions, logs.spans, search, count, budget=Budget(seconds=60)))
        pages.append(page)
        positions = page.cursor
    return [row.record.timestamp_ms for page in pages for row in page.rows], pages


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Logs:
    made = Logs(p0=[1, 4, 7, 10, 13], p1=[2, 5, 8], p2=[3, 6, 9, 11, 12, 14, 15], p3=[])
    monkeypatch.setattr(scanning, "fetch", made.fetch)
    return made


@pytest.mark.parametrize("count", [1, 2, 4, 50])
def test_pages_in_either_direction_have_everything_once_in_order(logs: Logs, count: int) -> None:
    forward, _ = pages_of(logs, read_forward, lambda span: span.start, Search(), count)
    backwards, _ = pages_of(logs, read_backwards, lambda span: span.end, Search(), count)

    assert forward == list(range(1, 16))
    assert backwards == list(range(15, 0, -1))


@pytest.mark.parametrize("read", [read_forward, read_backwards])
def test_offsets_rule_within_a_partition_and_nothing_is_repeated(monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    logs = Logs(p0=[9, 1, 8, 2], p1=[5, 5])
    monkeypatch.setattr(scanning, "fetch", logs.fetch)

    choose = (lambda span: span.start) if read is read_forward else (lambda span: span.end)
    times, pages = pages_of(logs, read, choose, Search(), 2)

    offsets = [row.record.offset for page in pages for row in page.rows if row.partition == 0]
    assert sorted(times) == [1, 2, 5, 5, 8, 9]
    assert offsets == (list(range(4)) if read is read_forward else list(range(4))[::-1])


def test_a_search_reads_on_until_it_has_a_page(logs: Logs) -> None:
    times, pages = pages_of(logs, read_backwards, lambda span: span.end, Search("value", "begins", "1"), 3)

    assert times == [15, 14, 13, 12, 11, 10, 1]
    assert [page.state for page in pages] == ["full", "full", "end"]


@pytest.mark.parametrize(
    ("search", "is_found"),
    [
        (Search("header", "is", "one", header="trace"), True),
        (Search("header", "is", "one", header="shop"), False),
        (Search("header", "is", "two"), True),
        (Search("header", "is", "shop"), True),  # the name of one
        (Search("header", "is", "shop", header="shop"), False),
        (Search("any", "is", "two"), True),
        (Search("any", "is", "two", header="trace"), False),
    ],
)
def test_a_search_for_a_headers_value_may_name_the_header(search: Search, is_found: bool) -> None:
    record = Record(0, 1, b"k", b"v", (("trace", b"one"), ("shop", b"two")))

    assert search.matcher()(record) is is_found


def test_a_search_stops_when_its_budget_is_spent_and_goes_on_from_there(logs: Logs) -> None:
    search = Search("value", "is", "15")
    starts = dict.fromkeys(logs.spans, 0)

    first = read_forward(Scan(None, TOPIC, starts, logs.spans, search, 1, budget=Budget(seconds=60, records=5)))
    second = read_forward(Scan(None, TOPIC, first.cursor, logs.spans, search, 1, budget=Budget(seconds=60)))

    assert (first.rows, first.state, logs.fetches >= 1) == ([], "stopped", True)
    assert first.cursor == {0: 3, 2: 3}
    assert [row.record.timestamp_ms for row in second.rows] == [15]


def test_empty_partitions_are_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = Logs(p0=[], p1=[])
    monkeypatch.setattr(scanning, "fetch", logs.fetch)

    times, pages = pages_of(logs, read_backwards, lambda span: span.end, Search(), 5)

    assert (times, [page.state for page in pages], logs.fetches) == ([], ["end"], 0)


def test_a_large_window_is_made_smaller_until_it_fits(logs: Logs) -> None:
    budget = Budget(seconds=60, records=2)
    logs.a_fetch = 1
    ends = {at: span.end for at, span in logs.spans.items()}

    page = read_backwards(Scan(None, TOPIC, ends, logs.spans, Search("key"), 5, budget=budget))

    assert [row.record.timestamp_ms for row in page.rows][:3] == [15, 13, 8]
    assert page.state == "stopped"


@pytest.mark.parametrize("read", [read_forward, read_backwards])
def test_a_partition_for_which_an_answer_has_no_room_is_read_next(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    def fetch(client: Any, topic: TopicRow, positions: dict[int, int], **how: Any) -> list[Fetched]:
        first, *others = positions
        answers = logs.fetch(client, topic, {first: positions[first]}, **how)
        return answers + [Fetched(at, positions[at], len(logs.times[at]), 0, [], None) for at in others]

    monkeypatch.setattr(scanning, "fetch", fetch)
    choose = (lambda span: span.start) if read is read_forward else (lambda span: span.end)

    times, pages = pages_of(logs, read, choose, Search(), 50)

    assert (sorted(times), pages[-1].state) == (list(range(1, 16)), "end")


@pytest.mark.parametrize("read", [read_forward, read_backwards])
def test_a_failed_partition_is_named_and_hides_no_other(logs: Logs, monkeypatch: pytest.MonkeyPatch, read: Any) -> None:
    def fetch(client: Any, topic: TopicRow, positions: dict[int, int], **how: Any) -> list[Fetched]:
        failed = [Fetched(1, positions[1], 3, 0, [], "its leader refused")] if 1 in positions else []
        others = {at: position for at, position in positions.items() if at != 1}
        return failed + logs.fetch(client, topic, others, **how)

    monkeypatch.setattr(scanning, "fetch", fetch)
    spans = logs.spans
    begin = {at: span.start if read is read_forward else span.end for at, span in spans.items()}

    page = read(Scan(None, TOPIC, begin, spans, Search(), 50))

    assert (page.state, page.failure) == ("failed", "partition 1: its leader refused")
    assert sorted(row.record.timestamp_ms for row in page.rows) == sorted(logs.times[0] + logs.times[2])
    assert page.cursor == {1: begin[1]}


@pytest.mark.parametrize("read", [read_forward, read_backwards])
def test_unreadable_offsets_are_named_once_and_the_rest_is_shown(
    logs: Logs, monkeypatch: pytest.MonkeyPatch, read: Any
) -> None:
    def fetch(*asked: Any, **how: Any) -> list[Fetched]:
        """Offsets 2 to 4 of partition 2 are in a batch that cannot be read."""
        answers = []
        for each in logs.fetch(*asked, **how):
            kept = [found for found in each.records if each.partition != 2 or not 2 <= found.record.offset < 5]
            first = max(2, asked[2][each.partition])
            lost = (Unreadable(2, first, 5, "why"),) if len(kept) < len(each.records) else ()
            reached = max(each.next, 5) if lost else each.next
            answers.append(each._replace(records=kept, unreadable=lost, next=reached))
        return answers

    monkeypatch.setattr(scanning, "fetch", fetch)
    choose = (lambda span: span.start) if read is read_forward else (lambda span: span.end)

    times, pages = pages_of(logs, read, choose, Search(), 50)

    assert sorted(times) == sorted(set(range(1, 16)) - {9, 11, 12})
    assert [str(each) for page in pages for each in page.unreadable] == [
        "offsets 2 to 4 of partition 2 cannot be read: why"
    ]


def test_lists_are_filtered_by_words_and_unknown_figures_come_last() -> None:
    rows = [("a", 3), ("b", None), ("c", 1)]
    ascending, descending = Wanted("", "n", False, 0, 9), Wanted("", "n", True, 1, 9)

    assert matching(["app.Events.1", "app.logs", "events"], "app events") == ["app.Events.1"]
    assert [name for name, _ in cut(rows, ascending, lambda row: row[1])] == ["c", "a", "b"]
    assert [name for name, _ in cut(rows, descending, lambda row: row[1])] == ["c", "b"]


def test_a_rate_is_of_the_last_seconds() -> None:
    growth = Growth()
    rates = [growth.rate("orders", value, now) for value, now in ((0, 0.0), (100, 1.0), (1_100, 11.0), (1_100, 20.0))]

    assert rates[:2] == [None, 100.0]
    assert rates[2:] == [100.0, 0.0]
    assert growth.rate("orders", 1_100, 100.0) is None  # the last look is too long ago


def test_lag_is_remembered_for_ten_minutes() -> None:
    history = LagHistory()
    for second in range(0, 900, 3):
        history.record("billing", second, second * 1000)
    history.record("billing", 5_000, 897_500)  # sooner than a point is due

    points = history.of("billing")

    assert (points[0].at_ms, points[-1]) == (300_000, (897_000, 897))
    assert history.slope("billing") == pytest.approx(1.0)
    assert history.of("other") == []


def test_an_event_keeps_lines_apart_and_its_id() -> None:
    assert (
        encoded(StreamEvent({"a": "x\n\ny"}, id=7, name="left out"))
        == b'event: left out\nid: 7\ndata: {"a":"x\\n\\ny"}\n\n'
    )
    assert encoded(StreamEvent(None)) == b": \n\n"
