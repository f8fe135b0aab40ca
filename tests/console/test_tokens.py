"""The colours of both themes: text and marks stand out from what they are on (WCAG 2.2, 1.4.3 and 1.4.11)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import minibroker.console
from tests.console.contrast import contrast

CSS = (Path(minibroker.console.__file__).parent / "static" / "tokens.css").read_text(encoding="utf-8")
TEXT = ("ink", "ink-2", "ink-3", "fetch", "produce", "group", "other", "hw", "lso", "err")
TEXT_CONTRAST = 4.5


def tokens(theme: str) -> dict[str, str]:
    """The colours of a theme by name."""
    selector = ":root {" if theme == "light" else ":root[data-theme='dark'] {"
    block = CSS[CSS.index(selector) :].partition("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9A-F]{6});", block))


def mixed(colour: str, ground: str, share: float) -> str:
    """The colour at that share over the ground, as a fill is drawn."""
    pairs = [(int(colour[at : at + 2], 16), int(ground[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(one * share + other * (1 - share)):02X}" for one, other in pairs)


def test_contrast_is_that_of_wcag() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", TEXT)
def test_text_can_be_read_on_the_panel_and_on_the_page(theme: str, name: str) -> None:
    colours = tokens(theme)

    assert contrast(colours[name], colours["surface"]) >= TEXT_CONTRAST
    assert contrast(colours[name], colours["bg"]) >= TEXT_CONTRAST
    assert contrast(colours["surface"], colours[name]) >= TEXT_CONTRAST  # on a filled hue


@pytest.mark.parametrize(("theme", "share"), [("light", 0.14), ("dark", 0.18)])
@pytest.mark.parametrize("name", ["fetch", "produce", "group", "other", "hw", "lso", "err"])
def test_text_can_be_read_on_a_fill(theme: str, share: float, name: str) -> None:
    colours = tokens(theme)

    assert f"--{name}-fill: color-mix(in srgb, var(--{name}) var(--fill-share), transparent);" in CSS
    assert contrast(colours["ink"], mixed(colours[name], colours["surface"], share)) >= TEXT_CONTRAST


def test_both_themes_have_the_same_tokens() -> None:
    assert tokens("light").keys() == tokens("dark").keys() >= {*TEXT, "bg", "surface", "line", "line-2"}
