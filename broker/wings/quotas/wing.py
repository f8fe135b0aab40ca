"""Quotas: the bytes that clients produce and fetch, and the time of their requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.state import Change
from minibroker.broker.config.settings.types import LONG_MAX
from minibroker.broker.parts import BrokerParts
from minibroker.broker.way.stage import Stage
from minibroker.broker.wing import Found, Head, Wing
from minibroker.broker.wings.quotas.charge import Charging
from minibroker.broker.wings.quotas.client_quotas import ClientQuotas
from minibroker.broker.wings.quotas.quota_apis import CLIENT_QUOTAS, ClientQuotaApis
from minibroker.broker.wings.quotas.throttling import Throttling


class QuotaWing(Wing):
    """Every broker has quotas; until the first one is set, they cost a request nothing."""

    sections = (CLIENT_QUOTAS,)

    def __init__(self, parts: BrokerParts) -> None:
        config, self._clock = parts.config, parts.timers.clock
        self.quotas = ClientQuotas(
            config.quota_window_num,
            config.quota_window_size_seconds,
            producer_default=limit_of(config.quota_producer_default),
            consumer_default=limit_of(config.quota_consumer_default),
        )
        for entity, limits in parts.state.get(CLIENT_QUOTAS).items():
            self.quotas.set(entity, limits)
        self._apis = ClientQuotaApis(parts.state, self.quotas)

    def stages(self) -> Sequence[Stage]:
        return [Throttling(Charging(self.quotas, self._clock))]

    def routes(self) -> Routes:
        return self._apis.routes()

    def on_change(self, change: Change) -> None:
        if (quotas := change.get(CLIENT_QUOTAS)) is not None:
            self.quotas.replace(quotas)

    def metrics(self) -> Iterator[Found]:
        """A row for each window of clients, which there are once a quota was set."""
        now_ms = self._clock.monotonic_ms()
        kinds = (
            ("Produce", "byte-rate", self.quotas.produced),
            ("Fetch", "byte-rate", self.quotas.fetched),
            ("Request", "request-time", self.quotas.requests),
        )
        for kind, name, quota in kinds:
            head = Head(f"kafka.server:type={kind}", (name, "throttle-time"), ("user", "client-id"))
            for used in quota.used(now_ms):
                yield head, (used.user, used.client_id or "", round(used.per_second, 6), round(used.throttle_ms, 3))


def limit_of(default: int) -> float | None:
    """The limit that `quota.producer.default` or `quota.consumer.default` sets; None for their own default."""
    return None if default == LONG_MAX else float(default)
