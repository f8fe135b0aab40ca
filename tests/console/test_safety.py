"""Requests that a page elsewhere could make a browser send, and the console's refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import minibroker.console
from minibroker.any_cluster.bootstrap import DEFAULT_CLUSTER
from minibroker.console.options import ConsoleOptions
from minibroker.console.safety import CONTENT_SECURITY_POLICY, refusal_of

TOKEN = "a-token-of-this-test"
STATIC = Path(minibroker.console.__file__).parent / "static"
HOME = {"host": "127.0.0.1:8080"}
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}
JSON = {"content-type": "application/json"}
LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def options(**changes: Any) -> ConsoleOptions:
    given: dict[str, Any] = {"cluster": DEFAULT_CLUSTER, "host": "127.0.0.1", "port": 8080, "token": TOKEN}
    return ConsoleOptions(**given | changes)


def status(method: str, path: str, headers: dict[str, str], **changes: Any) -> int | None:
    """Of the refusal, None if the request is served."""
    refusal = refusal_of(options(**changes), method, path, headers)
    assert refusal is None or ";" in refusal.error  # what, and what to do
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("host", "refused"),
    [
        ("localhost:8080", None),
        ("LOCALHOST", None),
        ("127.0.0.1:8080", None),
        ("[::1]:8080", None),
        ("kafka.example:8080", None),
        ("attacker.example:8080", 400),
        ("127.0.0.1.attacker.example", 400),
        ("localhost:8080, attacker.example", 400),
        ("localhost:8080@attacker.example", 400),
        ("", 400),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/cluster", "/static/main.js"])
def test_a_name_that_was_rebound_to_this_address_is_refused(host: str, refused: int | None, path: str) -> None:
    assert status("GET", path, {"host": host}, host_names=["Kafka.example"]) == refused


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "CONNECT", "PATCH"])
def test_other_methods_are_refused_so_no_preflight_is_granted(method: str) -> None:
    assert status(method, "/api/topics", HOME) == 405


@pytest.mark.parametrize(
    ("method", "path", "headers", "refused"),
    [
        ("GET", "/api/cluster", {"sec-fetch-site": "same-origin"}, None),
        ("GET", "/api/cluster", {"sec-fetch-site": "none"}, None),
        ("GET", "/api/cluster", {"sec-fetch-site": "cross-site"}, 403),
        ("GET", "/api/cluster", {"sec-fetch-site": "same-site"}, 403),  # another port of this machine
        ("GET", "/api/cluster", {"sec-fetch-site": "cross-site", **LINK}, 403),
        ("GET", "/topics/a", {"sec-fetch-site": "cross-site", **LINK}, None),  # a link in a chat
        ("GET", "/topics/a", {"sec-fetch-site": "cross-site", **LINK, "sec-fetch-dest": "iframe"}, 403),
        ("GET", "/static/main.js", {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ("POST", "/", {"sec-fetch-site": "cross-site", **LINK}, 403),
        ("GET", "/api/cluster", {"origin": "http://attacker.example"}, 403),
        ("GET", "/api/cluster", {"origin": "null"}, 403),
        ("GET", "/api/cluster", {"origin": "http://127.0.0.1:8080"}, None),
    ],
)
def test_requests_that_another_site_causes_are_refused(
    method: str, path: str, headers: dict[str, str], refused: int | None
) -> None:
    assert status(method, path, HOME | headers) == refused


@pytest.mark.parametrize(
    ("headers", "changes", "refused"),
    [
        ({}, {}, 401),
        ({"authorization": "Bearer wrong"}, {}, 401),
        ({"authorization": TOKEN}, {}, 401),
        ({"cookie": f"token={TOKEN}"}, {}, 401),
        (AUTHORIZED, {}, 415),
        (AUTHORIZED | {"content-type": "text/plain"}, {}, 415),
        (AUTHORIZED | {"content-type": "application/x-www-form-urlencoded"}, {}, 415),
        (AUTHORIZED | JSON, {"allow_changes": False}, 403),
        (AUTHORIZED | JSON, {}, None),
        (AUTHORIZED | {"content-type": "application/json; charset=utf-8"}, {}, None),
        (AUTHORIZED | JSON | {"origin": "http://attacker.example"}, {}, 403),
        (AUTHORIZED | JSON, {"token": None}, 401),
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_change_needs_the_token_and_json_and_permission(
    method: str, headers: dict[str, str], changes: dict[str, Any], refused: int | None
) -> None:
    assert status(method, "/api/topics", HOME | headers, **{"allow_changes": True} | changes) == refused


@pytest.mark.parametrize(
    ("path", "headers", "refused"),
    [
        ("/api/cluster", {}, 401),
        ("/api/cluster", AUTHORIZED, None),
        ("/metrics", {}, 401),
        ("/static/main.js", {}, None),  # of the package, the same for everybody
        ("/healthz", {}, None),
    ],
)
def test_on_another_address_everything_of_the_cluster_needs_the_token(
    path: str, headers: dict[str, str], refused: int | None
) -> None:
    assert status("GET", path, {"host": "10.0.0.7:8080"} | headers, host="10.0.0.7") == refused


def test_every_interface_has_no_name_of_its_own() -> None:
    assert status("GET", "/healthz", {"host": "0.0.0.0:8080"}, host="0.0.0.0") == 400


def test_the_policy_lets_nothing_in_from_elsewhere() -> None:
    directives = dict(part.strip().partition(" ")[::2] for part in CONTENT_SECURITY_POLICY.split(";"))

    assert directives["default-src"] == "'none'"
    assert directives["frame-ancestors"] == "'none'"
    assert set(" ".join(directives.values()).split()) <= {"'none'", "'self'", "data:"}
    assert [name for name, value in directives.items() if "data:" in value] == ["img-src"]


@pytest.mark.parametrize(
    "forbidden",
    [
        r"innerHTML",
        r"outerHTML",
        r"insertAdjacentHTML",
        r"document\.write",
        r"DOMParser",
        r"\beval\(",
        r"new Function",
        r"srcdoc",
        r"createContextualFragment",
        r"https?://(?!www\.w3\.org/2000/svg)",
        r"\sstyle=",
    ],
)
def test_the_page_parses_no_markup_and_names_no_other_site(forbidden: str) -> None:
    files = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".html")]

    found = [str(path.relative_to(STATIC)) for path in files if re.search(forbidden, path.read_text(encoding="utf-8"))]

    assert len(files) > 5
    assert found == []
