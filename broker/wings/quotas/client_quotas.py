"""The quotas of clients: bytes produced, bytes fetched, and the time of the broker, each by user and client id.

The three kinds are looked up independently. A broker without quotas counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minibroker.broker.time.sampled_rate import MS_PER_SECOND, SampleWindow
from minibroker.broker.wings.quotas.client_quota import ClientQuota
from minibroker.broker.wings.quotas.entities import Entity

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
KEYS = (CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE)

Quotas = Mapping[str, float]  # by key; each greater than 0


class ClientQuotas:
    """`by_entity` has all quotas that are set."""

    def __init__(
        self, samples: int, sample_seconds: int, *, producer_default: float | None, consumer_default: float | None
    ) -> None:
        """`samples` of `sample_seconds` make a window; the defaults are bytes per second, None for no limit."""
        sample_ms = sample_seconds * MS_PER_SECOND
        window = SampleWindow(samples, sample_ms)
        self.by_entity: dict[Entity, Quotas] = {}
        self.produced = ClientQuota(window, everybody=producer_default)
        self.fetched = ClientQuota(window, everybody=consumer_default)
        self.requests = ClientQuota(window, throttle_ms_max=sample_ms)
        # Whether there is a quota, or has been one.
        self.is_used = producer_default is not None or consumer_default is not None
        self._when_used: list[Callable[[], None]] = []

    def when_used(self, call: Callable[[], None]) -> None:
        """Call `call` when the first quota is set."""
        self._when_used.append(call)

    def replace(self, quotas: Mapping[Entity, Quotas]) -> None:
        """Have these quotas, and no others."""
        for entity in self.by_entity.keys() | quotas.keys():
            if self.by_entity.get(entity, {}) != quotas.get(entity, {}):
                self.set(entity, quotas.get(entity, {}))

    def set(self, entity: Entity, quotas: Quotas) -> None:
        """Replace the quotas of an entity; from now on they hold, also for what was counted before."""
        if quotas:
            self.by_entity[entity] = dict(quotas)
        elif self.by_entity.pop(entity, None) is None:
            return
        self.produced.set(entity, quotas.get(PRODUCER_BYTE_RATE))
        self.fetched.set(entity, quotas.get(CONSUMER_BYTE_RATE))
        if REQUEST_PERCENTAGE in quotas or self.requests.is_used:  # else no request is timed
            self.requests.set(entity, quotas.get(REQUEST_PERCENTAGE))
        was_used = self.is_used
        self.is_used = self.produced.is_used or self.fetched.is_used or self.requests.is_used
        if self.is_used and not was_used:
            for call in self._when_used:
                call()
