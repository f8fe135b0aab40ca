"""Each class of findings is found once where it is planted, and nothing in a history that keeps Kafka's promises.

The histories are in tests/golden/checked_histories.txt.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.history.checking import check
from minibroker.history.findings import CLASSES, WRITE_CYCLE, Finding
from minibroker.history.lines import LineReader, read_lines
from minibroker.history.model import History, HistoryError
from tests.books import GOLDEN, read_texts
from tests.minibroker.correct_log import CorrectLog, Row
from tests.minibroker.histories import Story, findings_of, read_story

STORIES = [read_story(text) for text in read_texts(GOLDEN / "checked_histories.txt")[1:]]


def test_every_class_is_planted() -> None:
    assert {each.finds.partition(" ")[0] for each in STORIES} == {"", *CLASSES}


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.title)
def test_a_planted_contradiction_is_the_only_finding_and_a_right_history_has_none(tmp_path: Path, story: Story) -> None:
    found = findings_of(tmp_path / "h.jsonl", story.text, also=[WRITE_CYCLE])

    assert [" ".join(map(str, (each.kind, *each.offsets))) for each in found] == ([story.finds] if story.finds else [])
    unless_asked = [each for each in found if each.kind != WRITE_CYCLE]
    assert findings_of(tmp_path / "h.jsonl", story.text) == unless_asked


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
