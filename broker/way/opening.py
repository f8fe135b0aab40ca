"""Holds requests back until this broker knows its cluster: an answer before that would deny topics that exist."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import trio

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.broker.upkeep.background import Background
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.stage import GO_ON, GoOn, Stage
from minibroker.protocol.api import ApiKey

API_KEY = struct.Struct(">h")
# What a controller sends, and what needs no state.
ALWAYS_ANSWERED: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
    }
)


class Opening(Stage):
    """Stands before the codec, which needs the ids of topics. `open` answers what has waited; `give_up` closes it."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._ended = trio.Event()
        self._is_open = False
        self._when_changed: Callable[[], None] = lambda: None

    @property
    def is_idle(self) -> bool:
        return self._is_open

    def when_changed(self, call: Callable[[], None]) -> None:
        self._when_changed = call

    def open(self) -> None:
        """This broker knows its cluster: answer all requests from now on."""
        self._is_open = True
        self._when_changed()
        self._ended.set()

    def give_up(self) -> None:
        """The broker stops: close the connections of requests that wait."""
        self._ended.set()

    def enter(self, exchange: Exchange) -> Any:
        is_answered = exchange.is_login or exchange.is_token or len(exchange.frame) < API_KEY.size
        if is_answered or API_KEY.unpack_from(exchange.frame)[0] in ALWAYS_ANSWERED:
            return GO_ON
        return self._background.promise(self._wait)

    async def _wait(self) -> GoOn:
        await self._ended.wait()
        if not self._is_open:
            raise CloseConnectionError("the broker stops before it knows its cluster")
        return GO_ON
