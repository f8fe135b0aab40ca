"""The page of an address names the modules that it needs, so that no module waits for another to name it."""

from __future__ import annotations

import re

import pytest

from minibroker.console.assets import PAGE, assets, imported, joined, modules_of, pages


def test_each_page_of_the_router_is_served() -> None:
    patterns = re.findall(r"pattern: '", assets()["sections.js"].content.decode())

    assert len(pages()) == len(patterns) > 8
    assert all(module in assets() for _, modules in pages() for module in modules)


@pytest.mark.parametrize(
    ("path", "module", "is_needed"),
    [
        ("/", "pages/overview.js", True),
        ("/", "pages/topics.js", False),
        ("/topics", "pages/topics.js", True),
        ("/topics/a%2Fb/messages", "pages/message.js", True),  # imported by what the page imports
        ("/topics/orders/log", "inside/log.js", False),  # by the part that is opened, later
        ("/inside", "inside/requests.js", True),
        ("/no/such/page/at/all", "main.js", True),
    ],
)
def test_a_page_has_its_own_modules(path: str, module: str, is_needed: bool) -> None:
    found = modules_of(path)

    assert (module in found) == is_needed
    assert found[0] == "main.js"
    assert len(found) == len(set(found))


def test_imports_of_modules_are_found_relative_to_them() -> None:
    assert joined("pages/topic.js", "../inside/log.js") == "inside/log.js"
    assert {"api.js", "format.js"} <= set(imported(["pages/message.js"]))


def test_every_file_that_the_page_names_is_there() -> None:
    named = re.findall(r'(?:src|href)="/static/([^"]+)"', assets()[PAGE].content.decode())

    assert {"before.js", "styles.css", "main.js"} < set(named) <= assets().keys()


def test_of_two_scripts_in_one_file_the_second_does_not_call_the_result_of_the_first() -> None:
    script = assets()["before.js"].content.decode()

    assert re.search(r"\}\)\(\)\s*;\s*(//.*\s*)*\(\(\) =>", script)
