"""The APIs of delegation tokens (KIP-48). This broker has no tokens."""

from __future__ import annotations

from minibroker.protocol.primitives import ErrorCode16, Int32sb, Int64sb, NullableString, SecretBytes, String
from minibroker.protocol.schema import array, default, nullable_array, since, versions

PRINCIPAL = (
    "principal_type" / String,
    "principal_name" / String,
)  # fmt: skip
REQUESTER = (
    "token_requester_principal_type" / String @ since(3, default=""),
    "token_requester_principal_name" / String @ since(3, default=""),
)  # fmt: skip

CreateDelegationTokenRequest = versions("CreateDelegationTokenRequest", 0, 3,
    "owner_principal_type" / NullableString @ since(3),        # null: the client's own
    "owner_principal_name" / NullableString @ since(3),
    "renewers" / array(*PRINCIPAL),
    "max_lifetime_ms" / Int64sb,
    flexible=2,
)  # fmt: skip

CreateDelegationTokenResponse = versions("CreateDelegationTokenResponse", 0, 3,
    "error_code" / ErrorCode16,
    *PRINCIPAL,
    *REQUESTER,
    "issue_timestamp_ms" / Int64sb @ default(-1),
    "expiry_timestamp_ms" / Int64sb @ default(-1),
    "max_timestamp_ms" / Int64sb @ default(-1),
    "token_id" / String,
    "hmac" / SecretBytes,
    "throttle_time_ms" / Int32sb,
    flexible=2,
)  # fmt: skip

RenewDelegationTokenRequest = versions("RenewDelegationTokenRequest", 0, 2,
    "hmac" / SecretBytes,
    "renew_period_ms" / Int64sb,
    flexible=2,
)  # fmt: skip

RenewDelegationTokenResponse = versions("RenewDelegationTokenResponse", 0, 2,
    "error_code" / ErrorCode16,
    "expiry_timestamp_ms" / Int64sb @ default(-1),
    "throttle_time_ms" / Int32sb,
    flexible=2,
)  # fmt: skip

ExpireDelegationTokenRequest = versions("ExpireDelegationTokenRequest", 0, 2,
    "hmac" / SecretBytes,
    "expiry_time_period_ms" / Int64sb,
    flexible=2,
)  # fmt: skip

ExpireDelegationTokenResponse = versions("ExpireDelegationTokenResponse", 0, 2,
    "error_code" / ErrorCode16,
    "expiry_timestamp_ms" / Int64sb @ default(-1),
    "throttle_time_ms" / Int32sb,
    flexible=2,
)  # fmt: skip

DescribeDelegationTokenRequest = versions("DescribeDelegationTokenRequest", 0, 3,
    "owners" / nullable_array(*PRINCIPAL),                     # null: all
    flexible=2,
)  # fmt: skip

DescribeDelegationTokenResponse = versions("DescribeDelegationTokenResponse", 0, 3,
    "error_code" / ErrorCode16,
    "tokens" / array(
        *PRINCIPAL,
        *REQUESTER,
        "issue_timestamp" / Int64sb,
        "expiry_timestamp" / Int64sb,
        "max_timestamp" / Int64sb,
        "token_id" / String,
        "hmac" / SecretBytes,
        "renewers" / array(*PRINCIPAL)),
    "throttle_time_ms" / Int32sb,
    flexible=2,
)  # fmt: skip
