"""Each row of docs/differences.md is named by a conversation that shows it, or there is a reason why none can."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.processes import ROOT
from tests.books import GOLDEN, Script, read_book

FOLDERS = ("conversations", "histories", "settings")
HEADERS = ("missing", "what", "client")


def rows() -> list[str]:
    """The first cell of each row."""
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (.*?) \| ", text, flags=re.MULTILINE)
    return [cell for cell in cells if cell not in HEADERS]


def scripts() -> Iterator[Script]:
    for folder in FOLDERS:
        for path in sorted((GOLDEN / folder).glob("**/*.txt")):
            yield from read_book(path).scripts.values()


def reasons() -> dict[str, str]:
    """Why no conversation can show a row."""
    lines = (GOLDEN / "differences.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.rpartition(" | ") for line in lines if not line.startswith("#"))
    return {row: reason for row, _, reason in pairs}


def test_each_row_has_a_conversation_or_a_reason_why_none_can_show_it() -> None:
    shown = {row for script in scripts() for row in script.rows}

    assert sorted(set(rows()) - shown - reasons().keys()) == [], "write `row ...` below the title of a conversation"
    assert sorted(shown | reasons().keys()) == sorted(set(rows())), "no such row"
    assert shown & reasons().keys() == set()


def test_a_conversation_that_kafka_answers_otherwise_names_the_row_that_says_why() -> None:
    assert [script.title for script in scripts() if any(script.marks) and not script.rows] == []
