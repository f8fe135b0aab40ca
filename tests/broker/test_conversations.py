"""Conversations with a broker in memory are answered as `tests/golden/conversations` has them (`conversations.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.conftest import MakeBroker
from tests.broker.conversations import Book, Script, books, held


def cases() -> Iterator[object]:
    for book in books():
        for script in book.scripts.values():
            marks = [pytest.mark.time_jumps] if book.is_timed(script) else []
            yield pytest.param(book, script, id=f"{book.path.stem}: {script.title}", marks=marks)


@pytest.mark.parametrize(("book", "script"), list(cases()))
async def test_answers_are_those_that_are_recorded(make_broker: MakeBroker, book: Book, script: Script) -> None:
    assert await held(make_broker, book, script) == script.text.rstrip("\n")
