"""The APIs of delegation tokens (KIP-48), as of a Kafka without a secret key for them: each request is refused.

CreateDelegationToken and DescribeDelegationToken v0-v3, RenewDelegationToken and ExpireDelegationToken v0-v2.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.principal import ANONYMOUS
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.messages.delegation_tokens import CreateDelegationTokenResponse

Body = Any


class DelegationTokenApis:
    """Handlers that refuse, by the way in which a client has come (as kafka 2.0.1 KafkaApis.allowTokenRequests)."""

    def routes(self) -> Routes:
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self.create_delegation_token,
            ApiKey.RENEW_DELEGATION_TOKEN: self.renew_delegation_token,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self.expire_delegation_token,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self.describe_delegation_token,
        }

    def create_delegation_token(self, request: Request, client: Client) -> Body:
        owner = client.principal
        return CreateDelegationTokenResponse(
            error_code=refusal_of(client),
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=owner.type,
            token_requester_principal_name=owner.name,
        )

    def renew_delegation_token(self, request: Request, client: Client) -> Body:
        raise KafkaError(refusal_of(client))

    def expire_delegation_token(self, request: Request, client: Client) -> Body:
        raise KafkaError(refusal_of(client))

    def describe_delegation_token(self, request: Request, client: Client) -> Body:
        raise KafkaError(refusal_of(client))


def refusal_of(client: Client) -> ErrorCode:
    if client.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
