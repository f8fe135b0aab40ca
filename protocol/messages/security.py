"""SaslHandshake and SaslAuthenticate, and the administration of SCRAM credentials."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.primitives import (
    ErrorCode16,
    ErrorMessage,
    Int8sb,
    Int32sb,
    Int64sb,
    SecretBytes,
    String,
    UserName,
)
from minibroker.protocol.schema import array, array_of, nullable_array, since, versions

SaslHandshakeRequest = versions("SaslHandshakeRequest", 0, 1,  # v0: tokens follow bare, v1: in SaslAuthenticate
    "mechanism" / String,
)  # fmt: skip

SaslHandshakeResponse = versions("SaslHandshakeResponse", 0, 1,
    "error_code" / ErrorCode16,
    "mechanisms" / array_of(String),
)  # fmt: skip

SaslAuthenticateRequest = versions("SaslAuthenticateRequest", 0, 2,
    "auth_bytes" / SecretBytes,
    flexible=2,
)  # fmt: skip

SaslAuthenticateResponse = versions("SaslAuthenticateResponse", 0, 2,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "auth_bytes" / SecretBytes,
    "session_lifetime_ms" / Int64sb @ since(1, default=0),     # until the client must authenticate again; 0 for ever
    flexible=2,
)  # fmt: skip

DescribeUserScramCredentialsRequest = versions("DescribeUserScramCredentialsRequest", 0, 0,
    "users" / nullable_array("name" / UserName),               # null or none: all
    flexible=0,
)  # fmt: skip

DescribeUserScramCredentialsResponse = versions("DescribeUserScramCredentialsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "error_code" / ErrorCode16,
    "error_message" / ErrorMessage,
    "results" / array(
        "user" / UserName,
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage,
        "credential_infos" / array(
            "mechanism" / Int8sb,
            "iterations" / Int32sb)),
    flexible=0,
)  # fmt: skip

AlterUserScramCredentialsRequest = versions("AlterUserScramCredentialsRequest", 0, 0,
    "deletions" / array(
        "name" / UserName,
        "mechanism" / Int8sb),
    "upsertions" / array(
        "name" / UserName,
        "mechanism" / Int8sb,
        "iterations" / Int32sb,
        "salt" / SecretBytes,
        "salted_password" / SecretBytes),
    flexible=0,
)  # fmt: skip

AlterUserScramCredentialsResponse = versions("AlterUserScramCredentialsResponse", 0, 0,
    "throttle_time_ms" / Int32sb,
    "results" / array(                                         # one per user
        "user" / UserName,
        "error_code" / ErrorCode16,
        "error_message" / ErrorMessage),
    flexible=0,
)  # fmt: skip


def users_once(body: Any) -> Any:
    """The users of both arrays of AlterUserScramCredentials, each once: the answer has a row for each user."""
    users = dict.fromkeys(row.name for row in (*body.deletions, *body.upsertions))
    make = AlterUserScramCredentialsRequest.row("deletions")
    return body._replace(deletions=[make(name, 0) for name in users])
