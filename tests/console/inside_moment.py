"""One moment of a busy broker in the forms that the page Inside reads, and a tab that shows it.

Everything stands still: the same moment makes the same picture. `test_inside.py` compares its forms with a real
broker's.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Page, Route

from tests.console.conftest import Tab
from tests.console.inside_row import ROW
from tests.console.moment import lengthened

Json = dict[str, Any]

NOW_US = 912_347_000_000
BROKER_MS = 1_763_813_077_197  # 12:04:37.197
RUN = 1
FETCH_SEQ, FETCH_CORRELATION = 10_382, 4711
PARKED_US = {"handled": 64, "max_wait": 500_000}
ADDRESSES = {3: 41218, 5: 41224, 7: 41230, 8: 41236, 9: 41250, 11: 41262, 12: 41232, 14: 41290}
CLIENTS = {
    3: "orders-api",
    5: "sensors",
    7: "billing-1",
    8: "billing-2",
    9: "spark-executor",
    11: "legacy",
    12: "billing-1",
    14: "admin-cli",
}


class Moment:
    """Rows of exchanges, as the console sends them; times in ms before now."""

    def __init__(self) -> None:
        self.rows: list[Json] = []
        self._seq = 20_000

    def add(self, connection: int, api: str, version: int, at_ms: float, **facts: Any) -> Json:
        """`facts`: fields of the row; `answered` and `sent` follow from `handled` unless given."""
        self._seq += 1
        answered = facts.get("answered", facts.get("handled", 90) + 5)
        row = ROW | {
            "seq": self._seq,
            "connection": connection,
            "client": CLIENTS[connection],
            "api": api,
            "version": version,
            "correlation": self._seq % 1000,
            "arrived": NOW_US + round(at_ms * 1000),
            "answered": answered,
            "sent": answered + 30,
            "woke": [],
            **facts,
        }
        self.rows.append(row)
        return row

    def park(self, connection: int, from_ms: float, to_ms: float, waker: Json | None = None, **facts: Any) -> None:
        """A fetch that was parked, and woken by `waker`, or its time was over."""
        woken = round((to_ms - from_ms) * 1000)
        times = {**PARKED_US, "woken": woken, "answered": woken + 44, "sent": woken + 71}
        if waker is None:
            self.add(connection, "Fetch", 12, from_ms, outcome="expired", bytes_out=18, **times, **facts)
            return
        end = {"outcome": "woken", "case": "D", "woken_by": waker["seq"], "records": 1, "bytes_out": 1474}
        waker["woke"].append(self.add(connection, "Fetch", 12, from_ms, **end, **times, **facts)["seq"])

    def waiting(self, connection: int, for_ms: float) -> Json:
        row = self.add(
            connection, "Fetch", 12, -for_ms, **PARKED_US, answered=-1, sent=-1, outcome="waits", bytes_out=-1
        )
        return self.rows.pop(self.rows.index(row))


def stream_event() -> Json:
    moment = Moment()
    wakers = {at: moment.add(3, "Produce", 9, at, correlation=882, handled=400) for at in (-1568, -1008, -680, -458)}
    wakers[-902] = moment.add(5, "Produce", 7, -902)
    for at in (-1890, -1335, -110):
        moment.add(3, "Produce", 9, at)
    for at in (-1960, -1835, -1700, -1587, -1462, -1395, -1220, -1102, -768, -652, -537, -396, -297, -157, -45):
        moment.add(5, "Produce", 7, at)
    moment.park(7, -2030, -1567.8, wakers[-1568])
    moment.park(7, -1560, -1060)
    moment.park(7, -1058, -1007.8, wakers[-1008])
    moment.park(7, -1000, -679.8, wakers[-680])
    moment.park(7, -670.202, -457.8, wakers[-458], seq=FETCH_SEQ, correlation=FETCH_CORRELATION)
    moment.park(8, -2290, -1790)
    moment.park(8, -1785, -1285)
    moment.park(8, -1283, -901.8, wakers[-902])
    moment.park(8, -897, -397)
    sends = [90, 90, 108, 48, 108, 85, 108, 62, 100, 48, 70, 108, 95, 40, 85, 90]
    begins = [-1990, -1880, -1745, -1575, -1480, -1315, -1180, -1000, -900, -762, -680, -575, -418, -255, -182, -55]
    for at, send_ms in zip(begins, sends, strict=True):
        times = {"handled": 8_000, "answered": 8_010, "sent": 8_010 + send_ms * 1000}
        moment.add(9, "Fetch", 10, at, bytes_out=1_050_000, records=3, **times)
    for at in (-1910, -1580, -1250, -920, -590, -262):
        moment.add(11, "Fetch", 3, at, handled=14_000, answered=14_010, sent=74_000, bytes_out=400_000, records=2)
    for at in (-1875, -1415, -951, -15):
        moment.add(12, "Heartbeat", 4, at)
    for at in (-1560, -1000, -671, -475, -450):
        moment.add(12, "OffsetCommit", 7, at)
    moment.add(14, "Metadata", 8, -1722, handled=12_000)
    moment.add(14, "DescribeConfigs", 2, -1690)
    moment.add(14, "DescribeGroups", 4, -817, error="COORDINATOR_NOT_AVAILABLE")
    moment.add(14, "Metadata", 8, -208)
    exchanges = sorted(moment.rows, key=lambda row: row["arrived"] + row["sent"])
    waiting = [moment.waiting(7, 452), moment.waiting(8, 392)]
    return {
        "run": RUN,
        "now_us": NOW_US,
        "broker_ms": BROKER_MS,
        "turned_ms": 7_200_000,
        "left_out": 0,
        "requests": 31,
        "kept_every": 1,
        "cost_us": 300,
        "interval_us": 100_000,
        "parked": 23,
        "open": 43,
        "turns": [],
        "skipped": [],
        "connections": {str(number): f"127.0.0.1:{port}" for number, port in ADDRESSES.items()},
        "fields": list(ROW),
        "exchanges": [list(row.values()) for row in exchanges],
        "waiting": [list(row.values()) for row in waiting],
    }


def explained() -> Json:
    """The fetch that Produce 882 woke."""
    arrived_us = NOW_US - 670_202
    cause = {"seq": 20_004, "connection": 3, "client_id": "orders-api", "api": "Produce", "correlation_id": 882}
    partition = {
        "topic": "orders",
        "partition": 0,
        "asked_offset": 104_233,
        "error": "",
        "bytes": 1420,
        "is_in_answer": True,
        "segment": 98_304,
        "position": 485_112,
        "base_offset": 104_233,
        "last_offset": 104_234,
        "index": {"entry": 118, "entries": 143, "offset": 104_190, "position": 483_328, "headers_looked_at": 3},
    }
    steps = [
        (0, "read", "Read: one frame, 97 bytes", "in the poller's call; no task was woken"),
        (9, "session", "Session 18932, epoch 41: incremental", "names 1 of its 12 partitions; next epoch 42"),
        (31, "found", "12 partitions read: 0 of 1 byte wanted", "orders-0 was asked for at its high watermark"),
        (64, "parked", "Parked, for 500 ms at most", "on 12 partitions; wheel level 1, slot 179"),
        (
            212_402,
            "woken",
            "Case D: there are enough bytes",
            "Produce 882 of #3 appended 2 records to orders-0; its high watermark went from 104,233 to 104,235",
        ),
        (212_420, "read again", "Read again: 1,420 bytes", "index entry 118: 483,328; the batch is 1,784 further"),
        (212_446, "answered", "Answered: 1 of 12 partitions", "the 11 that did not change are left out"),
        (212_473, "sent", "Sent in 1 call", "copied: up to 8 KiB that is cheaper than sendfile"),
    ]
    happened = [
        (64, "Fetch 4711 of #7 found nothing and is parked; 12 partitions are watched for it"),
        (212_200, "Produce 882 of #3 appended 2 records, 1,420 bytes, at 104,233 of orders-0"),
        (212_300, "The high watermark of orders-0 went from 104,233 to 104,235; the fetch that watched it was woken"),
        (212_446, "Fetch 4711 was answered with 1,420 bytes, before Produce 882 was"),
        (223_000, "OffsetCommit 4712 of #12: group billing is at 104,235 of orders-0, its lag 0"),
    ]
    return {
        "run": RUN,
        "now_us": NOW_US,
        "seq": FETCH_SEQ,
        "connection": 7,
        "address": "127.0.0.1:41230",
        "client_id": "billing-1",
        "api": "Fetch",
        "api_key": 1,
        "version": 12,
        "correlation_id": FETCH_CORRELATION,
        "arrived_us": arrived_us,
        "broker_ms": BROKER_MS - 670,
        "us": {"handled": 64, "woken": 212_402, "answered": 212_446, "sent": 212_473},
        "stages_us": {
            "request_queue": 0,
            "local": 108,
            "remote": 212_338,
            "throttle": 0,
            "response_queue": 0,
            "response_send": 27,
        },
        "bytes_in": 97,
        "bytes_out": 1474,
        "outcome": "woken",
        "error": "",
        "throttled_ms": 0,
        "converted_to": None,
        "wait": {
            "max_wait_ms": 500,
            "level": 1,
            "slot": 179,
            "kind": "Fetch",
            "watched": 12,
            "case": "D",
            "partition": "orders-0",
            "cause": cause,
            "ended_by": "request",
        },
        "fetch": {"asked": 12, "answered": 1, "left_out": 11, "bytes": 1420, "partitions": [partition]},
        "produce": None,
        "group": None,
        "login": None,
        "steps": [{"us": us, "kind": kind, "title": title, "detail": [words]} for us, kind, title, words in steps],
        "happened": [[arrived_us + us, words] for us, words in happened],
    }


def segment(base_offset: int, size_bytes: int, entries: int) -> Json:
    facts = {"base_offset": base_offset, "name": f"{base_offset:020}.log", "size_bytes": size_bytes}
    return facts | {"entries": entries, "is_active": base_offset == 98_304}


def log() -> Json:
    segments = [(0, 1_048_000, 255), (31_402, 1_060_000, 258), (62_815, 1_064_000, 259), (98_304, 602_000, 143)]
    batches = [
        (104_210, 104_217, 483_328, 620),
        (104_218, 104_224, 483_948, 540),
        (104_225, 104_232, 484_488, 624),
        (104_233, 104_234, 485_112, 1420),
        (104_235, 104_238, 486_532, 1096),
    ]
    return {
        "topic": "orders",
        "partition": 0,
        "log_start_offset": 12_000,
        "last_stable_offset": 104_218,
        "high_watermark": 104_235,
        "log_end_offset": 104_239,
        "size_bytes": 3_774_000,
        "index_interval_bytes": 4096,
        "segments": [segment(*facts) for facts in segments],
        "more": None,
        "segment": 98_304,
        "offset": 104_233,
        "index": [[104_150, 479_232, 117], [104_190, 483_328, 118], [104_250, 487_400, 119]],
        "entry": 118,
        "batches": [
            {"base_offset": first, "last_offset": last, "position": position, "bytes": size}
            for first, last, position, size in batches
        ],
        "batches_more": False,
    }  # fmt: skip


def purgatory() -> Json:
    lit = [
        [[221, {"Fetch": 1}], [233, {"Member": 1}], [249, {"Fetch": 1}]],
        [
            [179, {"Fetch": 9}],
            [180, {"Fetch": 8, "Member": 3}],
            [187, {"Member": 2}],
            [190, {"Produce": 1}],
            [208, {"Member": 2}],
            [224, {"Member": 4}],
        ],
        [[41, {"Member": 2}], [50, {"Connection": 42}]],
    ]
    hands = (203, 178, 40)
    levels = [
        {"level": level, "slot_ms": 256**level, "hand": hand, "lit": slots}
        for level, (hand, slots) in enumerate(zip(hands, lit, strict=True))
    ]
    return {"run": RUN, "pending": 77, "levels": levels, "later": 0}


def answers() -> dict[str, Json]:
    """What the page reads, by the beginning of its address, the longest first."""
    return {
        "/api/inside/exchanges/": explained(),
        "/api/inside/exchanges": stream_event(),
        "/api/inside/log/": log(),
        "/api/inside/purgatory": purgatory(),
        "/api/faults": {"faults": []},
    }


def open_moment(tab: Tab, *, seq: int | None = FETCH_SEQ, long: bool = False, **query: object) -> Page:
    """The page at that moment, paused, with a chosen request; with `long` names are as long as they can be."""
    told = lengthened(answers()) if long else answers()

    def fulfil(route: Route) -> None:
        path = urlsplit(route.request.url).path
        found = next(answer for beginning, answer in told.items() if path.startswith(beginning))
        route.fulfill(json=found)

    def cluster(route: Route) -> None:
        route.fulfill(json={"control": True, "changes": True, "bootstrap": "127.0.0.1:9092", "version": "2.0"})

    tab.page.route(re.compile(r"/api/(inside|faults)"), fulfil)
    tab.page.route("**/api/cluster", cluster)
    given = {"at": NOW_US, "seq": seq, **query}
    page = tab.open("/inside?" + "&".join(f"{name}={value}" for name, value in given.items() if value is not None))
    page.locator("a.exchange").first.wait_for(state="attached")
    page.locator(".wheel").wait_for()
    if seq is not None:
        page.locator(".log").wait_for()
    return page
