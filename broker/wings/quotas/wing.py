"""Quotas: the bytes that clients produce and fetch, and the time of their requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.state import Change
from minibroker.broker.config.profiles import Habit
from minibroker.broker.config.settings.types import LONG_MAX
from minibroker.broker.metric import Found, families
from minibroker.broker.parts import BrokerParts
from minibroker.broker.way.stage import Stage
from minibroker.broker.wing import Wing
from minibroker.broker.wings.quotas.charge import Charging
from minibroker.broker.wings.quotas.client_quotas import ClientQuotas
from minibroker.broker.wings.quotas.quota_apis import CLIENT_QUOTAS, ClientQuotaApis
from minibroker.broker.wings.quotas.throttling import Throttling

FAMILIES = families("""\
produce = kafka.server:type=Produce (user, client-id)
  byte-rate | per_second | gauge bytes/s | that the clients of a quota produce | kafka_server_quota_byte_rate
  throttle-time | throttle_ms | gauge ms | for which they were throttled | kafka_server_quota_throttle_time

fetch = kafka.server:type=Fetch (user, client-id)
  byte-rate | per_second | gauge bytes/s | that the clients of a quota fetch | kafka_server_quota_byte_rate
  throttle-time | throttle_ms | gauge ms | for which they were throttled | kafka_server_quota_throttle_time

request = kafka.server:type=Request (user, client-id)
  request-time | per_second | gauge percent | of a core, for clients of a quota | kafka_server_quota_request_time
  throttle-time | throttle_ms | gauge ms | for which they were throttled | kafka_server_quota_throttle_time
""")


class QuotaWing(Wing):
    """Every broker has quotas; until the first one is set, they cost a request nothing."""

    sections = (CLIENT_QUOTAS,)

    def __init__(self, parts: BrokerParts) -> None:
        config, self._clock = parts.config, parts.timers.clock
        holds_back = Habit.HOLDS_ANSWERS_BACK in config.profile.habits
        self._timer = parts.timers.timer if holds_back else None
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
        return [Throttling(Charging(self.quotas, self._clock, self._timer))]

    def routes(self) -> Routes:
        return self._apis.routes()

    def on_change(self, change: Change) -> None:
        if (quotas := change.get(CLIENT_QUOTAS)) is not None:
            self.quotas.replace(quotas)

    def metrics(self) -> Iterator[Found]:
        """A row for each window of clients, which there are once a quota was set."""
        now_ms = self._clock.monotonic_ms()
        quotas = {"produce": self.quotas.produced, "fetch": self.quotas.fetched, "request": self.quotas.requests}
        for kind, quota in quotas.items():
            for used in quota.used(now_ms):
                yield FAMILIES[kind].row((used.user, used.client_id or ""), used)


def limit_of(default: int) -> float | None:
    """The limit that `quota.producer.default` or `quota.consumer.default` sets; None for their own default."""
    return None if default == LONG_MAX else float(default)
