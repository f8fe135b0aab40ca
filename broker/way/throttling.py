"""The stage of quotas: it charges each request from the first quota on (`apis/charge.py`)."""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.charge import Charge, Charging
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.stage import GO_ON, Stage


class Throttling(Stage):
    """Charges the client of each request, and adds the throttle time to the answer."""

    def __init__(self, charging: Charging) -> None:
        self._charging = charging

    def enter(self, exchange: Exchange) -> Any:
        if self._charging.quotas.is_used:
            assert exchange.served is not None
            exchange.charge = Charge(self._charging, exchange.served, exchange.client)
            exchange.client.account(exchange.charge)
        return GO_ON

    def leave(self, exchange: Exchange, answer: Body) -> Body:
        charge = exchange.charge
        return answer if charge is None else charge.throttled(answer)
