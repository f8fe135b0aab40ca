"""The shell of the page in a browser: its bar, its keys, its addresses."""

from __future__ import annotations

import pytest

from tests.console.conftest import NARROW, WIDE, NewTab, Tab

pytestmark = [pytest.mark.integration]


def test_the_overview_shows_the_cluster(tab: Tab) -> None:
    page = tab.open("/")

    page.get_by_role("heading", name="Overview").wait_for()
    page.get_by_text("brokers").first.wait_for()

    assert page.get_by_role("link", name="Overview").get_attribute("aria-current") == "page"
    assert "token" not in page.url


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(new_tab: NewTab, theme: str, size: tuple[int, int]) -> None:
    tab = new_tab(theme=theme, size=size)
    page = tab.open("/")
    page.get_by_text("brokers").first.wait_for()

    assert tab.axe() == []
