"""A console of a broker, and pages of it in the machine's Chromium.

A page fails its test on an uncaught exception, on an error in its console, and on a request to anybody but the
console. Without Chromium, the tests of pages skip; those of the console's answers need none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from minibroker import Broker
from tests.console import moment
from tests.console.comparing import difference

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Playwright, Request, Route

AXE = Path(__file__).parent / "axe" / "axe.min.js"
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
READY = re.compile(r"ready at (http://\S+?)/(?:#token=(\S+))?$")
STOP_SECONDS = 10
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
WIDE, NARROW, PHONE = (1280, 900), (800, 900), (390, 844)
NO_CHROMIUM = "no Chromium on this machine: apt-get install -y --no-install-recommends chromium-headless-shell"
NO_PLAYWRIGHT = "playwright is not installed: pip install playwright"
# Where a page would differ from run to run, or a headless Chromium from a machine to another.
CHROMIUM_OPTIONS = ["--no-sandbox", "--force-color-profile=srgb", "--font-render-hinting=slight", "--disable-gpu"]
CHROMIUM_OPTIONS += ["--in-process-gpu"]  # a process less in each browser


def find_chromium() -> str | None:
    """The one that never has a window, in two thirds of the CPU time, or else the whole browser; both draw the same."""
    return shutil.which("chromium-headless-shell") or shutil.which("chromium")


class RunningConsole:
    """`minibroker console` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.line = process.stdout.readline().strip()
        found = READY.search(self.line)
        assert found is not None, self.line
        self.url, self.token = found[1], found[2]

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return self.url.removeprefix("http://")


@contextmanager
def console_of(bootstrap: str, *options: object) -> Iterator[RunningConsole]:
    command = [sys.executable, "-m", "minibroker", "console", "--parent-pid", str(os.getpid())]
    command += ["-b", bootstrap, "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, *map(str, options)], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    try:
        yield RunningConsole(process)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture(scope="session")
def shown_broker() -> Iterator[Broker]:
    """One broker for the tests of a worker."""
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture(scope="session")
def console(shown_broker: Broker) -> Iterator[RunningConsole]:
    """Its console, which may change things."""
    with console_of(shown_broker.bootstrap_servers, "--allow-changes") as running:
        yield running


# It ends with a file's tests: while it runs, no test of its process can start an event loop.
@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    api = pytest.importorskip("playwright.sync_api", reason=NO_PLAYWRIGHT)
    with api.sync_playwright() as started:
        yield started


@pytest.fixture(scope="module")
def chromium(playwright: Playwright) -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip(NO_CHROMIUM)
    browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_OPTIONS)
    yield browser
    browser.close()


class Tab:
    """A page of the console in a browser, with what went wrong in it."""

    def __init__(self, page: Page, console: RunningConsole) -> None:
        self.page = page
        self.console = console
        self.failures: list[str] = []
        self.allowed_failures: list[str] = []  # regular expressions of errors that the test causes
        self.is_at_a_moment = False
        page.on("pageerror", self._on_error)
        page.on("console", self._on_message)
        page.on("request", self._on_request)

    def leave(self) -> None:
        """Hear no more of the page."""
        self.page.remove_listener("pageerror", self._on_error)
        self.page.remove_listener("console", self._on_message)
        self.page.remove_listener("request", self._on_request)

    def _on_error(self, error: Error) -> None:
        self.failures.append(f"uncaught: {error}")

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.failures.append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.console.url, "data:", "blob:")):
            self.failures.append(f"a request to {request.url}")

    def open(self, path: str, *, token: bool = True) -> Page:
        """Go to an address of the console, with its token unless it is left out."""
        fragment = f"#token={self.console.token}" if token and self.console.token else ""
        self._load(lambda: self.page.goto(f"{self.console.url}{path}{fragment}"))
        return self.page

    def reload(self) -> Page:
        self._load(self.page.reload)
        return self.page

    def _load(self, load: Callable[[], object]) -> None:
        """Load the page and its fonts; anew if a network of the machine came or went: Chromium aborts what it loads.

        A font is loaded when a text needs it, after the page, and is not asked for again.
        """
        for is_last in (False, False, True):
            before = len(self.failures)
            try:
                load()
                self.page.wait_for_function("document.fonts.ready.then(() => true)")
                is_aborted = any(NETWORK_CHANGED in each for each in self.failures[before:])
            except Exception as error:
                is_aborted = NETWORK_CHANGED in str(error)
                if not is_aborted or is_last:
                    raise
            if not is_aborted:
                return
            del self.failures[before:]

    def go(self, path: str, *, token: bool = True) -> Page:
        """Go on to an address by a link, as the page itself does; the first time, open it."""
        if self.page.url == "about:blank":
            return self.open(path, token=token)
        self.page.evaluate(FOLLOW, path)
        self.page.locator("main[data-page]").wait_for()
        return self.page

    def axe(self, rules: list[str] | None = None) -> list[str]:
        """Return the findings of axe-core on the page, by all rules or some: none, if the page is accessible."""
        if self.page.evaluate("typeof axe") == "undefined":
            self.page.evaluate(AXE.read_text(encoding="utf-8"))
        only = {"type": "tag", "values": AXE_TAGS} if rules is None else {"type": "rule", "values": rules}
        found = self.page.evaluate("only => axe.run(document, {runOnly: only, resultTypes: ['violations']})", only)
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]} {node['failureSummary']}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def sideways(self) -> list[str]:
        """Return what is wider than its place: the page, which would be scrolled sideways, or a panel's content."""
        return [str(each) for each in self.page.evaluate(SIDEWAYS)]

    def answer_from(self, answers: dict[str, Any]) -> None:
        """From now on, answer from a moment that was written down, at its time."""
        self.is_at_a_moment = True
        self.page.clock.set_fixed_time(moment.NOW)

        def fulfil(route: Route) -> None:
            found = moment.answer_to(route.request.url, answers)
            if "/api/stream/lag" in route.request.url:
                lag = json.dumps(answers["/api/lag"])
                route.fulfill(body=f"data: {lag}\n\n", headers={"content-type": "text/event-stream"})
            elif found is None:
                route.fulfill(status=404, json={"error": "not in the moment; add it"})
            else:
                route.fulfill(json=found)

        self.page.route("**/api/**", fulfil)

    def compare(self, name: str) -> list[str]:
        """Compare with the picture of that name; return the difference, nothing for a few pixels."""
        taken = self.page.screenshot(full_page=True, animations="disabled", caret="hide")
        differs = difference(taken, REFERENCE / f"{name}.png", Path(tempfile.gettempdir()))
        return [] if differs is None else [differs]

    def unexpected(self) -> list[str]:
        allowed = [NETWORK_CHANGED, *self.allowed_failures]  # the page asks again for what was aborted
        return [each for each in self.failures if not any(re.search(one, each) for one in allowed)]


HOLDING = ":root, .column, .panels, .panel, .toolbar, .rows td, .rows th[scope=row], .scroll"
SIDEWAYS = f"""() => [...document.querySelectorAll('{HOLDING}')]
  .filter(each => each.scrollWidth > each.clientWidth + 1)
  .filter(each => each.matches('.scroll') || getComputedStyle(each).overflowX === 'visible')
  .map(each => [each.tagName, each.className, each.ariaLabel, each.scrollWidth, 'px in', each.clientWidth].join(' '))
"""

FOLLOW = """path => {
  const link = document.createElement('a')
  link.href = path
  document.body.append(link)
  link.click()
  link.remove()
}"""

REFERENCE = Path(__file__).parent / "reference"

NewTab = Callable[..., Tab]


class Pages:
    """Pages of a browser, which tests use one after the other: making one takes a second of CPU time."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: list[Page] = []

    def take(self, size: tuple[int, int], theme: str) -> Page:
        """Return a page of that size that has stored nothing."""
        page = self._free.pop() if self._free else self._new()
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        return page

    def _new(self) -> Page:
        context = self._browser.new_context(reduced_motion="reduce", timezone_id="UTC", locale="en-US")
        context.set_default_timeout(15_000)
        return context.new_page()

    def give_back(self, tab: Tab) -> None:
        """Keep the page for another test, without what it has stored.

        Close it if its clock stands, which stays so, or if it is not at the console, whose storage is to be cleared.
        """
        page = tab.page
        if tab.is_at_a_moment or not page.url.startswith(tab.console.url):
            page.context.close()
            return
        page.unroute_all()
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.goto("about:blank")
        self._free.append(page)


@pytest.fixture(scope="module")
def pages(chromium: Browser) -> Pages:
    return Pages(chromium)


@pytest.fixture
def new_tab(pages: Pages, console: RunningConsole) -> Iterator[NewTab]:
    """Makes tabs: `new_tab(size=NARROW, theme="dark", of=another_console)`."""
    opened: list[Tab] = []

    def make(*, size: tuple[int, int] = WIDE, theme: str = "light", of: RunningConsole | None = None) -> Tab:
        opened.append(Tab(pages.take(size, theme), of or console))
        return opened[-1]

    yield make
    unexpected = [each for tab in opened for each in tab.unexpected()]
    for tab in opened:
        tab.leave()
        pages.give_back(tab)
    assert unexpected == []


@pytest.fixture
def tab(new_tab: NewTab) -> Tab:
    """One tab, wide and light."""
    return new_tab()
