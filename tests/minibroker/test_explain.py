"""Explained requests as tests and the command line show them, from what a broker returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minibroker.cli.app import main
from minibroker.control import Control
from minibroker.errors import BrokerError
from minibroker.explain import Cause, Explained, Explanation, FetchedPartition
from minibroker.story import brief_line, happened, steps_of, story


def row_of(**changed: Any) -> dict[str, Any]:
    return {
        "topic": "orders", "partition": 0, "asked_offset": 104_233, "error": "", "is_in_answer": True, "bytes": 1420,
        "high_watermark": 104_235, "last_stable_offset": 104_235, "log_start_offset": 0, "log_end_offset": 104_235,
        "segment": 98_304, "position": 485_112, "base_offset": 104_233, "last_offset": 104_234, "index_error": None,
        "index": {"entry": 118, "entries": 143, "offset": 104_190, "position": 483_328, "headers_looked_at": 4},
    } | changed  # fmt: skip


PRODUCED = {
    "topic": "orders", "partition": 0, "error": "", "message": None, "base_offset": 104_233, "records": 2,
    "bytes": 1420, "is_duplicate": False, "rolled": False, "segment": 98_304, "validation": "taken as sent",
    "high_watermark": [104_233, 104_235],
}  # fmt: skip
CAUSE = {
    "seq": 2, "api": "Produce", "version": 9, "correlation_id": 882, "connection": 3, "client_id": "orders",
    "replica_id": -1, "partitions": [PRODUCED], "arrived_us": 1_212_000,
}  # fmt: skip
WAIT = {
    "max_wait_ms": 500, "watched": 12, "level": 1, "slot": 179, "kind": "Fetch", "case": "D", "ended_by": "request",
    "case_text": "there are enough bytes", "partition": "orders-0", "cause": CAUSE,
}  # fmt: skip
SESSION = {
    "decision": "incremental", "asked_id": 18_932, "asked_epoch": 41, "answered_id": 18_932, "next_epoch": 42,
    "named": 1, "forgotten": 0, "partitions": 12, "text": "names only what changes",
}  # fmt: skip


def fetch_of(**changed: Any) -> dict[str, Any]:
    fetch = {
        "min_bytes": 1, "session": SESSION, "bytes_found_first": 0, "asked": 12, "answered": 1, "left_out": 11,
        "bytes": 1420, "partitions": [row_of()],
    }  # fmt: skip
    return {
        "seq": 1, "connection": 7, "client_id": "billing-1", "api": "Fetch", "version": 12, "correlation_id": 4711,
        "arrived_us": 1_000_000, "us": {"handled": 64, "woken": 212_402, "answered": 212_446, "sent": 212_473},
        "bytes_in": 97, "bytes_out": 1474, "outcome": "woken", "error": "", "throttled_ms": 0, "woke": [],
        "topics": ["orders"], "wait": WAIT, "group": None, "login": None, "produce": None, "fetch": fetch,
        "sent": {"how": "copied", "calls": 1, "in_the_call": True, "slices": 1, "slice_bytes": 1420},
    } | changed  # fmt: skip


STORY = """\
Fetch v12, correlation 4711, #7 billing-1
     0.000  Read: one frame, 97 bytes
            Session 18932, epoch 41: incremental
              names 1 of its 12 partitions; next epoch 42
            12 partitions read: 0 of 1 byte wanted
     0.064  Parked, for 500 ms at most
              on 12 partitions; wheel level 1, slot 179
   212.402  Case D: there are enough bytes
              Produce 882 of #3 orders appended 2 records to orders-0; its high watermark went from 104,233 to 104,235
   212.446  Read again: 1,420 bytes
              orders-0 from 104,233: 1,420 bytes; index entry 118 is at 483,328, 4 headers looked at from there
   212.446  Answered: 1 of 12 partitions, 1,474 bytes
              11 partitions without a change left out
   212.473  Sent in 1 call
              records are copied: up to 8 KiB that is cheaper than sendfile"""


def test_a_story_has_a_line_for_each_step() -> None:
    assert story(fetch_of()) == STORY
    assert str(Explained(fetch_of())) == STORY
    assert repr(Explained(fetch_of())) == f"<{STORY}>"


AT_ONCE = {"wait": None, "outcome": "at once", "us": {"handled": 90, "woken": -1, "answered": 90, "sent": 120}}


def details(explained: dict[str, Any], kind: str) -> list[str]:
    return [line for step in steps_of(explained) if step.kind == kind for line in (step.title, *step.detail)]


def fetched(*rows: dict[str, Any], **changed: Any) -> dict[str, Any]:
    fetch = fetch_of()["fetch"] | {"partitions": list(rows), "bytes": sum(row["bytes"] for row in rows)}
    return fetch_of(fetch=fetch, **AT_ONCE | changed)


@pytest.mark.parametrize(
    ("explained", "kind", "lines"),
    [
        pytest.param(
            fetched(row_of(bytes=0, asked_offset=104_235)),
            "found",
            ["12 partitions read: 0 of 1 byte wanted", "orders-0 was asked for at its log end offset, 104,235"],
            id="at the end",
        ),
        pytest.param(
            fetched(row_of(bytes=0, high_watermark=104_233)),
            "found",
            [
                "12 partitions read: 0 of 1 byte wanted",
                "orders-0 was asked for at 104,233: its high watermark is 104,233, its log end offset 104,235",
            ],
            id="not committed yet",
        ),
        pytest.param(
            fetched(row_of(bytes=0, last_stable_offset=104_233)),
            "found",
            [
                "12 partitions read: 0 of 1 byte wanted",
                "orders-0 was asked for at its last stable offset, 104,233: a transaction is open",
            ],
            id="an open transaction",
        ),
        pytest.param(
            fetched(row_of(index=None, index_error="the log was truncated since")),
            "found",
            [
                "12 partitions read: 1,420 of 1 byte wanted",
                "orders-0 from 104,233: 1,420 bytes; no walk through its index: the log was truncated since",
            ],
            id="no walk",
        ),
        pytest.param(
            fetched(row_of(bytes=0, error="OFFSET_OUT_OF_RANGE"), error="OFFSET_OUT_OF_RANGE"),
            "failed",
            ["Failed: OFFSET_OUT_OF_RANGE", "orders-0: OFFSET_OUT_OF_RANGE"],
            id="an error",
        ),
        pytest.param(
            fetch_of(wait=WAIT | {"ended_by": "time", "case": "", "cause": None}),
            "expired",
            ["Its time was over", "there were not enough bytes until then"],
            id="its time",
        ),
        pytest.param(fetch_of(**AT_ONCE, throttled_ms=70), "answered", [
            "Answered: 1 of 12 partitions, 1,474 bytes",
            "11 partitions without a change left out",
            "throttled for 70 ms: its quota is exceeded",
        ], id="throttled"),
        pytest.param(
            fetch_of(sent={"how": "sendfile", "calls": None, "in_the_call": False, "slices": 1, "slice_bytes": 20_000}),
            "sent",
            ["Sent by its connection's task", "20,000 bytes of records by sendfile, without a copy"],
            id="sendfile",
        ),
        pytest.param(
            fetch_of(**AT_ONCE | {"outcome": "closed"}, error="Fetch has no version 99", fetch=None),
            "closed",
            ["Closed the connection", "Fetch has no version 99"],
            id="closed",
        ),
        pytest.param(
            fetch_of(**AT_ONCE, fetch=None, produce={"asked": 1, "partitions": [PRODUCED | {"is_duplicate": True}]}),
            "append",
            [
                "orders-0 has 2 records, 1,420 bytes already",
                "it has them from 104,233 on: the producer has sent them twice",
            ],
            id="a duplicate",
        ),
        pytest.param(
            fetch_of(**AT_ONCE, fetch=None, produce={"asked": 1, "partitions": [PRODUCED | {"rolled": True}]}),
            "append",
            [
                "orders-0 takes 2 records, 1,420 bytes at offset 104,233",
                "taken as sent",
                "its high watermark went from 104,233 to 104,235",
                "a new segment was rolled, 98,304",
            ],
            id="an append",
        ),
    ],
)  # fmt: skip
def test_each_kind_of_step_has_its_words(explained: dict[str, Any], kind: str, lines: list[str]) -> None:
    assert details(explained, kind) == lines


def test_sentences_are_in_the_order_of_time() -> None:
    produce = fetch_of(
        api="Produce", correlation_id=882, connection=3, client_id="orders", arrived_us=1_212_000, fetch=None,
        wait=None, outcome="at once", woke=[1], produce={"asked": 1, "partitions": [PRODUCED]},
        us={"handled": 500, "woken": -1, "answered": 510, "sent": 600},
    )  # fmt: skip

    told = happened(fetch_of(), [produce])

    assert [text for _, text in told] == [
        "Fetch 4711 of #7 billing-1 found 0 bytes and is parked; 12 partitions watched for it",
        "Produce 882 of #3 orders appended 2 records, 1,420 bytes, at 104,233 of orders-0",
        "The high watermark of orders-0 went from 104,233 to 104,235; 1 waiting request ended",
        "Fetch 4711 goes on: Produce 882 of #3 orders appended 2 records to orders-0; its high watermark went from "
        "104,233 to 104,235",
        "Fetch 4711 of #7 billing-1 was answered with 1,420 bytes of records",
        "Produce 882 of #3 orders was answered",
    ]
    assert [us for us, _ in told] == sorted(us for us, _ in told)


def test_brief_is_a_line() -> None:
    assert brief_line(fetch_of()) == (
        "#7 billing-1  Fetch v12 4711  orders  212.473 ms  1,474 B  woken case D: Produce 882 of #3 orders appended "
        "2 records to orders-0; its high watermark went from 104,233 to 104,235"
    )


# -- from Python ----------------------------------------------------------------------------------------------

Answer = Callable[..., Any]


class Answering:
    """In place of the broker's end of a control socket: returns `pages`, one a call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *pages: list[dict[str, Any]]) -> None:
        self.pages = list(pages)
        self.calls: list[dict[str, Any]] = []
        monkeypatch.setattr(Control, "call", self.call)

    def call(self, name: str, **arguments: Any) -> Any:
        assert name == "inside.explain"
        self.calls.append(arguments)
        page = self.pages.pop(0) if arguments["since"] != "now" and self.pages else []
        return {"next": len(self.calls), "left_out": int(bool(page)), "explained": page}


def test_a_request_has_its_facts_typed() -> None:
    explained = Explained(fetch_of())

    assert (explained.api, explained.version) == ("Fetch", 12)
    assert (explained.client_id, explained.connection) == ("billing-1", 7)
    assert (explained.outcome, explained.error, explained.session) == ("woken", "", "incremental")
    assert explained.took_ms == 212.473
    wait = explained.wait
    assert wait is not None
    assert wait.cause == Cause("Produce", 9, 882, 3, "orders")
    assert (wait.waited_ms, wait.case, wait.partition, wait.watched) == (212.338, "D", "orders-0", 12)
    [row] = explained.partitions
    assert isinstance(row, FetchedPartition)
    assert (row.asked_offset, row.segment, row.position, row.bytes) == (104_233, 98_304, 485_112, 1420)
    assert Explained(fetch_of(wait=None)).wait is None


def test_an_explanation_is_read_page_by_page_and_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.explain.EXPLAINED_AT_A_TIME", 2)
    broker = Answering(monkeypatch, [fetch_of(), fetch_of()], [fetch_of(api="Produce")])

    with Explanation(Control("nowhere"), {"api": ("fetch", "produce"), "topic": "orders"}) as explained:
        assert [each.api for each in explained] == ["Fetch", "Fetch", "Produce"]

    assert (len(explained), explained[-1].api, explained.left_out) == (3, "Produce", 2)
    assert str(explained) == "\n\n".join(map(str, explained))
    assert repr(explained).startswith("<3 explained:\nFetch v12")
    assert [each["since"] for each in broker.calls] == ["now", 1, 2, 3, "now"]
    assert [each["lease_ms"] for each in broker.calls] == [3_600_000] * 4 + [100]
    assert all((each["api"], each["topic"]) == (["fetch", "produce"], "orders") for each in broker.calls)


def test_a_wait_for_too_many_requests_ends_with_those_that_came(monkeypatch: pytest.MonkeyPatch) -> None:
    Answering(monkeypatch, [fetch_of()])
    explained = Explanation(Control("nowhere"), {"failed": True})

    assert explained.wait(1) is explained
    with pytest.raises(BrokerError, match=r"1 of 2 requests came in 0 s that match \{'failed': True\}"):
        explained.wait(2, timeout_seconds=0)


@pytest.mark.parametrize("is_failing", [False, True], ids=["a good block", "a block that fails"])
def test_the_error_of_a_block_counts_more_than_that_of_its_end(
    monkeypatch: pytest.MonkeyPatch, is_failing: bool
) -> None:
    def ended(*_: object, **__: object) -> Any:
        raise BrokerError("the broker has ended")

    Answering(monkeypatch)

    def use() -> None:
        with Explanation(Control("nowhere"), {}):
            monkeypatch.setattr(Control, "call", ended)
            if is_failing:
                raise KeyError("the test's own")

    with pytest.raises(KeyError if is_failing else BrokerError):
        use()


# -- the command ----------------------------------------------------------------------------------------------


def test_the_command_prints_stories_until_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = Answering(monkeypatch, [fetch_of()], [fetch_of(client_id="a\x1bb\n")])

    assert main(["explain", "--control", "x", "--api", "fetch", "--slower-than", "5", "--parked", "-n", "2"]) == 0

    printed = capsys.readouterr()
    assert printed.out.startswith(STORY + "\n\nFetch v12")
    assert "\x1b" not in printed.out
    assert printed.err.count("1 request went by too fast to be kept") == 2
    asked = broker.calls[0]
    assert (asked["api"], asked["slower_than_ms"], asked["parked"]) == (["fetch"], 5, True)


@pytest.mark.parametrize("output", [["-o", "json"], ["--brief"]], ids=["json", "brief"])
def test_the_command_prints_a_line_for_programs_and_in_brief(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], output: list[str]
) -> None:
    Answering(monkeypatch, [fetch_of(), fetch_of()])

    assert main(["explain", "--control", "x", "-n", "1", *output]) == 0

    [line] = capsys.readouterr().out.splitlines()
    if output == ["--brief"]:
        assert line == brief_line(fetch_of())
    else:
        assert json.loads(line)["steps"][0] == {
            "us": 0, "kind": "read", "title": "Read: one frame, 97 bytes", "detail": [],
        }  # fmt: skip
