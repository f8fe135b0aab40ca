"""The clock of a broker under test: time passes for the broker, not for its clients.

Only what has reached the broker has a deadline there: a long poll that a client is about to send does not wait yet.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minibroker.control import Control


class BrokerClock:
    """`Broker.clock`. Each method raises BrokerError if the broker is not running."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass for the broker at once; return when everything due in it has happened.

        Long polls, sessions, rebalances, transactions, retention and the rest come in the order of their deadlines.
        Raises BrokerError for a negative time, and beyond 100 years in all.
        """
        self._control.call(
            "clock.advance", seconds=seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        )

    def now(self) -> datetime:
        """The broker's time in UTC: real time plus all it was advanced by since its start."""
        return datetime.fromtimestamp(self._control.call("clock.now") / 1000, UTC)
