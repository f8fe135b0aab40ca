"""Charges each request to the quotas of its client, and throttles the clients that exceed them (KIP-219).

A throttled request is answered at once, with the time in `throttle_time_ms` where its version has the field; the
connection then reads no further request until the time is over (`Client.muted_until_ms`, `network/connection.py`).

    Produce   its size, whatever becomes of it; with acks=0 too, then without the time of its handling
    Fetch     the size of its response, before down-conversion. A throttled one has no topics, and what it would have
              had is taken back. One that would exceed the whole window by itself is limited to that, as in kafka 2.3.
    all       the time of the handler, as percent of one core; not of followers, nor of requests between brokers

With `--act-as` a release before KIP-219, the answer is held back for that time instead, a Fetch's with its records, and
the times of two quotas add up (as kafka 1.1.1 KafkaApis.sendResponseMaybeThrottle, which delays one after the other).

As kafka 2.0.1 KafkaApis.sendResponseMaybeThrottle, handleProduceRequest and handleFetchRequest. On a broker without
quotas no request has a charge.
"""

from __future__ import annotations

import logging
import math
import time
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.pending import Delay, Pending
from minibroker.broker.replica.leading import ACKS_NONE
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.quotas.client_quota import ClientQuota
from minibroker.broker.wings.quotas.client_quotas import ClientQuotas
from minibroker.protocol.api import API_TABLE, ApiKey, Request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_rows import columns
from minibroker.protocol.primitives import Meaning
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)

THROTTLE_TIME = "throttle_time_ms"
PERCENT_PER_NS = 100.0 / 1_000_000_000

Body = Any


class Charging:
    """Makes the charges of requests; a throttled answer is held back by `timer`, if the release does so."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, timer: Timer | None = None) -> None:
        self.quotas = quotas
        self.now_ms = clock.monotonic_ms
        self.timer = timer
        self._has_warned_of_window = False

    def warn_of_window(self, client: Client, size_bytes: int, most_bytes: float) -> None:
        """Log, once, that a client cannot get the records that it asks for."""
        if size_bytes > most_bytes * 1.1 and not self._has_warned_of_window:
            self._has_warned_of_window = True
            logger.warning(
                "client id %r of user %s cannot fetch a response of %d bytes: its quota allows %.0f bytes in a whole "
                "window; raise its consumer_byte_rate, or quota.window.num (this is logged once)",
                client.client_id,
                client.principal.name,
                size_bytes,
                most_bytes,
            )


class Charge:
    """The cost of one request to its client."""

    __slots__ = (
        "_because_of",
        "_began_ns",
        "_charging",
        "_client",
        "_is_settled",
        "_request",
        "_throttle_ms",
        "_took_ns",
    )

    def __init__(self, charging: Charging, request: Request, client: Client) -> None:
        self._charging = charging
        self._request = request
        self._client = client
        self._is_settled = False
        self._throttle_ms = 0
        self._because_of = charging.quotas.requests
        self._took_ns = -1
        self._began_ns = time.perf_counter_ns() if charging.quotas.requests.is_used else 0

    def note_handled(self) -> None:
        """Note the time of the handler; a request that waits takes none while it waits, as in Kafka."""
        if self._took_ns < 0:
            self._took_ns = time.perf_counter_ns() - self._began_ns if self._began_ns else 0

    def exempt(self) -> None:
        """Charge nothing."""
        self._is_settled = True

    def most_fetched_bytes(self) -> float:
        """The size of records that a Fetch may return at most; infinite without a quota, or where it is held back."""
        quota, client = self._charging.quotas.fetched, self._client
        if not quota.is_used or self._charging.timer is not None:
            return math.inf
        return quota.most_in_a_window(client.principal.name, client.client_id)

    def withholds(self, size_bytes: int) -> bool:
        """Charge a Fetch with the size of its response; return whether it must be answered without records."""
        self._is_settled = True
        quota, client = self._charging.quotas.fetched, self._client
        user, client_id = client.principal.name, client.client_id
        now_ms = self._charging.now_ms()
        request_ms = self._request_throttle_ms(now_ms)
        fetch_ms = quota.record(user, client_id, size_bytes, now_ms) if quota.is_used else 0
        self._throttle_ms = self._throttle_of(quota, fetch_ms, request_ms)
        if self._charging.timer is not None:
            return False
        if self._throttle_ms and quota.is_used:
            quota.take_back(user, client_id, size_bytes, now_ms)
            self._charging.warn_of_window(client, size_bytes, self.most_fetched_bytes())
        return self._throttle_ms > 0

    def throttled(self, body: Body) -> Body | Pending[Body]:
        """Return the response with its throttle time, and mute the connection until that is over; or hold it back."""
        self.note_handled()
        now_ms = self._charging.now_ms()
        if not self._is_settled:
            self._throttle_ms = self._settled(body, now_ms)
        if self._throttle_ms == 0:
            return body
        client = self._client
        until_ms = now_ms + self._throttle_ms
        self._because_of.note_throttled(client.principal.name, client.client_id, self._throttle_ms, now_ms)
        if body is not None and THROTTLE_TIME in body._fields:
            body = body._replace(throttle_time_ms=self._throttle_ms)
        timer = self._charging.timer
        if timer is not None:
            return Delay(timer, until_ms, body).pending
        client.mute(until_ms)
        return body

    def _settled(self, body: Body, now_ms: int) -> int:
        request = self._request
        if request.api_key == ApiKey.PRODUCE:
            quota, client = self._charging.quotas.produced, self._client
            produce_ms = 0
            if quota.is_used:
                produce_ms = quota.record(client.principal.name, client.client_id, request.size_bytes, now_ms)
            request_ms = 0 if request.body.acks == ACKS_NONE else self._request_throttle_ms(now_ms)
            return self._throttle_of(quota, produce_ms, request_ms)
        if API_TABLE[request.api_key].is_between_brokers and not is_throttled_between_brokers(request, body):
            return 0
        return self._request_throttle_ms(now_ms)

    def _throttle_of(self, quota: ClientQuota, quota_ms: int, request_ms: int) -> int:
        """Combine the time of a quota with that of the request's own."""
        if quota_ms > request_ms:
            self._because_of = quota
        return max(quota_ms, request_ms) if self._charging.timer is None else quota_ms + request_ms

    def _request_throttle_ms(self, now_ms: int) -> int:
        quota, client = self._charging.quotas.requests, self._client
        if not quota.is_used:
            return 0
        self.note_handled()
        return quota.record(client.principal.name, client.client_id, self._took_ns * PERCENT_PER_NS, now_ms)


def is_throttled_between_brokers(request: Request, body: Body) -> bool:
    """Whether a request for brokers comes from a client: denied to it, or in a version that has a throttle time, such
    as consumers send of OffsetForLeaderEpoch."""
    response = API_TABLE[request.api_key].response
    if any(field.name == THROTTLE_TIME and field.is_in(request.api_version) for field in response.fields):
        return True
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return any(denied in column.values(body) for column in columns(response, Meaning.ERROR_CODE))
