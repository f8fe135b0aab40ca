"""Logs are, after what was done to them, as `tests/golden/histories` has it (`histories.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.conversations import Book, Script
from tests.storage.histories import books, taken

CASES = [
    pytest.param(book, script, id=f"{book.path.stem}: {script.title}")
    for book in books()
    for script in book.scripts.values()
]


@pytest.mark.parametrize(("book", "script"), CASES)
def test_a_log_is_as_it_is_recorded(tmp_path: Path, book: Book, script: Script) -> None:
    assert taken(tmp_path, book, script) == script.text.rstrip("\n")
