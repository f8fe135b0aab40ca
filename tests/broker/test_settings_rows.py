"""Settings are judged as `tests/golden/settings` has it (`settings_rows.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.books import Book, Script, cases
from tests.broker.settings_rows import FOLDER, as_judged, make_stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize(("book", "script"), cases(FOLDER))
def test_settings_are_judged_as_recorded(stores: Path, book: Book, script: Script) -> None:
    assert as_judged(script, stores) == script.text.rstrip("\n")
