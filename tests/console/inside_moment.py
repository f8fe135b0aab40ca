"""The page Inside at the moment that the pictures of the documents were recorded at (pictures.py)."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page

from tests.console.conftest import Tab
from tests.console.moment import lengthened
from tests.console.pictures import RECORDED, TOPIC, address_of, fulfil, rows_in, wait_until_drawn

Json = dict[str, Any]
EXCHANGES = "/api/inside/exchanges"
FAILED_WITH = "COORDINATOR_NOT_AVAILABLE"


def recorded_scene() -> Json:
    """Return the scene of a fetch that a produce wakes. One request before it has failed here, as none did then."""
    scene: Json = json.loads(RECORDED.read_text(encoding="utf-8"))["woken"]
    rows = rows_of(scene)
    commit = next(row for row in reversed(rows) if row["api"] == "OffsetCommit")
    commit["error"] = FAILED_WITH
    scene["answers"][EXCHANGES]["exchanges"] = [list(row.values()) for row in rows]
    return scene


def rows_of(scene: Json) -> list[Json]:
    """Return the exchanges that have ended."""
    return rows_in(scene["answers"][EXCHANGES])


def explained(scene: Json) -> Json:
    """Return the explanation of the fetch."""
    found: Json = scene["answers"][f"{EXCHANGES}/{scene['seq']}"]
    return found


def log(scene: Json) -> Json:
    """Return the log that the fetch read."""
    found: Json = scene["answers"][f"/api/inside/log/{TOPIC}/0"]
    return found


def purgatory(scene: Json) -> Json:
    found: Json = scene["answers"]["/api/inside/purgatory"]
    return found


def open_moment(tab: Tab, *, with_request: bool = True, long: bool = False) -> Page:
    """Open the page at that moment, paused, with the fetch chosen; with `long` names are as long as they can be."""
    scene = recorded_scene()
    fulfil(tab.page, lengthened(scene) if long else scene)
    page = tab.open(address_of(scene, with_request=with_request))
    wait_until_drawn(page, with_request=with_request)
    return page
