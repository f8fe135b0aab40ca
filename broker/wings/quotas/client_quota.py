"""One kind of quota: what clients have used of it, and for how long one that exceeds its limit is throttled.

Clients share windows as `QuotaTable` has it. A window that is not used for an hour goes, as in kafka 2.0.1. Above
`WINDOWS_MAX` the one used longest ago goes earlier: a client may send any number of client ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from minibroker.broker.time.sampled_rate import MS_PER_SECOND, SampledRate, SampleWindow
from minibroker.broker.wings.quotas.entities import Entity, QuotaTable, WindowKey

WINDOWS_MAX = 10_000
IDLE_WINDOW_MS = 3_600_000
THROTTLE_WINDOW = SampleWindow(2, 30_000)  # as kafka 2.0.1 MetricConfig


class Used(NamedTuple):
    """The present rate of the clients of one window, and for how long they were throttled on average."""

    user: str
    client_id: str | None
    per_second: float
    throttle_ms: float


class ThrottleTimes:
    """The average of throttle times, 0 without any, as kafka 2.0.1 Avg."""

    def __init__(self, now_ms: int) -> None:
        self._sum = SampledRate(now_ms)
        self._count = SampledRate(now_ms)

    def record(self, throttle_ms: int, now_ms: int) -> None:
        self._sum.record(THROTTLE_WINDOW, throttle_ms, now_ms)
        self._count.record(THROTTLE_WINDOW, 1, now_ms)

    def average_ms(self, now_ms: int) -> float:
        count = self._count.total(THROTTLE_WINDOW, now_ms)
        return self._sum.total(THROTTLE_WINDOW, now_ms) / count if count else 0.0


class ClientQuota:
    """Counts values and finds the throttle time. `throttle_ms_max` bounds it, None for no bound."""

    def __init__(self, window: SampleWindow, *, everybody: float | None = None, throttle_ms_max: int | None = None):
        self._window = window
        self._table = QuotaTable(everybody)
        self._throttle_ms_max = throttle_ms_max
        self._rates: dict[WindowKey, SampledRate] = {}  # used longest ago first
        self._throttles: dict[WindowKey, ThrottleTimes] = {}  # of windows whose clients were throttled

    @property
    def is_used(self) -> bool:
        return self._table.is_used

    def set(self, entity: Entity, limit: float | None) -> None:
        """Set the limit of an entity, per second; None removes it. It holds for what windows have counted already."""
        self._table.set(entity, limit)

    def record(self, user: str, client_id: str | None, value: float, now_ms: int) -> int:
        """Count `value`; return for how many milliseconds the client is throttled."""
        key = self._table.window_key(user, client_id)
        rate = self._rate(key, now_ms)
        rate.record(self._window, value, now_ms)
        limit = self._table.limit(key)
        if limit is None:
            return 0
        throttle_ms = rate.throttle_ms(self._window, limit, now_ms)
        return throttle_ms if self._throttle_ms_max is None else min(throttle_ms, self._throttle_ms_max)

    def take_back(self, user: str, client_id: str | None, value: float, now_ms: int) -> None:
        """Take back a value that was counted at `now_ms`, because the client does not get it."""
        key = self._table.window_key(user, client_id)
        self._rate(key, now_ms).record(self._window, -value, now_ms)

    def note_throttled(self, user: str, client_id: str | None, throttle_ms: int, now_ms: int) -> None:
        """Note that a client was throttled because of this quota, after `record`."""
        key = self._table.window_key(user, client_id)
        times = self._throttles.get(key)
        if times is None:
            times = self._throttles[key] = ThrottleTimes(now_ms)
        times.record(throttle_ms, now_ms)

    def used(self, now_ms: int) -> Iterator[Used]:
        """Return the present rate of each window."""
        for key, rate in list(self._rates.items()):
            times = self._throttles.get(key)
            throttle_ms = 0.0 if times is None else times.average_ms(now_ms)
            yield Used(*key, round(rate.per_second(self._window, now_ms), 6), round(throttle_ms, 3))

    def most_in_a_window(self, user: str, client_id: str | None) -> float:
        """The greatest value that does not exceed the limit by itself; infinite without one.

        As kafka 2.3 ClientQuotaManager.getMaxValueInQuotaWindow.
        """
        limit = self._table.limit(self._table.window_key(user, client_id))
        window = self._window
        return math.inf if limit is None else limit * (window.samples - 1) * window.sample_ms / MS_PER_SECOND

    def _rate(self, key: WindowKey, now_ms: int) -> SampledRate:
        rates = self._rates
        rate = rates.pop(key, None)
        if rate is None:
            rate = SampledRate(now_ms)
            self._forget_idle(now_ms)
        rates[key] = rate
        return rate

    def _forget_idle(self, now_ms: int) -> None:
        """Make room for a window."""
        rates = self._rates
        while rates:
            oldest = next(iter(rates))
            if len(rates) < WINDOWS_MAX and now_ms - rates[oldest].last_recorded_ms <= IDLE_WINDOW_MS:
                return
            del rates[oldest]
            self._throttles.pop(oldest, None)
