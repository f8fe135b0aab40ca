"""The conversations that Apache Kafka is asked, by title: books whose answers are recorded in tests/golden/."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from minibroker.conformance.steps import Script
from tests.books import GOLDEN, read_book
from tests.books.language import steps_of

Conversations = dict[str, Callable[[], Script]]


def conversations(folder: str) -> Conversations:
    """The conversations of the books in a folder of tests/golden/conversations/."""
    books = [read_book(path) for path in sorted((GOLDEN / "conversations" / folder).glob("*.txt"))]
    return {title: partial(steps_of, book, script) for book in books for title, script in book.scripts.items()}


OF_KAFKA_2_0 = conversations("kafka-2.0.1")
OF_KAFKA_4_4 = conversations("kafka-4.4.0")
