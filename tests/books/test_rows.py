"""Each row of docs/differences.md is named by a conversation that shows it, or there is a reason why none can."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.processes import ROOT
from minibroker.conformance.kafka_versions import LAST_VERSIONS_OF_KAFKA_2_0
from tests.books import GOLDEN, Book, Script, read_book
from tests.books.subjects import RELEASES, reason_against, versions_held
from tests.conformance.consumer_groups import LATER_IN_KAFKA

FOLDERS = ("conversations", "histories", "settings")
OF_KAFKA_2_0 = {key: (0, last) for key, last in LAST_VERSIONS_OF_KAFKA_2_0.items()}
HEADERS = ("missing", "what", "client")


def rows() -> list[str]:
    """The first cell of each row."""
    text = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (.*?) \| ", text, flags=re.MULTILINE)
    return [cell for cell in cells if cell not in HEADERS]


def scripts() -> Iterator[tuple[Book, Script]]:
    for folder in FOLDERS:
        for path in sorted((GOLDEN / folder).glob("**/*.txt")):
            book = read_book(path)
            yield from ((book, script) for script in book.scripts.values())


def is_shown(book: Book, script: Script) -> bool:
    """Whether a conversation shows a difference: Kafka 2.0.1 answers otherwise, or cannot be asked all of it."""
    if any(script.marks) or book.path.parent.name in ("settings", "histories"):
        return True
    if book.path.parent.name != "conversations":  # the recorded answers are Apache Kafka's, and ours
        return script.title in LATER_IN_KAFKA
    held = versions_held(OF_KAFKA_2_0, book, script)
    return bool(reason_against("kafka-2.0.1", book, script)) or held != list(script.versions or (0,))


def reasons() -> dict[str, str]:
    """Why no conversation can show a row."""
    lines = (GOLDEN / "differences.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.rpartition(" | ") for line in lines if not line.startswith("#"))
    return {row: reason for row, _, reason in pairs}


def test_each_row_has_a_conversation_or_a_reason_why_none_can_show_it() -> None:
    shown = {row for _, script in scripts() for row in script.rows}

    assert sorted(set(rows()) - shown - reasons().keys()) == [], "write `row ...` below the title of a conversation"
    assert sorted(shown | reasons().keys()) == sorted(set(rows())), "no such row"
    assert shown & reasons().keys() == set()


def test_a_conversation_that_names_a_row_shows_its_difference() -> None:
    assert [script.title for book, script in scripts() if script.rows and not is_shown(book, script)] == []


def test_a_conversation_that_kafka_answers_otherwise_names_the_row_or_the_change_that_says_why() -> None:
    marked = [script for _, script in scripts() if any(script.marks)]

    assert [script.title for script in marked if not (script.rows or script.said.get("change"))] == []


def test_each_mark_is_asked_of_its_release_again() -> None:
    """tests/integration/test_books.py compares it each night."""
    names = {mark: name for name, mark in RELEASES.items()}
    marked = [
        (book, script, names[release])
        for book, script in scripts()
        for release in {release for marks in script.marks for release in marks}
    ]

    assert [script.title for book, script, name in marked if reason_against(name, book, script)] == []
    held = [each for each in marked if each[2] == "kafka-2.0.1"]
    assert [script.title for book, script, _ in held if not versions_held(OF_KAFKA_2_0, book, script)] == []
