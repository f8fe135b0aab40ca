"""Routes each request to its handler and each failure to its answer (kafka's KafkaApis.handle).

The table below is the table of contents of the broker: one row per API, its handler and what is answered when
the whole request fails. What is in the table is what ApiVersions advertises.

Three rings of failure: a malformed request closes the connection (KafkaProtocolError, raised by the decoder); a
KafkaError that a handler lets through is answered for the whole request; anything else is a defect of ours,
answered UNKNOWN_SERVER_ERROR with one traceback in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any

from minibroker.broker.apis import failures
from minibroker.broker.apis.fetch import FetchApis
from minibroker.broker.apis.metadata import MetadataApis
from minibroker.broker.apis.produce import ProduceApis
from minibroker.broker.apis.topics import TopicApis
from minibroker.broker.client import Client, CloseConnectionError
from minibroker.protocol.api import ApiKey, Request, decode_request, encode_response
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError

logger = logging.getLogger(__name__)

Body = Any
Encoded = list[Any] | None
Handler = Callable[[Request, Client], Body | Coroutine[Any, Any, Body]]
Failure = Callable[[Request, KafkaError], Body]


def handlers(
    produce: ProduceApis, fetch: FetchApis, metadata: MetadataApis, topics: TopicApis
) -> dict[int, tuple[Handler, Failure]]:
    """Every API this broker serves. Versions come from `protocol.api`, so nothing is said twice."""
    return {
        ApiKey.PRODUCE: (produce.produce, failures.produce),
        ApiKey.FETCH: (fetch.fetch, failures.fetch),
        ApiKey.LIST_OFFSETS: (fetch.list_offsets, failures.list_offsets),
        ApiKey.METADATA: (metadata.metadata, failures.metadata),
        ApiKey.FIND_COORDINATOR: (metadata.find_coordinator, failures.find_coordinator),
        ApiKey.API_VERSIONS: (metadata.api_versions, failures.api_versions),
        ApiKey.CREATE_TOPICS: (topics.create_topics, failures.create_topics),
        ApiKey.DELETE_TOPICS: (topics.delete_topics, failures.delete_topics),
        ApiKey.DELETE_RECORDS: (topics.delete_records, failures.delete_records),
        ApiKey.INIT_PRODUCER_ID: (produce.init_producer_id, failures.init_producer_id),
        ApiKey.DESCRIBE_CONFIGS: (topics.describe_configs, failures.describe_configs),
    }


class ApiRegistry:
    """Decodes a frame, runs its handler, encodes the answer."""

    def __init__(self, table: dict[int, tuple[Handler, Failure]], metadata: MetadataApis) -> None:
        self._table = table
        metadata.served = sorted(table)

    def dispatch(self, frame: bytearray, client: Client) -> Encoded | Coroutine[Any, Any, Encoded]:
        """The encoded response, None when there is none, or a coroutine when the request has to wait.

        Raises KafkaProtocolError and CloseConnectionError, which close the connection.
        """
        request = decode_request(frame)
        client.client_id = request.client_id
        row = self._table.get(request.api_key)
        if row is None:
            raise KafkaProtocolError(f"{ApiKey(request.api_key).name} is not served by this broker")
        try:
            body = row[0](request, client)
        except (KafkaProtocolError, CloseConnectionError):
            raise
        except Exception as error:
            body = self._failed(request, client, error)
        if type(body) is CoroutineType:
            return self._finish_later(request, client, body)
        return encoded(request, client, body)

    async def _finish_later(self, request: Request, client: Client, waiting: Coroutine[Any, Any, Body]) -> Encoded:
        try:
            body = await waiting
        except (KafkaProtocolError, CloseConnectionError):
            raise
        except Exception as error:
            body = self._failed(request, client, error)
        return encoded(request, client, body)

    def _failed(self, request: Request, client: Client, error: Exception) -> Body:
        """What is answered when the whole request failed."""
        if isinstance(error, KafkaError):
            refusal = error
            logger.info("%s: %s", describe(request, client), error)
        elif isinstance(error, OSError):
            refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            logger.error("%s: %s", describe(request, client), error)
        else:
            refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            logger.error("%s: a defect of minibroker", describe(request, client), exc_info=error)
        body = self._table[request.api_key][1](request, refusal)
        if body is None:
            raise CloseConnectionError(f"{describe(request, client)} failed and has no response to say so")
        return body


def encoded(request: Request, client: Client, body: Body) -> Encoded:
    """The response's chunks; None when there is none. Raises CloseConnectionError for what cannot be said."""
    if body is None:
        return None
    try:
        return encode_response(request, body)
    except Exception as error:
        logger.error("%s: the response cannot be encoded", describe(request, client), exc_info=error)
        raise CloseConnectionError("its response cannot be encoded") from error


def describe(request: Request, client: Client) -> str:
    """The request, for a log line."""
    return (
        f"{ApiKey(request.api_key).name} v{request.api_version} of {client.address} "
        f"(client id {request.client_id!r}, correlation id {request.correlation_id})"
    )
