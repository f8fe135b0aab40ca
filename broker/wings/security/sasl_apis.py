"""SaslHandshake and SaslAuthenticate of authenticated clients, and the SCRAM credentials of users.

SaslHandshake v0-v1. SaslAuthenticate v0-v2: v1 session lifetime, v2 flexible. `way/logins.py` answers both
until a client of a SASL listener has authenticated; later, and on other listeners, they are ILLEGAL_SASL_STATE (as
kafka 2.0.1 KafkaApis.handleSaslHandshakeRequest).

DescribeUserScramCredentials and AlterUserScramCredentials v0 (KIP-554), as Kafka 2.7 and later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.wings.security.sasl.users import ScramUsers
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.security import (
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from minibroker.protocol.scram import Deletion, Upsertion

AUTHENTICATED_ALREADY = "SaslAuthenticate request received after successful authentication"

Body = Any


class SaslApis:
    """Handlers of the APIs by which clients authenticate, and of the users' credentials."""

    def __init__(self, users: ScramUsers) -> None:
        self._users = users

    def routes(self) -> Routes:
        return {
            ApiKey.SASL_HANDSHAKE: self.sasl_handshake,
            ApiKey.SASL_AUTHENTICATE: self.sasl_authenticate,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe_user_scram_credentials,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter_user_scram_credentials,
        }

    def sasl_handshake(self, request: Request, client: Client) -> Body:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE)

    def sasl_authenticate(self, request: Request, client: Client) -> Body:
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, AUTHENTICATED_ALREADY)

    def describe_user_scram_credentials(self, request: Request, client: Client) -> Body:
        named: Sequence[str] = [row.name for row in request.body.users or ()]
        make = DescribeUserScramCredentialsResponse.row("results")
        results = []
        for user in dict.fromkeys(named or sorted(self._users.names())):
            described = self._users.described(user)
            if named.count(user) > 1:
                message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
                results.append(make(user=user, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=message))
            elif not described:
                message = f"Attempt to describe a user credential that does not exist: {user}"
                results.append(make(user=user, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=message))
            else:
                results.append(make(user=user, error_code=ErrorCode.NONE, credential_infos=described))
        return DescribeUserScramCredentialsResponse(results=results)

    def alter_user_scram_credentials(self, request: Request, client: Client) -> Body:
        outcomes = self._users.alter(
            [Deletion(*row) for row in request.body.deletions], [Upsertion(*row) for row in request.body.upsertions]
        )
        make = AlterUserScramCredentialsResponse.row("results")
        return AlterUserScramCredentialsResponse(
            results=[
                make(
                    user=user,
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else error.message,
                )
                for user, error in outcomes.items()
            ]
        )
