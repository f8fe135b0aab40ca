"""Conversations with a broker in memory are answered as `tests/golden/conversations` has them (`conversations.py`)."""

from __future__ import annotations

import pytest

from tests.books import Book, Script, cases
from tests.books.conversations import FOLDER, held, is_timed
from tests.broker.conftest import MakeBroker

CASES = cases(FOLDER, lambda book, script: [pytest.mark.time_jumps] if is_timed(book, script) else [])


@pytest.mark.parametrize(("book", "script"), CASES)
async def test_answers_are_those_that_are_recorded(make_broker: MakeBroker, book: Book, script: Script) -> None:
    assert await held(make_broker, book, script) == script.text.rstrip("\n")
