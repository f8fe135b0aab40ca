"""Each class of findings is found once where it is planted, and nothing in a history that keeps Kafka's promises."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.history.checking import check
from minibroker.history.findings import CLASSES, Finding
from minibroker.history.lines import LineReader, read_lines
from minibroker.history.model import History, HistoryError
from tests.minibroker.correct_log import CorrectLog, Row
from tests.minibroker.histories import findings_of

# By class: the offsets of the only finding, and the history.
PLANTED: dict[str, list[tuple[list[int], str]]] = {
    "inconsistent-offset": [
        (
            [0],
            """
            p send t-0 a = info
            q send t-0 b = info
            c poll t-0 0=a
            d poll t-0 0=b
            """,
        ),
        (
            [0],
            """
            p send t-0 a = 0
            q send t-0 b = info
            c poll t-0 0=b
            """,
        ),
        (
            [0],
            """
            p send t-0 a = 0
            q send t-0 b = 0
            c poll t-0 0=a
            """,
        ),
    ],
    "duplicate": [
        (
            [0, 2],
            """
            p send t-0 a = 0
            p send t-0 b = 1
            c poll t-0 0=a 1=b 2=a
            """,
        ),
        (
            [0, 1],
            """
            p send t-0 a = info
            c poll t-0 0=a 1=a
            """,
        ),
    ],
    "lost-write": [
        (
            [1],
            """
            p send t-0 a = 0
            p send t-0 b = 1
            p send t-0 c = 2
            c poll t-0 0=a 2=c
            """,
        ),
        # Of a transaction of unknown outcome that one record proves.
        (
            [0],
            """
            p begin
            p send t-0 a = 0
            p send t-1 b = 0
            p commit = info
            q send t-0 c = 2
            c poll t-1 0=b t-0 2=c
            """,
        ),
    ],
    "unseen": [
        (
            [1, 2],
            """
            p send t-0 a = 0
            p send t-0 b = 1
            p send t-0 c = 2
            c poll t-0 0=a
            """,
        ),
        (
            [0],
            """
            c subscribe t
            p send t-0 a = 0
            """,
        ),
    ],
    "unsent": [
        (
            [1],
            """
            p send t-0 a = 0
            c poll t-0 0=a 1=x
            """,
        )
    ],
    "aborted-read": [
        (
            [0],
            """
            p send t-0 a = fail
            c dirty t-0 0=a
            """,
        ),
        (
            [0],
            """
            p begin
            p send t-0 a = 0
            p abort
            c poll t-0 0=a
            """,
        ),
        (
            [0],
            """
            p begin
            p send t-0 a = 0
            p crash
            c poll t-0 0=a
            """,
        ),
        (
            [0],
            """
            p begin
            p send t-0 a = 0
            p commit = info
            p abort
            c poll t-0 0=a
            """,
        ),
    ],
    "own-uncommitted-read": [
        (
            [0],
            """
            p begin
            p send t-0 a = 0
            p poll t-0 0=a
            p commit
            """,
        ),
        (
            [0],
            """
            p begin
            p send t-0 a = 0
            p poll t-0 0=a
            p abort
            """,
        ),
    ],
    "early-read": [
        (
            [0],
            """
            p begin
            p send t-0 a = 0
            c poll t-0 0=a
            p commit
            """,
        ),
        (
            [0],
            """
            c poll t-0 0=a
            p send t-0 a = 0
            """,
        ),
    ],
    "poll-skip": [
        (
            [1],
            """
            p send t-0 a = 0
            p send t-0 b = 1
            p send t-0 c = 2
            c poll t-0 0=a 1=b 2=c
            d poll t-0 0=a
            d poll t-0 2=c
            """,
        ),
        (
            [0],
            """
            p send t-0 a = 0
            p send t-0 b = 1
            c poll t-0 0=a 1=b
            d seek t-0 0
            d poll t-0 1=b
            """,
        ),
    ],
    "poll-back": [
        (
            [1, 1],
            """
            p send t-0 a = 0
            p send t-0 b = 1
            c poll t-0 0=a 1=b
            c poll t-0 1=b
            """,
        ),
        (
            [1, 0],
            """
            p send t-0 a = 0
            p send t-0 b = 1
            c poll t-0 1=b 0=a
            """,
        ),
    ],
    "send-order": [
        (
            [1, 0],
            """
            p send t-0 a ...
            p send t-0 b ...
            p send t-0 a : 1
            p send t-0 b : 0
            c poll t-0 0=b 1=a
            """,
        )
    ],
    "send-order-in-transaction": [
        (
            [1, 0],
            """
            p begin
            p send t-0 a = 1
            p send t-0 b = 0
            p commit
            c poll t-0 0=b 1=a
            """,
        )
    ],
    "read-cycle": [
        (
            [0, 0],
            """
            p begin
            q begin
            p send t-0 a = 0
            q send t-1 b = 0
            p poll t-1 0=b
            q poll t-0 0=a
            p commit
            q commit
            """,
        ),
        # Through the order of a process.
        (
            [0, 0],
            """
            c poll t-1 0=b
            c send t-0 a = 0
            d poll t-0 0=a
            d send t-1 b = 0
            """,
        ),
    ],
    "write-cycle": [
        (
            [2, 2],
            """
            p begin
            q begin
            p send t-0 a = 0
            q send t-1 b = 0
            q send t-0 c = 2
            p send t-1 d = 2
            p commit
            q commit
            c poll t-0 0=a 2=c t-1 0=b 2=d
            """,
        )
    ],
}
# By what they show: what Kafka allows, and is no finding.
CLEAN = {
    "gaps of markers": """
        p begin
        p send t-0 a = 0
        p commit
        p send t-0 b = 2
        c poll t-0 0=a 2=b
        """,
    "an aborted transaction in between": """
        p begin
        p send t-0 a = 0
        p abort
        p send t-0 b = 2
        c poll t-0 2=b
        d dirty t-0 0=a 2=b
        """,
    "an aborted transaction's records are no loss": """
        p send t-0 a = 0
        p begin
        p send t-0 b = 1
        p abort
        p send t-0 c = 3
        c poll t-0 0=a 3=c
        d dirty t-0 0=a 1=b 3=c
        """,
    "sends of unknown outcome, there and not": """
        p send t-0 a = info
        p send t-0 b = info
        p send t-0 c = 1
        c poll t-0 0=b 1=c
        """,
    "a value sent again after a failure": """
        p send t-0 a = fail
        p send t-0 a = 0
        c poll t-0 0=a
        """,
    "a value sent twice": """
        p send t-0 a = 0
        p send t-0 a = 1
        c poll t-0 0=a 1=a
        """,
    "a new assignment": """
        p send t-0 a = 0
        p send t-0 b = 1
        c poll t-0 0=a 1=b
        c assign t-0
        c poll t-0 0=a
        c seek t-0 1
        c poll t-0 1=b
        c crash
        c poll t-0 0=a 1=b
        """,
    "a consumer that starts late": """
        p send t-0 a = 0
        p send t-0 b = 1
        c seek t-0 1
        c poll t-0 1=b
        """,
    "records deleted below an offset": """
        p send t-0 a = 0
        p send t-0 b = 1
        p delete_records t-0 1
        c poll t-0 1=b
        """,
    "a value of which one send failed, and one may have succeeded": """
        p send t-0 a = info
        q send t-0 a = fail
        c poll t-0 0=a
        """,
    "a commit of unknown outcome that was never done": """
        p begin
        p send t-0 a = 0
        p commit = info
        p send t-1 b = 0
        c poll t-1 0=b
        """,
    "a commit that was not answered, and asked for again": """
        p begin
        p send t-0 a = 0
        p commit ...
        c poll t-0 0=a
        p commit = fail
        """,
    "sends after a crash are in no transaction": """
        p begin
        p send t-0 a = 0
        p crash
        p send t-0 b = 2
        c poll t-0 2=b
        """,
    "a read while the commit is on its way": """
        p begin
        p send t-0 a = 0
        p commit ...
        c poll t-0 0=a
        p commit : ok
        """,
    "interleaved writes of two transactions": PLANTED["write-cycle"][0][1],
    "records from before the history": """
        c poll t-0 0=x 1=y 2=a
        p send t-0 b = 3
        c poll t-0 3=b
        """,
    "what nobody reads": "p send t-0 a = 0",
}


def test_every_class_is_planted() -> None:
    assert set(PLANTED) == set(CLASSES)


@pytest.mark.parametrize(
    ("kind", "offsets", "text"),
    [(kind, offsets, text) for kind, each in PLANTED.items() for offsets, text in each],
    ids=[f"{kind}-{number}" for kind, each in PLANTED.items() for number in range(len(each))],
)
def test_a_planted_contradiction_is_the_only_finding(tmp_path: Path, kind: str, offsets: list[int], text: str) -> None:
    findings = findings_of(tmp_path / "h.jsonl", text, also=["write-cycle"])

    assert [(each.kind, list(each.offsets)) for each in findings] == [(kind, offsets)], findings


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN)
def test_what_kafka_allows_is_no_finding(tmp_path: Path, text: str) -> None:
    assert findings_of(tmp_path / "h.jsonl", text) == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_a_correct_log_gives_a_clean_history_until_it_loses_a_record(seed: int) -> None:
    rows = CorrectLog(Random(seed)).run(300)

    assert judged(rows) == []

    (lost,) = Random(seed).sample([*acknowledged(rows)], 1)
    for row in rows:
        row["records"] = [record for record in row.get("records", ()) if record[3] != lost]

    assert [(each.kind in ("lost-write", "unseen"), each.values) for each in judged(rows)] == [(True, (lost,))]


def judged(rows: list[Row]) -> list[Finding]:
    history = History(str)
    reader = LineReader(history)
    for number, row in enumerate(rows, 1):
        reader.read(number, row)
    return check(history.finish())


def acknowledged(rows: list[Row]) -> Iterator[str]:
    """The values of sends without a transaction that were acknowledged."""
    sent = ""
    for row in rows:
        if row["operation"] == "send" and row["process"] == "p0":
            sent = row.get("value", sent)
            if row["event"] == "ok":
                yield sent


def test_of_several_operations_in_flight_an_id_names_the_one_that_ended() -> None:
    sends = {"process": 1, "operation": "send", "topic": "t", "partition": 0}
    rows: list[Row] = [
        {**sends, "event": "invoke", "id": 1, "value": "a"},
        {**sends, "event": "invoke", "id": 2, "value": "b"},
        {**sends, "event": "ok", "id": 2, "offset": 0},
        {**sends, "event": "fail", "id": 1},
        {"process": 2, "operation": "poll", "event": "ok", "records": [["t", 0, 0, "b"]]},
    ]

    assert judged(rows) == []
    assert [each.kind for each in judged([*rows[:2], {**rows[2], "id": 1}, {**rows[3], "id": 2}, rows[4]])] == [
        "inconsistent-offset",
        "aborted-read",
    ]


def test_a_send_whose_partition_the_client_chose_is_found_where_it_was_seen() -> None:
    rows: list[Row] = [
        {"process": 1, "operation": "send", "event": "info", "topic": "t", "value": "a"},
        {"process": 1, "operation": "send", "event": "invoke", "topic": "t", "value": "b"},
        {"process": 1, "operation": "send", "event": "ok", "partition": 1, "offset": 4},
        {"process": 2, "operation": "poll", "event": "ok", "records": [["t", 1, 3, "a"]]},
    ]

    assert [(each.kind, each.partition, each.offsets) for each in judged(rows)] == [("unseen", 1, (4,))]


def test_a_long_value_is_cut_in_the_report_only() -> None:
    rows: list[Row] = [
        {"process": 1, "operation": "send", "event": "ok", "topic": "t", "partition": 0, "value": "b", "offset": 0},
        {"process": 2, "operation": "poll", "event": "ok", "records": [["t", 0, 0, "b"], ["t", 0, 1, "a" * 80]]},
    ]

    (finding,) = judged(rows)

    assert finding.values == ("a" * 80,)
    assert f' "{"a" * 60}..." ' in finding.text


def test_json_of_any_depth_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    path.write_text("[" * 200_000 + "\n")

    with pytest.raises(HistoryError, match="line 1: not JSON"):
        read_lines(path)
