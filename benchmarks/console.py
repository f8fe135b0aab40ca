"""The cost of the console: `python -m benchmarks.console` starts one beside a broker of 2,000 partitions, and prints

- the time from the command to its first page, and to its first answer about the cluster;
- the time from opening Topics in Chromium to its first paint, the first rows, and their figures;
- its memory after every page has been asked for.

The goals are those of docs/console.md. The machine should have nothing else to do.
"""

from __future__ import annotations

import http.client
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from minibroker import Broker

TOPICS, PARTITIONS = 200, 10
ROUNDS = 5
PAGES = 15
SEEN_MS = 1_500
PATHS = (
    "/api/cluster",
    "/api/topics?n=50&figures=1",
    "/api/topics?n=8&sort=-messages",
    "/api/topics/topic-007",
    "/api/topics/topic-007/messages",
    "/api/topics/topic-007/settings",
    "/api/groups",
    "/api/lag",
    "/api/clients",
    "/api/transactions",
)


class Measured:
    """A console, with the seconds from its command to its first page and its first answer."""

    def __init__(self, bootstrap: str) -> None:
        begun = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minibroker", "console", "-b", bootstrap, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.rstrip("/\n").rpartition(":")[2])
        self.ask("/")
        self.page_seconds = time.perf_counter() - begun
        self.ask("/api/cluster")
        self.answer_seconds = time.perf_counter() - begun

    def ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        assert response.status == 200, body
        return body

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (each for each in status.splitlines() if each.startswith("VmRSS:"))
        return int(line.split()[1]) / 1000

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def on_screen(console: Measured) -> dict[str, list[float]]:
    """Milliseconds in Chromium to the first paint of Topics, its first rows, and their figures."""
    from playwright.sync_api import sync_playwright

    found: dict[str, list[float]] = {"first paint": [], "first rows": [], "their figures": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(PAGES):
            page = browser.new_page()
            page.add_init_script(SEEN)
            page.goto(f"http://127.0.0.1:{console.port}/topics")
            page.wait_for_timeout(SEEN_MS)  # a locator would bring its own script into the page meanwhile
            seen: Any = page.evaluate("window.seen")
            found["first paint"].append(page.evaluate(FIRST_PAINT))
            found["first rows"].append(seen["rows"])
            found["their figures"].append(seen["figures"])
            page.close()
        browser.close()
    return found


# Notes when the first row of the table is there, and when its first figure is.
SEEN = """
window.seen = {}
new MutationObserver(() => {
  const row = document.querySelector('tbody tr')
  if (row && !seen.rows) seen.rows = performance.now()
  if (row && !seen.figures && /\\d B/.test(row.textContent)) seen.figures = performance.now()
}).observe(document, {subtree: true, childList: true, characterData: true})
"""

FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    with Broker(settings={"num.partitions": PARTITIONS}) as broker:
        for number in range(TOPICS):
            broker.create_topic(f"topic-{number:03d}", partitions=PARTITIONS)
        rounds = [Measured(broker.bootstrap_servers) for _ in range(ROUNDS)]
        for each in rounds[1:]:
            each.close()
        console = rounds[0]
        print(f"page after {min(each.page_seconds for each in rounds) * 1000:.0f} ms")
        print(f"first answer after {min(each.answer_seconds for each in rounds) * 1000:.0f} ms")
        for path in PATHS * 3:
            begun = time.perf_counter()
            console.ask(path)
            if path in PATHS:
                print(f"  {path}: {(time.perf_counter() - begun) * 1000:.0f} ms")
        if shutil.which("chromium"):
            for name, values in on_screen(console).items():
                print(f"{name} after {min(values):.0f} ms, median {statistics.median(values):.0f} ms")
        print(f"memory {console.memory_mb():.1f} MB")
        console.close()


if __name__ == "__main__":
    main()
