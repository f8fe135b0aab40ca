"""Settings are judged as `tests/golden/settings` has it (`settings_rows.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.conversations import Script
from tests.broker.settings_rows import as_judged, make_stores, scripts


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize("script", [pytest.param(script, id=f"{name}: {script.title}") for name, script in scripts()])
def test_settings_are_judged_as_recorded(stores: Path, script: Script) -> None:
    assert as_judged(script, stores) == script.text.rstrip("\n")
