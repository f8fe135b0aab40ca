"""`/metrics` of the console: whom it asks, and what it says when it cannot."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.routing import Route

from minibroker.console.console import Console
from minibroker.console.prometheus import routes
from minibroker.errors import BrokerError

ACCEPTED = "application/openmetrics-text;version=1.0.0"


async def answer(control: Any) -> tuple[int, str, str]:
    console = SimpleNamespace(options=SimpleNamespace(cluster=None), control=SimpleNamespace(call=control))
    (route,) = routes(cast("Console", console))
    assert isinstance(route, Route)
    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": [(b"accept", ACCEPTED.encode())]}
    response = await route.endpoint(Request(scope))
    return response.status_code, response.headers["content-type"], bytes(response.body).decode()


async def test_a_broker_with_a_control_socket_is_asked_there() -> None:
    def call(name: str, **arguments: object) -> object:
        about = [["gauge", "descriptors", "that are open", "process_open_fds"]]
        family = {"type": "minibroker:type=Process", "keys": [], "names": ["OpenFds"], "about": about, "rows": [[41]]}
        of_an_earlier_broker = {"type": "minibroker:type=Clock", "keys": [], "names": ["Timers"], "rows": [[7]]}
        families = [family, of_an_earlier_broker]
        return {"run": 1, "scan": None, "is_counting": True, "counted_from_ms": 0, "families": families}

    status, content_type, text = await answer(call)

    assert (status, content_type[:28]) == (200, "application/openmetrics-text")
    assert "\nprocess_open_fds 41.0\n" in text


async def test_a_broker_that_has_ended_is_an_error_in_a_line() -> None:
    def call(name: str, **arguments: object) -> object:
        raise BrokerError("the broker ended; start it again")

    status, _, text = await answer(call)

    assert (status, text) == (502, '{"error":"the broker ended; start it again"}')


async def test_without_prometheus_client_the_error_names_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "minibroker.metrics.exposition", None)

    status, _, text = await answer(None)

    assert (status, "pip install prometheus-client" in text) == (501, True)
