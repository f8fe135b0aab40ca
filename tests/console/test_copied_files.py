"""The copies of other projects' files are what they were when they were copied, and have their licences beside them."""

from __future__ import annotations

import hashlib

import pytest

from tests.console.copied_files import COPIED, ROOT, Copied


@pytest.mark.parametrize("copied", COPIED, ids=lambda each: each.path.rpartition("/")[2])
def test_a_copy_is_unchanged(copied: Copied) -> None:
    assert hashlib.sha256((ROOT / copied.path).read_bytes()).hexdigest() == copied.sha256


def test_every_font_of_the_page_is_a_copy_with_its_licence() -> None:
    fonts = ROOT / "src/minibroker/console/static/fonts"

    assert {str(path.relative_to(ROOT)) for path in fonts.iterdir()} == {
        each.path for each in COPIED if "/fonts/" in each.path
    }
    assert "SIL Open Font License" in (fonts / "OFL.txt").read_text(encoding="utf-8")
