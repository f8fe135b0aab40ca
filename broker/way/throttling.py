"""The stage of quotas: it charges each request from the first quota on (`apis/charge.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.broker.apis.charge import Charge, Charging
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.stage import GO_ON, Stage


class Throttling(Stage):
    """Charges the client of each request, and adds the throttle time to the answer."""

    def __init__(self, charging: Charging) -> None:
        self._charging = charging

    @property
    def is_idle(self) -> bool:
        return not self._charging.quotas.is_used

    def when_changed(self, call: Callable[[], None]) -> None:
        self._charging.quotas.when_used(call)

    def enter(self, exchange: Exchange) -> Any:
        assert exchange.served is not None
        exchange.charge = Charge(self._charging, exchange.served, exchange.client)
        exchange.client.account(exchange.charge)
        return GO_ON

    def leave(self, exchange: Exchange, answer: Body) -> Body:
        assert exchange.charge is not None
        return exchange.charge.throttled(answer)
