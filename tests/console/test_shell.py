"""The shell of the page in a browser: its bar, its keys, its addresses."""

from __future__ import annotations

import pytest

from tests.console.conftest import Tab

pytestmark = [pytest.mark.integration]


def test_the_overview_shows_the_cluster(tab: Tab) -> None:
    page = tab.open("/")

    page.get_by_role("heading", name="Overview").wait_for()
    page.get_by_text("brokers").first.wait_for()

    assert page.get_by_role("link", name="Overview").get_attribute("aria-current") == "page"
    assert "token" not in page.url
