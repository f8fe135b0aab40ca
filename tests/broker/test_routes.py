"""Which handler serves which API: each has one, and no more."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.apis.routes import Routes, handlers_of
from minibroker.protocol.api import API_TABLE, ApiKey


def handler(request: Any, client: Any) -> None:
    return None


class Serves:
    """A family of handlers for these APIs."""

    def __init__(self, *keys: int) -> None:
        self._keys = keys

    def routes(self) -> Routes:
        return {ApiKey(key): handler for key in self._keys}


def test_every_api_has_its_handler() -> None:
    first, *others = API_TABLE

    assert handlers_of([Serves(first), Serves(*others)]) == dict.fromkeys(API_TABLE, handler)


def test_an_api_without_a_handler_is_refused() -> None:
    with pytest.raises(ValueError, match="no handler for FETCH, HEARTBEAT"):
        handlers_of([Serves(*(set(API_TABLE) - {ApiKey.FETCH, ApiKey.HEARTBEAT}))])


def test_an_api_with_two_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match="FETCH has two handlers"):
        handlers_of([Serves(*API_TABLE), Serves(ApiKey.FETCH)])
