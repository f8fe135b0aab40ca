"""GetTelemetrySubscriptions v0 and PushTelemetry v0 (KIP-714), as a Kafka 4.4 without a receiver of client metrics.

ApiVersions does not list them without a receiver. A client that asks all the same gets the subscriptions that the
configs of client metrics make. What it pushes is checked, and dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.sections import CLIENT_METRICS
from minibroker.broker.parts import BrokerParts
from minibroker.broker.wing import Wing
from minibroker.broker.wings.telemetry.subscriptions import MAX_BYTES, RESERVED_IDS, Instance, Instances, Push
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.telemetry import GetTelemetrySubscriptionsResponse, PushTelemetryResponse
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.storage import chance

# As kafka 4.4 ClientMetricsManager.SUPPORTED_COMPRESSION_TYPES: the preferred first.
ACCEPTED_CODECS = [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]

Body = Any


class TelemetryWing(Wing):
    """With a connection the instance that it named last is forgotten."""

    def __init__(self, parts: BrokerParts) -> None:
        self._state = parts.state
        self._clock = parts.timers.clock
        self._instances = Instances()
        self._latest_ids: dict[int, bytes] = {}  # by the number of the connection
        parts.probes.when_closed(self._forget)

    def routes(self) -> Routes:
        return {
            ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: self.get_telemetry_subscriptions,
            ApiKey.PUSH_TELEMETRY: self.push_telemetry,
        }

    def get_telemetry_subscriptions(self, request: Request, client: Client) -> Body:
        instance_id = request.body.client_instance_id
        if instance_id == ZERO_UUID:
            instance_id = chance.new_uuid().bytes
        subscription = self._instance(instance_id, client).ask(self._clock.wall_ms())
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=subscription.subscription_id,
            accepted_compression_types=ACCEPTED_CODECS,
            push_interval_ms=subscription.interval_ms,
            telemetry_max_bytes=MAX_BYTES,
            delta_temporality=True,
            requested_metrics=subscription.metrics,
        )

    def push_telemetry(self, request: Request, client: Client) -> Body:
        body = request.body
        if body.client_instance_id in RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "no client has this instance id")
        push = Push(body.subscription_id, body.terminating, body.compression_type, body.metrics)
        self._instance(body.client_instance_id, client).push(push, self._clock.wall_ms())
        return PushTelemetryResponse()

    def _instance(self, instance_id: bytes, client: Client) -> Instance:
        self._latest_ids[client.number] = instance_id
        return self._instances.of(instance_id, attributes_of(client), self._state.get(CLIENT_METRICS))

    def _forget(self, client: Client, reason: str) -> None:
        instance_id = self._latest_ids.pop(client.number, None)
        if instance_id is not None:
            self._instances.forget(instance_id)


def attributes_of(client: Client) -> Mapping[str, str]:
    """The attributes that a client can be chosen by, besides its instance id."""
    name, version = client.software
    return {
        "client_id": client.client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": client.host,
        "client_source_port": client.address.rpartition(":")[2],
    }
