"""The pictures of documents are what the console draws today, and the narrow page Inside looks as it did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.comparing import check_picture, share_that_differs
from tests.console.conftest import NARROW, NewTab, RunningConsole, console_of
from tests.console.inside_moment import open_moment
from tests.console.pictures import (
    ALL_PICTURES,
    CONSOLE,
    NOWHERE,
    PAGE_SIZE,
    PICTURES,
    RECORDED,
    THEMES,
    Picture,
    Theme,
    drawn,
    rows_in,
)

REFERENCE = Path(__file__).parent / "reference"
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.integration]


@pytest.fixture(scope="module")
def empty_console() -> Iterator[RunningConsole]:
    """A console without a broker: the pages get what was recorded."""
    with console_of(NOWHERE, "--allow-changes") as running:
        yield running


@pytest.fixture(scope="module")
def scenes() -> Any:
    return json.loads(RECORDED.read_text(encoding="utf-8"))


ONE_OF_A_SCENE = {picture.scene: picture for picture in ALL_PICTURES}.values()


@pytest.mark.sample(of=lambda picture, theme: picture in ONE_OF_A_SCENE and (theme == "dark") == (picture is CONSOLE))
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("picture", ALL_PICTURES, ids=lambda picture: picture.name)
def test_a_picture_of_a_document_is_as_the_console_draws_it(
    new_tab: NewTab, empty_console: RunningConsole, scenes: Any, picture: Picture, theme: Theme, tmp_path: Path
) -> None:
    tab = new_tab(size=PAGE_SIZE, of=empty_console)

    png = drawn(tab.page, empty_console, picture, scenes, theme)

    check_picture(png, picture.path(theme), tmp_path)


def test_the_narrow_page_inside_looks_as_it_did(new_tab: NewTab, empty_console: RunningConsole, tmp_path: Path) -> None:
    page = open_moment(new_tab(size=NARROW, theme="dark", of=empty_console))

    png = page.screenshot(full_page=True, animations="disabled")

    check_picture(png, REFERENCE / "inside-dark-narrow.png", tmp_path)


def test_a_picture_that_differs_in_one_word_is_noticed(new_tab: NewTab, empty_console: RunningConsole) -> None:
    page = open_moment(new_tab(of=empty_console))
    before = page.screenshot(animations="disabled")
    page.evaluate("document.querySelector('.steps b').textContent = 'Read: another frame'")

    assert share_that_differs(before, page.screenshot(animations="disabled")) > 0


def test_every_picture_that_a_document_shows_is_made_here_in_both_themes() -> None:
    made = {picture.path(theme).name for picture in ALL_PICTURES for theme in THEMES}

    assert {path.name for path in PICTURES.glob("*.png")} == made | {"flight-delays.png", "flight-delays-dark.png"}


def test_the_steps_of_a_fetch_are_those_of_one_fetch(scenes: Any) -> None:
    fetch, produce = scenes["waiting"]["seq"], scenes["produce"]["seq"]
    (row,) = (row for row in rows_in(scenes["woken"]["answers"]["/api/inside/exchanges"]) if row["seq"] == fetch)

    assert scenes["woken"]["seq"] == fetch
    assert (row["api"], row["outcome"], row["woken_by"]) == ("Fetch", "woken", produce)
    assert scenes["sendfile"]["seq"] != fetch
