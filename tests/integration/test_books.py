"""Books of conversations over the wire: with `minibroker serve`; at night compiled, and with Apache Kafka too.

In memory they are held by tests/broker/test_conversations.py. `python -m tests.books SUBJECT` holds them by hand.
"""

from __future__ import annotations

import pytest

from benchmarks.apache_kafka import KafkaUnavailable
from tests.books import Book, read_book
from tests.books.conversations import FOLDER
from tests.books.subjects import COMPILED, groups_of, held_by, needs_own_broker

BOOKS = [pytest.param(read_book(path), id=path.stem) for path in sorted(FOLDER.glob("*.txt"))]
# Not kafka-3.9.1: its marks (`3.9<`) are complete but for the books that join groups, which it has left unanswered.
AT_NIGHT = ("compiled", "kafka-2.0.1", "kafka-4.4.0")

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize("book", BOOKS)
def test_a_process_answers_as_a_broker_in_memory(book: Book) -> None:
    """By day those conversations that share a broker with others; the compiled form holds all at night."""
    assert differences("process", book, is_slow=False, are_alone=False) == []


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", AT_NIGHT)
@pytest.mark.parametrize("book", BOOKS)
def test_a_subject_answers_as_the_book_says(book: Book, name: str) -> None:
    if name == "compiled" and not COMPILED.exists():
        pytest.skip("the compiled form is not built: run `make wheel`")
    try:
        assert differences(name, book, is_slow=True, are_alone=True) == []
    except KafkaUnavailable as reason:
        pytest.skip(f"{name} cannot be had: {reason}")


def differences(name: str, book: Book, *, is_slow: bool, are_alone: bool) -> list[str]:
    return [
        each
        for group in groups_of(name, [book], is_slow=is_slow)
        if are_alone or not needs_own_broker(*group[0])
        for held in held_by(name, group)
        for each in held.shown(name)
    ]
