"""The stage of quotas: it charges each request from the first quota on (`charge.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.broker.pending import Pending
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.broker.wings.quotas.charge import Charge, Charging
from minibroker.protocol.api import ApiKey
from minibroker.protocol.messages.fetch import replica_id_of


class Throttling(Stage):
    """Charges the client of each request, adds the throttle time to the answer, and may hold that back."""

    def __init__(self, charging: Charging) -> None:
        self._charging = charging

    @property
    def is_idle(self) -> bool:
        return not self._charging.quotas.is_used

    def when_changed(self, call: Callable[[], None]) -> None:
        self._charging.quotas.when_used(call)

    def enter(self, exchange: Exchange) -> Any:
        request, client = exchange.served, exchange.client
        assert request is not None
        charge = Charge(self._charging, request, client)
        exchange.note(self, charge)
        if request.api_key == ApiKey.FETCH:
            if replica_id_of(request.body) >= 0:  # a follower's
                charge.exempt()
                client.measure(None)
            else:
                client.measure(charge)
                limit_fetch(exchange, charge.most_fetched_bytes())
        return GO_ON

    def waits(self, exchange: Exchange) -> None:
        exchange.noted(self).note_handled()

    def leave(self, exchange: Exchange, answer: Body) -> Body | Pending[Body]:
        return exchange.noted(self).throttled(answer)


def limit_fetch(exchange: Exchange, most_bytes: float) -> None:
    """Limit a Fetch to what its quota allows in a whole window: more would never be answered with records.

    As kafka 2.3 KafkaApis.handleFetchRequest. A follower has no quota.
    """
    assert exchange.served is not None
    body = exchange.served.body
    if most_bytes < body.max_bytes:
        max_bytes = int(most_bytes)
        exchange.narrow(body._replace(max_bytes=max_bytes, min_bytes=min(body.min_bytes, max_bytes)))
