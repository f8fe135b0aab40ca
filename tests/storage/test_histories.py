"""Logs are, after what was done to them, as `tests/golden/histories` has it (`histories.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.books import Book, Script, cases
from tests.storage.histories import FOLDER, taken


@pytest.mark.parametrize(("book", "script"), cases(FOLDER))
def test_a_log_is_as_it_is_recorded(tmp_path: Path, book: Book, script: Script) -> None:
    assert taken(tmp_path, book, script) == script.text.rstrip("\n")
