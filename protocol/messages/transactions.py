"""InitProducerId: an identity for an idempotent producer."""

from __future__ import annotations

from minibroker.protocol.primitives import Int16sb, Int32sb, Int64sb, NullableString
from minibroker.protocol.schema import since, versions

InitProducerIdRequest = versions("InitProducerIdRequest", 0, 1,
    "transactional_id" / NullableString,
    "transaction_timeout_ms" / Int32sb,
)  # fmt: skip

InitProducerIdResponse = versions("InitProducerIdResponse", 0, 1,
    "throttle_time_ms" / Int32sb @ since(0, default=0),
    "error_code" / Int16sb,
    "producer_id" / Int64sb @ since(0, default=-1),
    "producer_epoch" / Int16sb @ since(0, default=-1),
)  # fmt: skip
