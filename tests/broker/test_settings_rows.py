"""Settings are judged as `tests/golden/settings` has it (`settings_rows.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.books import Book, Script, cases, read_book
from tests.broker.settings_rows import FOLDER, as_judged, make_stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.parametrize(("book", "script"), cases(FOLDER))
def test_settings_are_judged_as_recorded(stores: Path, book: Book, script: Script) -> None:
    assert as_judged(script, stores) == script.text.rstrip("\n")


# First topics; a mounted file; a quorum of one; what a SASL listener needs.
EFFECT_ELSEWHERE = {"KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR", "KAFKA_MOUNTED_CONF_DIR"}
EFFECT_ELSEWHERE |= {"KAFKA_INITIAL_CONTROLLERS", "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD"}


def test_only_variables_with_an_effect_elsewhere_have_no_outcome() -> None:
    scripts = read_book(FOLDER / "images.txt").scripts.values()
    silent = {step for each in scripts for step, answer in zip(each.steps, each.answers, strict=True) if not answer}

    assert {step.removeprefix("variables ").partition("=")[0] for step in silent} == EFFECT_ELSEWHERE
