"""GetTelemetrySubscriptions and PushTelemetry: a client's own metrics, if its broker wants them (KIP-714)."""

from __future__ import annotations

from minibroker.protocol.primitives import (
    Boolean,
    Bytes,
    ErrorCode16,
    Int8sb,
    Int32sb,
    String,
    Uuid,
)
from minibroker.protocol.schema import array_of, versions

GetTelemetrySubscriptionsRequest = versions("GetTelemetrySubscriptionsRequest", 0, 0,
    "client_instance_id" / Uuid,                               # zero at first: the broker draws one
    flexible=0,
)  # fmt: skip

GetTelemetrySubscriptionsResponse = versions("GetTelemetrySubscriptionsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "client_instance_id" / Uuid,
    "subscription_id" / Int32sb,
    "accepted_compression_types" / array_of(Int8sb),           # the codec ids of record batches, the preferred first
    "push_interval_ms" / Int32sb,
    "telemetry_max_bytes" / Int32sb,
    "delta_temporality" / Boolean,                             # counters are sent as what was added since
    "requested_metrics" / array_of(String),                    # prefixes of their names; "*" asks for all
    flexible=0,
)  # fmt: skip

PushTelemetryRequest = versions("PushTelemetryRequest", 0, 0,
    "client_instance_id" / Uuid,
    "subscription_id" / Int32sb,
    "terminating" / Boolean,                                   # this is its last
    "compression_type" / Int8sb,
    "metrics" / Bytes,                                         # MetricsData v1 of OpenTelemetry
    flexible=0,
)  # fmt: skip

PushTelemetryResponse = versions("PushTelemetryResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    flexible=0,
)  # fmt: skip
