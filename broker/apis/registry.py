"""Dispatches each request to its handler, and answers failures (kafka's KafkaApis.handle).

Each family of handlers lists its APIs in `routes`; ApiVersions advertises every row of API_TABLE.

Three kinds of failure: a malformed request closes the connection (KafkaProtocolError, raised by the decoder); a
KafkaError of a handler is the answer to the whole request; any other exception is a defect of minibroker, answered with
UNKNOWN_SERVER_ERROR and logged with its traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.failures import failure_of
from minibroker.broker.apis.guard import Guard
from minibroker.broker.apis.known_errors import KnownErrors
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.routes import Family, handlers_of
from minibroker.broker.config.profiles import EVERYTHING, Profile
from minibroker.broker.pending import Pending
from minibroker.protocol.api import API_TABLE, Api, ApiKey, Request, decode_request, encode_response
from minibroker.protocol.api_table import versions_of
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError

logger = logging.getLogger(__name__)

Body = Any
Encoded = list[Any] | None
Answer = Callable[[Request, Client], Body | Pending[Body]]
Encode = Callable[[Request, Client, Body], Encoded]


class ApiRegistry:
    """Decodes a frame, runs its handler, behind a guard if there is one, encodes the answer."""

    def __init__(
        self,
        families: Iterable[Family],
        metadata: MetadataApis,
        profile: Profile = EVERYTHING,
        guard: Guard | None = None,
    ) -> None:
        self.handlers = handlers_of(families)
        if guard is not None:
            self.handlers = {key: guard.guarded(ApiKey(key), each) for key, each in self.handlers.items()}
        self.profile = profile
        self.apis = offered(profile)
        self._known_errors = KnownErrors(profile.error_code_for)
        self.encoded: Encode = encoded if profile is EVERYTHING else self._encoded_with_known_errors
        # Returns the response before it is `encoded`, also that of a failed request; raises as `dispatch`.
        self.answer: Answer = self.unthrottled
        metadata.served = list(self.apis.values())

    def dispatch(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """Return the encoded response, None for none; a Pending of it if the request waits.

        Raises, or the Pending fails with, KafkaProtocolError and CloseConnectionError, which close the connection.
        """
        request = decode_request(frame, self.apis)
        client.client_id = request.client_id
        body = self.answer(request, client)
        if type(body) is Pending:
            return body.then(partial(self.encoded, request, client))
        return self.encoded(request, client, body)

    def unthrottled(self, request: Request, client: Client) -> Body | Pending[Body]:
        """`answer`, on a broker without quotas (`throttling.py`)."""
        try:
            body = self.handlers[request.api_key](request, client)
        except Exception as error:
            return failed(request, client, error)
        if type(body) is Pending:
            return body.recovered(partial(failed, request, client))
        return body

    def _encoded_with_known_errors(self, request: Request, client: Client, body: Body) -> Encoded:
        known = None if body is None else self._known_errors.replaced(request.api_key, body)
        return encoded(request, client, known)


def offered(profile: Profile) -> dict[int, Api]:
    """The APIs in the versions of the release that this broker acts as."""
    if profile is EVERYTHING:
        return dict(sorted(API_TABLE.items()))
    return {key: API_TABLE[key].until(last) for key, last in sorted(versions_of(profile.name).items())}


def failed(request: Request, client: Client, error: Exception) -> Body:
    """Log the error, and return the answer to a failed request. Raises as `ApiRegistry.dispatch`."""
    if isinstance(error, KafkaProtocolError | CloseConnectionError):
        raise error
    if isinstance(error, KafkaError):
        refusal = error
        logger.info("%s: %s", describe(request, client), error)
    elif isinstance(error, OSError):
        refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        logger.error("%s: %s", describe(request, client), error)
    else:
        refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        logger.error("%s: a defect of minibroker", describe(request, client), exc_info=error)
    body = failure_of(request, refusal)
    if body is None:
        raise CloseConnectionError(f"{describe(request, client)} failed, and it has no response")
    return body


def encoded(request: Request, client: Client, body: Body) -> Encoded:
    """Encode the response to chunks; None for none. Raises CloseConnectionError if it cannot be encoded."""
    if body is None:
        return None
    try:
        return encode_response(request, body)
    except Exception as error:
        logger.error("%s: cannot encode the response", describe(request, client), exc_info=error)
        raise CloseConnectionError("cannot encode the response") from error


def describe(request: Request, client: Client) -> str:
    """Describe the request for a log line."""
    return (
        f"{ApiKey(request.api_key).name} v{request.api_version} of {client} "
        f"(client id {request.client_id!r}, correlation id {request.correlation_id})"
    )
