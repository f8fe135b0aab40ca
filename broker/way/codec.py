"""The stages that every broker has: decoding and encoding, and the handlers behind them (kafka's KafkaApis.handle).

Three kinds of failure: a malformed request closes the connection (KafkaProtocolError, raised by the decoder); a
KafkaError of a handler is the answer to the whole request; any other exception is a defect of minibroker, answered with
UNKNOWN_SERVER_ERROR and logged with its traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.failures import failure_of
from minibroker.broker.apis.routes import Handler, Routes
from minibroker.broker.pending import Pending
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.probes import Probes
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.protocol.api import API_TABLE, Api, ApiKey, Request, decode_request, encode_response
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.message_rows import columns
from minibroker.protocol.primitives import Meaning, TopicById
from minibroker.protocol.topic_ids import BY_ID, name_topics, with_ids

logger = logging.getLogger(__name__)


class Codec(Stage):
    """Between frames and requests, and between answers and chunks. It knows the APIs that this broker serves, and names
    topics that have ids in place of names."""

    def __init__(self, apis: Mapping[int, Api], topics_by_id: Mapping[bytes, TopicById]) -> None:
        self._apis = apis
        self._topics_by_id = topics_by_id

    def enter(self, exchange: Exchange) -> Any:
        exchange.request = exchange.served = request = decode_request(exchange.frame, self._apis)
        ids = BY_ID.get(request.api_key)
        if ids is not None and request.api_version >= ids.first:
            exchange.ids = ids
            name_topics(request.body, ids.asked, self._topics_by_id)
        exchange.client.name(request.client_id)
        return GO_ON

    def leave(self, exchange: Exchange, answer: Body) -> list[Any] | None:
        if answer is None:
            return None
        assert exchange.request is not None
        try:
            if exchange.ids is not None:
                answer = with_ids(answer, exchange.ids.answered)
            return encode_response(exchange.request, answer)
        except Exception as error:
            logger.error("%s: cannot encode the response", describe(exchange), exc_info=error)
            raise CloseConnectionError("cannot encode the response") from error


class Watch(Stage):
    """Right behind the codec: lets probes look at the request as it was decoded, and at the answer to be encoded."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    @property
    def is_idle(self) -> bool:
        return not self._probes.is_looking

    def when_changed(self, call: Callable[[], None]) -> None:
        self._probes.when_changed(call)

    def enter(self, exchange: Exchange) -> Any:
        for asked in self._probes.asked:
            asked(exchange)
        return GO_ON

    def leave(self, exchange: Exchange, answer: Body) -> Body:
        exchange.body = answer
        for answered in self._probes.answered:
            answered(exchange)
        return answer


class Handlers(Stage):
    """The handlers by API: they answer each request that comes this far. `apis` are the offered ones with a handler."""

    def __init__(self, offered: Mapping[int, Api]) -> None:
        self._offered = offered
        self.apis: dict[int, Api] = {}
        self.by_key: dict[int, Handler] = {}

    def add(self, routes: Routes) -> None:
        """Serve these APIs too. Raises ValueError for one that has a handler."""
        for key, handler in routes.items():
            if key in self.by_key:
                raise ValueError(f"{key.name} has two handlers: {self.by_key[key]} and {handler}")
            self.by_key[key] = handler
            if key in self._offered:
                self.apis[key] = self._offered[key]

    def lead_around(self, key: ApiKey, around: Callable[[Handler, Request, Client], Body | Pending[Body]]) -> None:
        """Let `around` answer an API: it gets the handler that did so far."""
        self.by_key[key] = partial(around, self.by_key[key])

    def enter(self, exchange: Exchange) -> Body | Pending[Body]:
        request, client = exchange.served, exchange.client
        assert request is not None
        try:
            body = self.by_key[request.api_key](request, client)
        except Exception as error:
            return failed(exchange, error)
        if type(body) is Pending:
            return body.recovered(partial(failed, exchange))
        return body


class KnownErrors(Stage):
    """Replaces error codes that the release of `--act-as` lacks, wherever an answer declares one."""

    def __init__(self, error_code_for: Callable[[int], int]) -> None:
        self._error_code_for = error_code_for

    def leave(self, exchange: Exchange, answer: Body) -> Body:
        if answer is None:
            return None
        assert exchange.request is not None
        for column in columns(API_TABLE[exchange.request.api_key].response, Meaning.ERROR_CODE):
            if any(column.values(answer)):
                answer = column.replaced(answer, self._error_code_for)
        return answer


def failed(exchange: Exchange, error: Exception) -> Body:
    """Log the error, and return the answer to a failed request. Raises what closes the connection."""
    if isinstance(error, KafkaProtocolError | CloseConnectionError):
        raise error
    if isinstance(error, KafkaError):
        refusal = error
        logger.info("%s: %s", describe(exchange), error)
    elif isinstance(error, OSError):
        refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        logger.error("%s: %s", describe(exchange), error)
    else:
        refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        logger.error("%s: a defect of minibroker", describe(exchange), exc_info=error)
    assert exchange.request is not None
    body = failure_of(exchange.request, refusal)
    if body is None:
        raise CloseConnectionError(f"{describe(exchange)} failed, and it has no response")
    exchange.has_failed = True
    return body


def describe(exchange: Exchange) -> str:
    """Describe the request for a log line."""
    request = exchange.request
    assert request is not None
    return (
        f"{ApiKey(request.api_key).name} v{request.api_version} of {exchange.client} "
        f"(client id {request.client_id!r}, correlation id {request.correlation_id})"
    )
